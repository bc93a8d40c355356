/* What a process holds on its cards: from an address or handle to the bytes charged for it.
 *
 * Lock-striped open addressing in memory the table maps itself: no malloc (these calls may come from inside malloc),
 * the cost of a call does not grow with the number of entries, and threads on different addresses rarely meet. An
 * all-zero table is valid and empty, so a table in memory that is wiped on fork is simply empty in the child,
 * whatever lock another thread held at that moment.
 */
#ifndef HCS_ADDRESSES_H
#define HCS_ADDRESSES_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What an entry is. A process may use several runtimes at once, and their handles are small numbers that meet: the
 * runtime stands in the upper bits, HCS_KIND(runtime, kind). */
enum hcs_kind {
    HCS_KIND_NONE = 0,
    HCS_KIND_POINTER = 1,  /* device pointers */
    HCS_KIND_HANDLE = 2,   /* handles of physical memory; owner is the id of what they name */
    HCS_KIND_PHYSICAL = 3, /* physical memory, by an id of ours: handles are given out again while it is still mapped */
    HCS_KIND_MAPPING = 4,  /* where physical memory is mapped; owner is its id, bytes the length */
    HCS_KIND_ARRAY = 5,    /* arrays and mipmapped arrays, by handle */
    HCS_KIND_POOLED = 6,   /* pointers into pools; owner is the pool's place in its table */
    HCS_KIND_CONTEXT = 7,
    HCS_KIND_MODULE = 8, /* modules and link states, by handle: they die with their context */
    HCS_KIND_LIBRARY = 9,
    HCS_KIND_GRAPH = 10, /* executable graphs; refs is 1 once it was launched */
};

#define HCS_KIND_BITS 8
#define HCS_KIND(runtime, kind) (((uint32_t)(runtime) << HCS_KIND_BITS) | (uint32_t)(kind))

struct hcs_entry {
    uint64_t key;
    uint64_t bytes; /* charged */
    uint64_t owner; /* context the memory dies with, as a number; 0 where there is none */
    uint32_t card;
    uint32_t kind;
    uint32_t refs; /* of physical memory: references to its handle */
    uint32_t maps; /* and places where it is mapped */
};

enum { HCS_SHARDS = 64 };

struct hcs_shard {
    _Atomic uint32_t lock;
    uint32_t capacity; /* power of two; 0 before the first entry */
    uint32_t count;
    uint32_t reserved;
    struct hcs_entry *entries;
    uint64_t padding[5]; /* one cache line per shard */
};

struct hcs_addresses {
    struct hcs_shard shards[HCS_SHARDS];
};

/* False when no memory can be mapped for the table. */
bool hcs_addresses_put(struct hcs_addresses *table, const struct hcs_entry *entry);

/* Removes the entry into *out; false when there is none. */
bool hcs_addresses_take(struct hcs_addresses *table, uint32_t kind, uint64_t key, struct hcs_entry *out);

/* Adds to the two counts of an entry and copies it to *out as it is then; with `take_at_zero` the entry is removed where
 * both counts are 0. False when there is none. */
bool hcs_addresses_count(struct hcs_addresses *table, uint32_t kind, uint64_t key, int refs, int maps,
                         bool take_at_zero, struct hcs_entry *out);

/* Copies the entry to *out; false when there is none. */
bool hcs_addresses_get(struct hcs_addresses *table, uint32_t kind, uint64_t key, struct hcs_entry *out);

/* Removes every entry of that runtime and owner that dies with its owner (pointers, arrays, modules), and adds what they
 * had of each card to `sums`. One pass over the table, for contexts that are destroyed. */
void hcs_addresses_take_owned(struct hcs_addresses *table, uint32_t runtime, uint64_t owner, uint64_t *sums,
                              uint32_t cards);

/* The entry of that kind with key <= address < key + bytes; false when there is none. Slow. */
bool hcs_addresses_find_covering(struct hcs_addresses *table, uint32_t kind, uint64_t address, struct hcs_entry *out);

/* Zeroed memory that a forked child finds zeroed again; NULL when none can be mapped. */
void *hcs_map_wiped_on_fork(size_t bytes);

#endif
