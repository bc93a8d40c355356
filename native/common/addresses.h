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

enum hcs_kind {
    HCS_KIND_NONE = 0,
    HCS_KIND_POINTER = 1, /* device pointers */
    HCS_KIND_HANDLE = 2,  /* handles of physical memory; may be equal to some pointer */
};

struct hcs_entry {
    uint64_t key;
    uint64_t bytes; /* charged */
    uint64_t owner; /* context the memory dies with, as a number; 0 where there is none */
    uint32_t card;
    uint32_t kind;
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

/* Removes some entry of that card and owner; false when none is left. Slow: for contexts that are destroyed. */
bool hcs_addresses_take_owned(struct hcs_addresses *table, uint32_t card, uint64_t owner, struct hcs_entry *out);

/* Zeroed memory that a forked child finds zeroed again; NULL when none can be mapped. */
void *hcs_map_wiped_on_fork(size_t bytes);

#endif
