/* libhcs_interceptor.so: the contract.
 *
 * Preloaded into every program of a container that has a share of a card, it keeps the container's device memory within
 * the quota of its quota file (docs/quota-file.md), for the CUDA driver API and Ascend's AscendCL.
 *
 *   - Without a quota file the library changes nothing: every call goes to the driver, no lookup is answered by us.
 *   - With one, an allocation that would exceed the quota gets the driver's own out-of-memory code and never reaches
 *     the driver. An allocation of exactly the quota succeeds.
 *   - With a broken one, or a ledger that cannot be used, every charging call is refused (fail closed), with one line
 *     on standard error.
 *   - All processes of the container share one ledger; bytes are reserved there by one atomic compare-and-add before
 *     the driver is asked, and given back if the driver refuses.
 *   - A card is known by UUID (CUDA) or physical id (Ascend), never by ordinal. A card that the file does not name has
 *     no quota, so nothing can be allocated on it.
 *   - What is unknown passes through unchanged: unknown symbols, unknown pointers, memory that is not on a device.
 *   - Nothing here writes to standard output, exits, sleeps, or allocates with malloc.
 *
 * Roads into the driver: (a) direct linking: we export the driver's names; (b) dlopen and dlsym: dlsym is interposed;
 * (c) cuGetProcAddress: the driver answers first, and only an exact address match is replaced.
 */
#ifndef HCS_INTERCEPTOR_H
#define HCS_INTERCEPTOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "../common/addresses.h"
#include "../common/cuda_abi.h"

#define HCS_EXPORT __attribute__((visibility("default")))

/* ---- limits.c: quota file and ledger together ------------------------------------------------------------------ */

enum hcs_mode {
    HCS_MODE_UNKNOWN = 0,
    HCS_MODE_PASS_THROUGH = 1, /* no quota file */
    HCS_MODE_ENFORCE = 2,
    HCS_MODE_REFUSE = 3, /* quota file or ledger unusable: refuse every charge */
};

/* Reads the quota file at the first call of the process. */
enum hcs_mode hcs_mode(void);

enum { HCS_CARD_UNLISTED = -1 };

/* Index of the card in the quota file, or HCS_CARD_UNLISTED. uuid is the 16 raw bytes. */
int hcs_card_of_uuid(const unsigned char uuid[16]);
int hcs_card_of_bus_id(const char *bus_id);
int hcs_card_of_physical_id(const char *vendor, int64_t physical_id);

/* Reserves bytes for this process on the card; false means: answer "out of memory". */
bool hcs_charge(int card, uint64_t bytes);
void hcs_uncharge(int card, uint64_t bytes);

/* Makes the driver's figures agree with the quota: total = min(quota, physical), free = min(quota - used, physical
 * free), never below zero. */
void hcs_clamp(int card, size_t *free_bytes, size_t *total_bytes);

/* ---- local.c: state of this process; zeroed again in a forked child -------------------------------------------- */

enum { HCS_MAX_ORDINALS = 64 };

struct hcs_slot;
struct hcs_local {
    _Atomic(struct hcs_slot *) slot;
    _Atomic uint32_t claim_lock;
    _Atomic uint32_t context_charged; /* bit per card */
    _Atomic int32_t cuda_cards[HCS_MAX_ORDINALS];   /* card index + 2; 0 = not asked yet */
    _Atomic int32_t ascend_cards[HCS_MAX_ORDINALS]; /* the same */
    _Atomic uint64_t primary_contexts[HCS_MAX_ORDINALS];
    struct hcs_addresses addresses;
};

/* NULL when no memory can be mapped. */
struct hcs_local *hcs_local(void);

/* Marks the thread as inside a hook. False when it already is: the driver calls itself, and was charged once. */
bool hcs_enter(void);
void hcs_leave(void);

/* ---- symbols.c: the hooked names as data ----------------------------------------------------------------------- */

enum hcs_runtime { HCS_RUNTIME_CUDA, HCS_RUNTIME_ACL, HCS_RUNTIMES };

enum hcs_symbol {
#define HOOK(runtime, name) HCS_SYM_##name,
#define NEED(runtime, name) HCS_SYM_##name,
#include "symbols.def"
#undef HOOK
#undef NEED
    HCS_SYMBOLS
};

/* The driver's own function; NULL when no driver in this process has it. */
void *hcs_real(enum hcs_symbol symbol);

/* True when name is one we replace. */
bool hcs_is_hooked(const char *name);

/* Our replacement if address is exactly a hooked function inside a driver library, else address itself. */
void *hcs_substitute(void *address);

/* Looks the drivers' functions up again; called when a program may just have loaded a driver. */
void hcs_refresh_symbols(void);

#endif
