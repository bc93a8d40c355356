/* What this process holds and was charged for: pointers, arrays, modules; physical memory and where it is mapped.
 *
 * The order of steps matters and is the same for every runtime. To allocate: charge, call, book. To free: take out of
 * the books, call, then uncharge (or put back): the moment something is free, another thread may be given the same
 * address.
 */
#ifndef HCS_BOOKS_H
#define HCS_BOOKS_H

#include "interceptor.h"

/* The smallest unit in which any driver maps physical memory. */
#define HCS_MAPPING_STEP (UINT64_C(64) << 10)

struct hcs_place {
    int card;
    uint64_t owner; /* context as a number; 0 where memory dies with nothing but its process */
};

/* False when no memory can be mapped for the books. `kind` is HCS_KIND(runtime, kind). */
bool hcs_book(uint32_t kind, uint64_t key, uint64_t bytes, const struct hcs_place *place);

/* After a call that allocates: books what it gave (`ok`), or gives the reservation back. False where the caller must
 * free again and answer "out of memory". */
bool hcs_settle(bool ok, uint32_t kind, uint64_t key, uint64_t bytes, const struct hcs_place *place);

/* Before a call that frees: takes the entry out. False where it is not known. */
bool hcs_unbook(uint32_t kind, uint64_t key, struct hcs_entry *entry);

/* After it: uncharges, or puts the entry back where the driver refused. */
void hcs_settle_free(bool freed, bool known, const struct hcs_entry *entry);

/* A context has died, and its memory with it. */
void hcs_forget_owned(uint32_t runtime, uint64_t owner);

/* ---- physical memory: charged until its last handle is released and it is mapped nowhere ------------------------ */

/* After a call that made `handle`: like hcs_settle. */
bool hcs_physical_settle(bool ok, uint32_t runtime, uint64_t handle, uint64_t bytes, int card);

/* Releasing a handle: begin, call the driver, end. */
struct hcs_releasing {
    bool known;
    bool last; /* reference: the handle is out of the books, for the driver may give its number out again */
    struct hcs_entry handle;
};
void hcs_physical_begin_release(uint32_t runtime, uint64_t handle, struct hcs_releasing *releasing);
void hcs_physical_end_release(uint32_t runtime, bool released, const struct hcs_releasing *releasing);

/* Mapping: begin returns the memory's id, 0 where the handle is a peer's; end tells whether the driver did it. */
uint64_t hcs_physical_begin_map(uint32_t runtime, uint64_t handle);
void hcs_physical_end_map(uint32_t runtime, bool mapped, uint64_t id, uint64_t address, uint64_t bytes);

/* After the driver unmapped [address, address + bytes); bytes 0: the one mapping that begins there. */
void hcs_physical_unmapped(uint32_t runtime, uint64_t address, uint64_t bytes);

/* The driver gave one more reference, as `handle`, to what is mapped at `address`. */
void hcs_physical_retained(uint32_t runtime, uint64_t handle, uint64_t address);

#endif
