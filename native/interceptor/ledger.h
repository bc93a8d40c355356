/* The ledger: one file per container, shared by all its processes, layout 1 (docs/quota-file.md). */
#ifndef HCS_LEDGER_H
#define HCS_LEDGER_H

#include <stdatomic.h>
#include <stdint.h>

#include "../common/account.h"
#include "quota.h"

#define HCS_LEDGER_MAGIC UINT64_C(0x314744454C534348) /* the bytes "HCSLEDG1" */

enum {
    HCS_LEDGER_LAYOUT = 1,
    HCS_LEDGER_CARDS = HCS_QUOTA_MAX_CARDS,
    HCS_LEDGER_SLOTS = 1024,
    HCS_LEDGER_SLOTS_OFFSET = 8192,
    HCS_LEDGER_SLOT_BYTES = 320,
    HCS_LEDGER_BYTES = HCS_LEDGER_SLOTS_OFFSET + HCS_LEDGER_SLOTS * HCS_LEDGER_SLOT_BYTES,
};

struct hcs_ledger_card {
    _Atomic uint64_t counter; /* sequence and bytes in use, see account.h */
    _Atomic uint64_t refusals;
    char uuid[HCS_QUOTA_UUID_BYTES]; /* for readers; "" before the first process came */
    uint64_t reserved[6];
};

struct hcs_ledger {
    _Atomic uint64_t magic; /* written last by whoever initialises; everyone writes the same */
    uint32_t layout;
    uint32_t card_slots;
    uint32_t process_slots;
    uint32_t process_slot_bytes;
    _Atomic uint64_t quota_counter; /* the node agent raises it after it has replaced the quota file */
    uint64_t reserved[4];
    struct hcs_ledger_card cards[HCS_LEDGER_CARDS];
};

_Static_assert(sizeof(struct hcs_ledger_card) == 128, "layout 1 of the ledger is frozen");
_Static_assert(sizeof(struct hcs_ledger) == 64 + 128 * HCS_LEDGER_CARDS, "layout 1 of the ledger is frozen");
_Static_assert(sizeof(struct hcs_slot) + 8 * HCS_LEDGER_CARDS <= HCS_LEDGER_SLOT_BYTES, "a slot holds every card");

/* Maps the ledger at path, creating it where it is missing, and checks that it belongs to these cards. Returns NULL on
 * success, else what is wrong as a static sentence. */
const char *hcs_ledger_open(const char *path, const struct hcs_quota *quota, struct hcs_ledger **ledger);

/* The accounts inside a mapped ledger. */
struct hcs_account hcs_ledger_account(struct hcs_ledger *ledger, uint32_t cards);

#endif
