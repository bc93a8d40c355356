/* The address table, see addresses.h. Linear probing with backward-shift deletion: no tombstones to clean up. */
#include "addresses.h"

#include <sched.h>
#include <string.h>
#include <sys/mman.h>

#ifndef MADV_WIPEONFORK
#define MADV_WIPEONFORK 18 /* Linux 4.14 */
#endif

enum { FIRST_CAPACITY = 128, SHARD_BITS = 6 };

/* Present since glibc 2.3.2 under this name; pthread_atfork itself moved between libraries. */
extern int __register_atfork(void (*prepare)(void), void (*parent)(void), void (*child)(void), void *dso_handle);
extern void *__dso_handle __attribute__((visibility("hidden")));

enum { WIPED_REGIONS = 8 };
static struct {
    void *start;
    size_t bytes;
} wiped_regions[WIPED_REGIONS];
static _Atomic uint32_t wiped_count;

static void wipe_in_child(void)
{
    uint32_t count = atomic_load(&wiped_count);
    for (uint32_t index = 0; index < count && index < WIPED_REGIONS; index++)
        memset(wiped_regions[index].start, 0, wiped_regions[index].bytes);
}

void *hcs_map_wiped_on_fork(size_t bytes)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return NULL;
    if (madvise(memory, bytes, MADV_WIPEONFORK) != 0) {
        /* A kernel before 4.14: wipe by hand after fork(). A bare clone() is not covered there. */
        uint32_t index = atomic_fetch_add(&wiped_count, 1);
        if (index < WIPED_REGIONS) {
            wiped_regions[index].start = memory;
            wiped_regions[index].bytes = bytes;
        }
        if (index == 0)
            __register_atfork(NULL, NULL, wipe_in_child, &__dso_handle);
    }
    return memory;
}

static uint64_t mixed(uint64_t key, uint32_t kind)
{
    uint64_t hash = key ^ ((uint64_t)kind << 48); /* user-space addresses end below that */
    hash ^= hash >> 33;
    hash *= UINT64_C(0xff51afd7ed558ccd); /* finaliser of MurmurHash3: spreads page-aligned addresses */
    hash ^= hash >> 33;
    return hash;
}

static void lock(struct hcs_shard *shard)
{
    uint32_t open = 0;
    while (!atomic_compare_exchange_weak(&shard->lock, &open, 1)) {
        open = 0;
        sched_yield();
    }
}

static void unlock(struct hcs_shard *shard)
{
    atomic_store(&shard->lock, 0);
}

static uint32_t home(const struct hcs_shard *shard, uint64_t key, uint32_t kind)
{
    return (uint32_t)(mixed(key, kind) >> SHARD_BITS) & (shard->capacity - 1);
}

static void place(struct hcs_shard *shard, const struct hcs_entry *entry)
{
    uint32_t at = home(shard, entry->key, entry->kind);
    while (shard->entries[at].kind != HCS_KIND_NONE)
        at = (at + 1) & (shard->capacity - 1);
    shard->entries[at] = *entry;
    shard->count++;
}

static bool grow(struct hcs_shard *shard)
{
    struct hcs_shard bigger = {.capacity = shard->capacity ? shard->capacity * 2 : FIRST_CAPACITY};
    size_t bytes = (size_t)bigger.capacity * sizeof *bigger.entries;
    bigger.entries = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (bigger.entries == MAP_FAILED)
        return false;
    for (uint32_t at = 0; at < shard->capacity; at++)
        if (shard->entries[at].kind != HCS_KIND_NONE)
            place(&bigger, &shard->entries[at]);
    if (shard->entries != NULL)
        munmap(shard->entries, (size_t)shard->capacity * sizeof *shard->entries);
    shard->entries = bigger.entries;
    shard->capacity = bigger.capacity;
    shard->count = bigger.count;
    return true;
}

static void erase(struct hcs_shard *shard, uint32_t at)
{
    uint32_t mask = shard->capacity - 1;
    uint32_t hole = at;
    for (uint32_t next = (hole + 1) & mask; shard->entries[next].kind != HCS_KIND_NONE; next = (next + 1) & mask) {
        uint32_t wanted = home(shard, shard->entries[next].key, shard->entries[next].kind);
        /* Move an entry back only if the hole lies between its home and where it is. */
        if (((next - wanted) & mask) >= ((next - hole) & mask)) {
            shard->entries[hole] = shard->entries[next];
            hole = next;
        }
    }
    shard->entries[hole].kind = HCS_KIND_NONE;
    shard->count--;
}

static struct hcs_shard *shard_of(struct hcs_addresses *table, uint64_t key, uint32_t kind)
{
    return &table->shards[mixed(key, kind) & (HCS_SHARDS - 1)];
}

bool hcs_addresses_put(struct hcs_addresses *table, const struct hcs_entry *entry)
{
    struct hcs_shard *shard = shard_of(table, entry->key, entry->kind);
    lock(shard);
    bool room = (shard->count + 1) * 4 <= shard->capacity * 3 || grow(shard);
    if (room)
        place(shard, entry);
    unlock(shard);
    return room;
}

/* The entry's place in a locked shard; capacity where there is none. */
static uint32_t find(const struct hcs_shard *shard, uint32_t kind, uint64_t key)
{
    if (shard->capacity == 0)
        return 0;
    uint32_t at = home(shard, key, kind);
    while (shard->entries[at].kind != HCS_KIND_NONE) {
        if (shard->entries[at].key == key && shard->entries[at].kind == kind)
            return at;
        at = (at + 1) & (shard->capacity - 1);
    }
    return shard->capacity;
}

bool hcs_addresses_take(struct hcs_addresses *table, uint32_t kind, uint64_t key, struct hcs_entry *out)
{
    struct hcs_shard *shard = shard_of(table, key, kind);
    lock(shard);
    uint32_t at = find(shard, kind, key);
    bool found = at < shard->capacity;
    if (found) {
        *out = shard->entries[at];
        erase(shard, at);
    }
    unlock(shard);
    return found;
}

bool hcs_addresses_get(struct hcs_addresses *table, uint32_t kind, uint64_t key, struct hcs_entry *out)
{
    return hcs_addresses_count(table, kind, key, 0, 0, false, out);
}

bool hcs_addresses_count(struct hcs_addresses *table, uint32_t kind, uint64_t key, int refs, int maps,
                         bool take_at_zero, struct hcs_entry *out)
{
    struct hcs_shard *shard = shard_of(table, key, kind);
    lock(shard);
    uint32_t at = find(shard, kind, key);
    bool found = at < shard->capacity;
    if (found) {
        struct hcs_entry *entry = &shard->entries[at];
        entry->refs += (uint32_t)refs;
        entry->maps += (uint32_t)maps;
        *out = *entry;
        if (take_at_zero && entry->refs == 0 && entry->maps == 0)
            erase(shard, at);
    }
    unlock(shard);
    return found;
}

static bool dies_with_its_owner(uint32_t kind)
{
    switch (kind & ((1U << HCS_KIND_BITS) - 1)) {
    case HCS_KIND_POINTER:
    case HCS_KIND_ARRAY:
    case HCS_KIND_MODULE:
        return true;
    default:
        return false;
    }
}

static bool is_owned(const struct hcs_entry *entry, uint32_t runtime, uint64_t owner)
{
    return entry->owner == owner && entry->kind >> HCS_KIND_BITS == runtime && dies_with_its_owner(entry->kind);
}

static bool covers(const struct hcs_entry *entry, uint32_t kind, uint64_t address)
{
    return entry->kind == kind && entry->key <= address && address - entry->key < entry->bytes;
}

void hcs_addresses_take_owned(struct hcs_addresses *table, uint32_t runtime, uint64_t owner, uint64_t *sums,
                              uint32_t cards)
{
    for (uint32_t index = 0; index < HCS_SHARDS; index++) {
        struct hcs_shard *shard = &table->shards[index];
        lock(shard);
        for (uint32_t at = 0; at < shard->capacity;) {
            const struct hcs_entry *entry = &shard->entries[at];
            if (entry->kind == HCS_KIND_NONE || !is_owned(entry, runtime, owner)) {
                at++;
                continue;
            }
            if (entry->card < cards)
                sums[entry->card] += entry->bytes;
            erase(shard, at); /* another entry may stand here now: look again */
        }
        unlock(shard);
    }
}

bool hcs_addresses_find_covering(struct hcs_addresses *table, uint32_t kind, uint64_t address, struct hcs_entry *out)
{
    bool found = false;
    for (uint32_t index = 0; index < HCS_SHARDS && !found; index++) {
        struct hcs_shard *shard = &table->shards[index];
        lock(shard);
        for (uint32_t at = 0; at < shard->capacity && !found; at++) {
            found = covers(&shard->entries[at], kind, address);
            if (found)
                *out = shard->entries[at];
        }
        unlock(shard);
    }
    return found;
}
