/* Accounts of device memory shared by processes: one counter per card, one slot per process.
 *
 * Lives in a file that every process maps. Promises:
 *   - reserve is one compare-and-add on the card's counter: two processes can never both pass and together exceed;
 *   - no lock on this path, so a process killed at any instruction blocks nobody;
 *   - a killed process's bytes come back exactly: reclaim recomputes a counter from the slots of the living;
 *   - no counter ever goes below zero;
 *   - an all-zero file is a valid, empty account.
 *
 * How reclaim can be exact without a lock: every completed change of a counter also advances a sequence number in the
 * counter's upper bits, and a process raises its slot's `inflight` before it touches a counter and lowers it after its
 * own slot agrees. Reclaim reads the counter, adds up the slots, gives up if any is in flight, and writes the sum back
 * only if the counter is still the word it read.
 */
#ifndef HCS_ACCOUNT_H
#define HCS_ACCOUNT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* A counter word: low 44 bits are bytes (16 TiB is above any card), high 20 bits the sequence number. */
#define HCS_BYTES_BITS 44
#define HCS_BYTES_MASK ((UINT64_C(1) << HCS_BYTES_BITS) - 1)
#define HCS_SEQUENCE_STEP (UINT64_C(1) << HCS_BYTES_BITS)

/* owner: low 31 bits pid (0 = free), bit 31 "being claimed", high 32 bits generation, which changes with every
 * owner. */
#define HCS_OWNER_PID_MASK UINT64_C(0x7fffffff)
#define HCS_OWNER_CLAIMING UINT64_C(0x80000000)
#define HCS_OWNER_GENERATION (UINT64_C(1) << 32)

struct hcs_slot {
    _Atomic uint64_t owner;
    _Atomic uint64_t start_time;
    _Atomic uint64_t pid_namespace;
    _Atomic uint32_t inflight;
    uint32_t reserved;
    _Atomic uint64_t charged[]; /* bytes, one per card */
};

/* Where the parts of an account lie in its mapping. */
struct hcs_account {
    unsigned char *counters; /* first counter word */
    uint32_t counter_stride; /* bytes from one card's word to the next */
    uint32_t cards;
    unsigned char *slots;
    uint32_t slot_stride;
    uint32_t slot_count;
};

/* A slot for the calling process, empty; NULL when every slot belongs to a living process. The caller makes sure that
 * one thread at a time claims, and once per process: a slot left from before exec() is taken for stale and emptied. */
struct hcs_slot *hcs_account_claim(const struct hcs_account *account);

/* Adds bytes to the card's counter and to the slot if the counter stays within capacity; false if it would not. */
bool hcs_account_reserve(const struct hcs_account *account, struct hcs_slot *slot, uint32_t card, uint64_t bytes,
                         uint64_t capacity);

/* Takes bytes back; never below zero. */
void hcs_account_release(const struct hcs_account *account, struct hcs_slot *slot, uint32_t card, uint64_t bytes);

/* Frees the slots of the dead and sets each counter to the sum of the living. Slow path: reads /proc per slot in
 * use. */
void hcs_account_reclaim(const struct hcs_account *account);

/* Bytes in use on the card by all processes. */
uint64_t hcs_account_used(const struct hcs_account *account, uint32_t card);

/* What the slot with this index holds on the card; false where it is free, being claimed, or holds nothing. */
bool hcs_account_holder(const struct hcs_account *account, uint32_t index, uint32_t card, uint32_t *pid,
                        uint64_t *bytes);

#endif
