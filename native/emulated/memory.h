/* Device memory of emulated cards: anonymous host memory, mapped without reserving it. A 60 GiB allocation costs
 * nothing until it is touched, is charged to the card in full, and copies move real bytes. Guarded by one lock: this
 * is a stand-in, its speed does not matter. */
#ifndef HCS_MEMORY_H
#define HCS_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct hcs_allocation {
    uint64_t address;
    uint64_t bytes;   /* asked for; copies beyond them are refused */
    uint64_t charged; /* taken from the card */
    uint64_t mapped;
    uint32_t card;
    const void *owner; /* context it dies with; NULL where there is none */
};

/* False when the host has no address space for it. */
bool hcs_memory_allocate(uint64_t bytes, uint64_t charged, uint32_t card, const void *owner, uint64_t *address);

/* Frees the allocation that starts at the address and tells what it was; false when none starts there. */
bool hcs_memory_free(uint64_t address, struct hcs_allocation *freed);

/* Frees some allocation of the owner; false when none is left. */
bool hcs_memory_free_owned(const void *owner, struct hcs_allocation *freed);

/* The allocation that holds all the bytes from address on; false when there is none. */
bool hcs_memory_find(uint64_t address, uint64_t bytes, struct hcs_allocation *found);

#endif
