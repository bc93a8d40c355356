/* Prints where C puts the fields of the shared files, for comparison with what Python writes and reads. */
#include <stddef.h>
#include <stdio.h>

#include "../../../native/emulated/card.h"
#include "../../../native/interceptor/ledger.h"

#define SHOW(name, value) printf("%s %zu\n", name, (size_t)(value))

int main(void)
{
    SHOW("card.bytes", HCS_CARD_BYTES);
    SHOW("card.slots", HCS_CARD_SLOTS_OFFSET);
    SHOW("card.slot_count", HCS_CARD_SLOTS);
    SHOW("card.slot_bytes", HCS_CARD_SLOT_BYTES);
    SHOW("card.layout", offsetof(struct hcs_card_file, layout));
    SHOW("card.process_slots", offsetof(struct hcs_card_file, process_slots));
    SHOW("card.vendor", offsetof(struct hcs_card_file, vendor));
    SHOW("card.model", offsetof(struct hcs_card_file, model));
    SHOW("card.uuid", offsetof(struct hcs_card_file, uuid));
    SHOW("card.bus_id", offsetof(struct hcs_card_file, bus_id));
    SHOW("card.index", offsetof(struct hcs_card_file, index));
    SHOW("card.fault_code", offsetof(struct hcs_card_file, fault_code));
    SHOW("card.fault_name", offsetof(struct hcs_card_file, fault_name));
    SHOW("card.total_bytes", offsetof(struct hcs_card_file, total_bytes));
    SHOW("card.counter", offsetof(struct hcs_card_file, counter));
    SHOW("ledger.bytes", HCS_LEDGER_BYTES);
    SHOW("ledger.slots", HCS_LEDGER_SLOTS_OFFSET);
    SHOW("ledger.slot_count", HCS_LEDGER_SLOTS);
    SHOW("ledger.slot_bytes", HCS_LEDGER_SLOT_BYTES);
    SHOW("ledger.card_count", HCS_LEDGER_CARDS);
    SHOW("ledger.quota_counter", offsetof(struct hcs_ledger, quota_counter));
    SHOW("ledger.cards", offsetof(struct hcs_ledger, cards));
    SHOW("ledger.card_bytes", sizeof(struct hcs_ledger_card));
    SHOW("ledger.card.counter", offsetof(struct hcs_ledger_card, counter));
    SHOW("ledger.card.refusals", offsetof(struct hcs_ledger_card, refusals));
    SHOW("ledger.card.uuid", offsetof(struct hcs_ledger_card, uuid));
    SHOW("slot.owner", offsetof(struct hcs_slot, owner));
    SHOW("slot.start_time", offsetof(struct hcs_slot, start_time));
    SHOW("slot.pid_namespace", offsetof(struct hcs_slot, pid_namespace));
    SHOW("slot.inflight", offsetof(struct hcs_slot, inflight));
    SHOW("slot.charged", offsetof(struct hcs_slot, charged));
    fwrite(&(uint64_t){HCS_CARD_MAGIC}, 8, 1, stdout);
    fwrite(&(uint64_t){HCS_LEDGER_MAGIC}, 8, 1, stdout);
}
