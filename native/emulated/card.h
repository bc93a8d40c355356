/* An emulated card: one small file that every process maps, in place of hardware.
 *
 * It holds what the card is, how much of its memory each process uses, and whether a fault has been injected. The
 * device node of the card (HCS_ROOT/dev/nvidiaN, .../davinciN) is a link to it, so a process opens exactly the cards
 * it was given. A file without our magic is ignored: an emulated driver never touches real hardware.
 * The layout is shared with src/hcs/vendors/emulated.py; a test compares the two.
 */
#ifndef HCS_CARD_H
#define HCS_CARD_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "../common/account.h"

#define HCS_CARD_MAGIC UINT64_C(0x3144524143534348) /* the bytes "HCSCARD1" */

enum {
    HCS_CARD_LAYOUT = 1,
    HCS_CARD_SLOTS = 512,
    HCS_CARD_SLOTS_OFFSET = 4096,
    HCS_CARD_SLOT_BYTES = 64,
    HCS_CARD_BYTES = HCS_CARD_SLOTS_OFFSET + HCS_CARD_SLOTS * HCS_CARD_SLOT_BYTES,
    HCS_MAX_CARDS = 64,
};

struct hcs_card_file {
    uint64_t magic;
    uint32_t layout;
    uint32_t process_slots;
    char vendor[16];
    char model[64];
    char uuid[64];
    char bus_id[32];
    uint32_t index; /* number of its device node on the host */
    _Atomic int32_t fault_code; /* 0 = healthy; otherwise what the vendor calls the fault, e.g. Xid 79 */
    char fault_name[56];
    uint64_t total_bytes;
    _Atomic uint64_t counter; /* bytes in use, with a sequence number, see account.h */
    uint64_t context_bytes;   /* what each context takes of it */
};

/* A card as this process sees it. */
struct hcs_card {
    struct hcs_card_file *file;
    uint32_t node; /* the N of its device node */
    struct hcs_account account;
};

/* Opens the cards whose nodes are HCS_ROOT/dev/<prefix><N>, in order of N, at most HCS_MAX_CARDS. Returns their
 * number. */
uint32_t hcs_cards_open(const char *prefix, const char *vendor, struct hcs_card cards[HCS_MAX_CARDS]);

static inline bool hcs_card_dead(const struct hcs_card *card)
{
    return atomic_load(&card->file->fault_code) != 0;
}

/* Takes memory of the card for this process, or says that it is full. */
bool hcs_card_take(uint32_t index, const struct hcs_card *card, uint64_t bytes);
void hcs_card_give_back(uint32_t index, const struct hcs_card *card, uint64_t bytes);

/* A mark on this process's books, so that those of one container can be told apart; and the bytes under a mark. */
void hcs_card_mark(uint32_t index, const struct hcs_card *card, uint32_t mark);
uint64_t hcs_card_used_under(const struct hcs_card *card, uint32_t mark);

/* The error code with which this call must fail, as HCS_EMULATED_FAIL orders; 0 where it may go on. The variable holds
 * FUNCTION:NTH:CODE, several separated by commas: the NTH call of the function in a process fails with CODE; a CODE
 * below 0 is the number of a signal instead, which is raised in the middle of the call. */
int hcs_fault_injected(const char *function);

/* Bytes in use, without those of processes that have died. */
uint64_t hcs_card_used(const struct hcs_card *card);

#endif
