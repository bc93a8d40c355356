/* Lock-free shared accounts; the protocol is explained in account.h. All atomics are sequentially consistent: the proof
 * of reclaim leans on one order of all of them, and the cost beside a driver call is nothing. */
#include "account.h"

#include <sched.h>

#include "processes.h"

enum { RECLAIM_ATTEMPTS = 16 };

static struct hcs_slot *slot_at(const struct hcs_account *account, uint32_t index)
{
    return (struct hcs_slot *)(void *)(account->slots + (size_t)index * account->slot_stride);
}

static _Atomic uint64_t *counter_of(const struct hcs_account *account, uint32_t card)
{
    return (_Atomic uint64_t *)(void *)(account->counters + (size_t)card * account->counter_stride);
}

static uint64_t counter_word(uint64_t previous, uint64_t bytes)
{
    return ((previous + HCS_SEQUENCE_STEP) & ~HCS_BYTES_MASK) | bytes;
}

static uint64_t free_owner(uint64_t owner)
{
    return (owner & ~(HCS_OWNER_GENERATION - 1)) + HCS_OWNER_GENERATION;
}

/* Writes the counter only if nobody changed it since `word` was read; otherwise reads it again into `word`. This one
 * step is what keeps two processes from both passing the check. */
static bool replaced(_Atomic uint64_t *counter, uint64_t *word, uint64_t next)
{
    return atomic_compare_exchange_weak(counter, word, next);
}

uint64_t hcs_account_used(const struct hcs_account *account, uint32_t card)
{
    return atomic_load(counter_of(account, card)) & HCS_BYTES_MASK;
}

bool hcs_account_reserve(const struct hcs_account *account, struct hcs_slot *slot, uint32_t card, uint64_t bytes,
                         uint64_t capacity)
{
    _Atomic uint64_t *counter = counter_of(account, card);
    if (capacity > HCS_BYTES_MASK)
        capacity = HCS_BYTES_MASK;
    atomic_fetch_add(&slot->inflight, 1);
    uint64_t word = atomic_load(counter);
    uint64_t next;
    do {
        uint64_t used = word & HCS_BYTES_MASK;
        if (bytes > capacity || used > capacity - bytes) {
            atomic_fetch_sub(&slot->inflight, 1);
            return false;
        }
        next = counter_word(word, used + bytes);
    } while (!replaced(counter, &word, next));
    atomic_fetch_add(&slot->charged[card], bytes);
    atomic_fetch_sub(&slot->inflight, 1);
    return true;
}

void hcs_account_release(const struct hcs_account *account, struct hcs_slot *slot, uint32_t card, uint64_t bytes)
{
    _Atomic uint64_t *counter = counter_of(account, card);
    atomic_fetch_add(&slot->inflight, 1);
    uint64_t charged = atomic_load(&slot->charged[card]);
    while (!atomic_compare_exchange_weak(&slot->charged[card], &charged, charged > bytes ? charged - bytes : 0)) {
    }
    if (bytes > charged)
        bytes = charged; /* never more than this process holds: the rest of the counter is somebody else's */
    uint64_t word = atomic_load(counter);
    uint64_t next;
    do {
        uint64_t used = word & HCS_BYTES_MASK;
        next = counter_word(word, used > bytes ? used - bytes : 0);
    } while (!replaced(counter, &word, next));
    atomic_fetch_sub(&slot->inflight, 1);
}

static void free_slots_of_the_dead(const struct hcs_account *account)
{
    uint64_t own_namespace = hcs_process_self().pid_namespace;
    for (uint32_t index = 0; index < account->slot_count; index++) {
        struct hcs_slot *slot = slot_at(account, index);
        uint64_t owner = atomic_load(&slot->owner);
        struct hcs_process process = {.pid = (uint32_t)(owner & HCS_OWNER_PID_MASK)};
        if (process.pid == 0)
            continue;
        if (owner & HCS_OWNER_CLAIMING) {
            /* Start time and namespace may still be the last owner's; judge by the pid alone. */
            process.pid_namespace = own_namespace;
        } else {
            process.start_time = atomic_load(&slot->start_time);
            process.pid_namespace = atomic_load(&slot->pid_namespace);
        }
        /* If the owner changed since it was read, the generation differs and nothing is freed. */
        if (!hcs_process_alive(&process, own_namespace))
            atomic_compare_exchange_strong(&slot->owner, &owner, free_owner(owner));
    }
}

/* The sum of the living slots' charges; false if any is between its two writes. */
static bool sum_of_slots(const struct hcs_account *account, uint32_t card, uint64_t *sum)
{
    *sum = 0;
    for (uint32_t index = 0; index < account->slot_count; index++) {
        struct hcs_slot *slot = slot_at(account, index);
        uint64_t owner = atomic_load(&slot->owner);
        if ((owner & HCS_OWNER_PID_MASK) == 0 || (owner & HCS_OWNER_CLAIMING))
            continue;
        if (atomic_load(&slot->inflight) != 0)
            return false;
        *sum += atomic_load(&slot->charged[card]);
        if (atomic_load(&slot->owner) != owner)
            return false;
    }
    return *sum <= HCS_BYTES_MASK;
}

void hcs_account_reclaim(const struct hcs_account *account)
{
    free_slots_of_the_dead(account);
    for (uint32_t card = 0; card < account->cards; card++) {
        _Atomic uint64_t *counter = counter_of(account, card);
        for (int attempt = 0; attempt < RECLAIM_ATTEMPTS; attempt++) {
            uint64_t word = atomic_load(counter);
            uint64_t sum;
            if (!sum_of_slots(account, card, &sum)) {
                sched_yield();
                continue;
            }
            if (sum == (word & HCS_BYTES_MASK) ||
                atomic_compare_exchange_strong(counter, &word, counter_word(word, sum)))
                break;
        }
    }
}

static struct hcs_slot *claim_free_slot(const struct hcs_account *account, const struct hcs_process *self)
{
    for (uint32_t index = 0; index < account->slot_count; index++) {
        struct hcs_slot *slot = slot_at(account, index);
        uint64_t owner = atomic_load(&slot->owner);
        if ((owner & HCS_OWNER_PID_MASK) != 0)
            continue;
        uint64_t mine = free_owner(owner) | self->pid;
        if (!atomic_compare_exchange_strong(&slot->owner, &owner, mine | HCS_OWNER_CLAIMING))
            continue;
        for (uint32_t card = 0; card < account->cards; card++)
            atomic_store(&slot->charged[card], 0);
        atomic_store(&slot->inflight, 0);
        atomic_store(&slot->start_time, self->start_time);
        atomic_store(&slot->pid_namespace, self->pid_namespace);
        atomic_store(&slot->owner, mine);
        return slot;
    }
    return NULL;
}

struct hcs_slot *hcs_account_claim(const struct hcs_account *account)
{
    struct hcs_process self = hcs_process_self();
    bool stale = false;
    for (uint32_t index = 0; index < account->slot_count; index++) {
        struct hcs_slot *slot = slot_at(account, index);
        uint64_t owner = atomic_load(&slot->owner);
        if ((owner & HCS_OWNER_PID_MASK) != self.pid || atomic_load(&slot->pid_namespace) != self.pid_namespace)
            continue;
        /* Ours from before exec(), or a dead namesake's: either way its memory is gone. */
        stale |= atomic_compare_exchange_strong(&slot->owner, &owner, free_owner(owner));
    }
    if (stale)
        hcs_account_reclaim(account);
    struct hcs_slot *slot = claim_free_slot(account, &self);
    if (slot == NULL) {
        hcs_account_reclaim(account);
        slot = claim_free_slot(account, &self);
    }
    return slot;
}

bool hcs_account_holder(const struct hcs_account *account, uint32_t index, uint32_t card, uint32_t *pid,
                        uint64_t *bytes)
{
    struct hcs_slot *slot = slot_at(account, index);
    uint64_t owner = atomic_load(&slot->owner);
    *pid = (uint32_t)(owner & HCS_OWNER_PID_MASK);
    *bytes = atomic_load(&slot->charged[card]);
    return *pid != 0 && !(owner & HCS_OWNER_CLAIMING) && *bytes != 0;
}
