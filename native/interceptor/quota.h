/* The quota file, format 1 (docs/quota-file.md), parsed without allocation. */
#ifndef HCS_QUOTA_H
#define HCS_QUOTA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    HCS_QUOTA_MAX_CARDS = 32,
    HCS_QUOTA_MAX_BYTES = 16384,
    HCS_QUOTA_VENDOR_BYTES = 16, /* with the terminating zero, like the others */
    HCS_QUOTA_UUID_BYTES = 64,
    HCS_QUOTA_BUS_ID_BYTES = 32,
    HCS_QUOTA_LEDGER_BYTES = 64,
};

struct hcs_quota_card {
    char vendor[HCS_QUOTA_VENDOR_BYTES];
    char uuid[HCS_QUOTA_UUID_BYTES];
    char bus_id[HCS_QUOTA_BUS_ID_BYTES]; /* "" where the file says "-" */
    int64_t physical_id;                 /* -1 where the file says "-" */
    uint64_t quota_bytes;
    uint64_t context_bytes;
};

struct hcs_quota {
    uint64_t counter;
    char ledger[HCS_QUOTA_LEDGER_BYTES];
    uint32_t card_count;
    uint32_t fault_line; /* where parsing stopped, counted from 1; 0 where the file is valid */
    struct hcs_quota_card cards[HCS_QUOTA_MAX_CARDS];
};

/* NULL when the text is a valid quota file, else what is wrong with it, as a static sentence. */
const char *hcs_quota_parse(const char *text, size_t length, struct hcs_quota *quota);

#endif
