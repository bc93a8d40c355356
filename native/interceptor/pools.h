/* Stream-ordered memory: charged by what its pools have reserved of the card, not by what was asked for.
 *
 * A pool keeps memory after it was freed, gives it out again, grows in steps of its own and shrinks when a program
 * synchronises or trims it. So the honest figure is the pool's reserved bytes. Before a call its size is reserved in the
 * ledger; after it the pool is asked what it has, and the ledger is set to that. A pool that grew by more than the ledger
 * has room for is made to give the memory back, and the program gets "out of memory".
 */
#ifndef HCS_POOLS_H
#define HCS_POOLS_H

#include "interceptor.h"

struct hcs_pool_driver {
    bool (*reserved)(uint64_t pool, uint64_t *bytes); /* of the card, at this moment; false where it cannot say */
    void (*trim)(uint64_t pool);                      /* gives back what nobody uses */
    uint64_t granule;                                 /* pools grow by multiples of this many bytes */
};

/* The pool's place in the table, added where it is new; NULL when the table is full. */
struct hcs_pool *hcs_pool_of(uint32_t runtime, uint64_t handle, int card, const struct hcs_pool_driver *driver);
/* The same, without adding. */
struct hcs_pool *hcs_pool_known(uint32_t runtime, uint64_t handle);

enum hcs_pool_answer {
    HCS_POOL_REFUSE,
    HCS_POOL_RESERVED, /* bytes are reserved in the ledger: call the driver, then hcs_pool_end */
    HCS_POOL_REUSE,    /* nothing is reserved, but the pool may have room of its own: the same */
};
enum hcs_pool_answer hcs_pool_begin(struct hcs_pool *pool, uint64_t bytes);

/* After the call. False where the pool has grown beyond the quota: free the pointer, then hcs_pool_give_up, and answer
 * "out of memory". */
bool hcs_pool_end(struct hcs_pool *pool, enum hcs_pool_answer began, uint64_t bytes);
void hcs_pool_give_up(struct hcs_pool *pool);

/* Makes it give back what nobody uses. */
void hcs_pool_shrink(struct hcs_pool *pool);

/* Books the pointer; entry.owner is the pool. False when the books are full. */
bool hcs_pool_book(struct hcs_pool *pool, uint64_t pointer, uint64_t bytes);
/* Takes a pointer into some pool out of the books, before it is freed, and settles after. */
bool hcs_pool_unbook(uint32_t runtime, uint64_t pointer, struct hcs_entry *entry);
void hcs_pool_freed(bool freed, const struct hcs_entry *entry);

/* The pool is about to be no more: from begin on the driver is not asked about it. Its memory goes with its last pointer. */
void hcs_pool_begin_destroy(struct hcs_pool *pool);
void hcs_pool_end_destroy(struct hcs_pool *pool, bool destroyed);

/* Sets the ledger to what every pool of this process has. */
void hcs_pools_refresh(void);
/* The same if something was freed since; costs one load otherwise. For calls that synchronise. */
void hcs_pools_refresh_if_dirty(void);

#endif
