/* libhcs_interceptor.so: the contract.
 *
 * Preloaded into every program of a container that has a share of a card, it keeps the container's device memory within
 * the quota of its quota file (docs/quota-file.md), on every road into the driver that can be closed
 * (docs/interceptor.md): NVIDIA's CUDA driver, Ascend's AscendCL and the runtime below it, Cambricon's CNDrv, Moore
 * Threads' MUSA driver. For HIP (AMD, Hygon DTK) the same sources make an audit library, libhcs_audit.so.
 *
 *   - An allocation that would exceed the quota gets the driver's own out-of-memory code and never reaches the driver.
 *     An allocation of exactly the quota succeeds.
 *   - What can only be measured afterwards (contexts without a known overhead, modules, graph memory) may pass the quota
 *     once; from then on everything is refused until enough is free.
 *   - With a broken or missing quota file, or a ledger that cannot be used, every charging call is refused (fail closed),
 *     with one line on standard error; an administrator may choose the opposite.
 *   - All processes of the container share one ledger; bytes are reserved there by one atomic compare-and-add before
 *     the driver is asked, and given back if the driver refuses.
 *   - Bytes are charged once, at the lowest level that was called, and given back once, when the memory is really gone.
 *   - A card is known by UUID, PCI address or physical id, never by ordinal. A card that the file does not name has no
 *     quota, so nothing can be allocated on it.
 *   - What is unknown passes through unchanged: unknown symbols, unknown pointers, memory that is not on a device,
 *     memory of a peer that was imported.
 *   - Nothing here writes to standard output, exits, sleeps, or allocates with malloc. Kernel launches are not hooked.
 *
 * Roads into the driver: (a) direct linking: we export the driver's names; (b) dlopen and dlsym: dlsym is interposed;
 * (c) cuGetProcAddress and its like: the driver answers first, and only an exact address match is replaced; (d) export
 * tables are left alone; (e) the runtime library ends in the driver, by one of these roads.
 */
#ifndef HCS_INTERCEPTOR_H
#define HCS_INTERCEPTOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "../common/addresses.h"

#ifdef HCS_AUDIT
#define HCS_EXPORT __attribute__((visibility("hidden"))) /* an audit library hands its functions out by address */
#else
#define HCS_EXPORT __attribute__((visibility("default")))
#endif

/* ---- limits.c: quota file and ledger together ------------------------------------------------------------------ */

enum hcs_mode {
    HCS_MODE_UNKNOWN = 0,
    HCS_MODE_PASS_THROUGH = 1, /* failing open was chosen, and there is no usable quota file */
    HCS_MODE_ENFORCE = 2,
    HCS_MODE_REFUSE = 3, /* quota file or ledger unusable: refuse every charge */
};

/* Reads the quota file at the first call of the process. */
enum hcs_mode hcs_mode(void);

/* Says on standard error, once, why nothing can be allocated, where that is known already. For a driver's start. */
void hcs_announce_problem(void);

enum { HCS_CARD_UNLISTED = -1 };

/* Reserves bytes for this process on the card; false means: answer "out of memory". */
bool hcs_charge(int card, uint64_t bytes);
/* The same without the slow way before a refusal: no reclaiming, no looking into pools. */
bool hcs_try_charge(int card, uint64_t bytes);
/* Books what was measured afterwards, beyond the quota if need be. */
void hcs_charge_measured(int card, uint64_t bytes);
void hcs_uncharge(int card, uint64_t bytes);

/* True when the container holds more than its quota, or may hold nothing: refuse what can only be measured afterwards. */
bool hcs_refuses_measured(int card);

/* Bytes all processes of the container hold on the card, as the ledger has them now. */
uint64_t hcs_used(int card);

/* The memory of a context. begin: charges the overhead of the quota file, false where it does not fit; *charged tells how
 * much it was (0: the file does not know; measure). A process whose contexts were never seen to begin is charged for one
 * with its first allocation. */
bool hcs_context_begin(int card, uint64_t *charged);
void hcs_context_end(int card, uint64_t charged);

/* Makes the driver's figures agree with the quota: total = min(quota, physical), free = min(quota - used, physical
 * free), never below zero. */
void hcs_clamp(int card, size_t *free_bytes, size_t *total_bytes);

/* The processes of the container that hold memory on the card, in no order: writes at most `room` of them and returns
 * how many there are. */
struct hcs_holder {
    uint32_t pid;
    uint64_t bytes;
};
uint32_t hcs_holders(int card, struct hcs_holder *holders, uint32_t room);

/* ---- cards.c: index of a card in the quota file, or HCS_CARD_UNLISTED ------------------------------------------- */

/* uuid is the 16 raw bytes; `prefixes` names the words that may stand before it in the file, separated by blanks. */
int hcs_card_of_uuid(const char *vendor, const char *prefixes, const unsigned char uuid[16]);
int hcs_card_of_uuid_text(const char *vendor, const char *uuid);
int hcs_card_of_bus_id(const char *vendor, const char *bus_id);
int hcs_card_of_physical_id(const char *vendor, int64_t physical_id);

/* ---- symbols.c: the hooked names as data ----------------------------------------------------------------------- */

enum hcs_runtime {
    HCS_RUNTIME_CUDA,
    HCS_RUNTIME_NVML,
    HCS_RUNTIME_ASCEND, /* AscendCL and the runtime below it */
    HCS_RUNTIME_CNDRV,
    HCS_RUNTIME_MUSA,
    HCS_RUNTIME_HIP,
    HCS_RUNTIMES,
};

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

/* True for the file name of a library that is a driver. */
bool hcs_is_driver(const char *soname);

/* Takes the functions of a driver from a loaded object, if its name is a driver's; true where it is. */
struct hcs_object;
bool hcs_take_driver(const struct hcs_object *object);

/* ---- local.c: state of this process; zeroed again in a forked child -------------------------------------------- */

enum { HCS_MAX_ORDINALS = 64, HCS_MAX_POOLS = 256, HCS_MAX_LISTED = 32 };

struct hcs_slot;
struct hcs_pool_driver;

/* A pool of stream-ordered memory, see pools.h. */
struct hcs_pool {
    _Atomic uint64_t handle; /* 0: this place is free */
    _Atomic uint32_t lock;
    int32_t card;
    uint32_t runtime;
    bool destroyed; /* its memory lives on until its last pointer is freed */
    const struct hcs_pool_driver *driver;
    uint64_t charged;     /* bytes of its reserved memory that the ledger has */
    uint64_t ahead;       /* bytes reserved in the ledger for calls under way */
    uint64_t outstanding; /* and what those calls may take */
    uint64_t calls;       /* how many they are, with those that reserved nothing */
    _Atomic uint64_t live; /* bytes behind pointers that are not freed yet */
};

/* What one CUDA-like driver has taught us. */
struct hcs_driver_state {
    _Atomic int32_t cards[HCS_MAX_ORDINALS]; /* card index + 2; 0 = not asked yet */
    _Atomic uint64_t primary_contexts[HCS_MAX_ORDINALS];
    _Atomic uint32_t measuring; /* lock: one measurement at a time */
    _Atomic uint64_t graph_ordinals; /* bit per ordinal whose graphs may own memory */
    uint64_t graph_charged[HCS_MAX_ORDINALS];
};

struct hcs_local {
    _Atomic(struct hcs_slot *) slot;
    _Atomic uint32_t claim_lock;
    _Atomic uint32_t contexts[HCS_MAX_LISTED]; /* contexts charged, per card */
    _Atomic uint64_t next_physical;
    _Atomic bool pools_dirty; /* memory was freed into a pool: it may shrink at the next synchronisation */
    struct hcs_driver_state drivers[HCS_RUNTIMES];
    struct hcs_pool pools[HCS_MAX_POOLS];
    struct hcs_addresses addresses;
};

/* NULL when no memory can be mapped. */
struct hcs_local *hcs_local(void);

/* Marks the thread as inside a hook. False when it already is: the driver calls itself, and was charged once. */
bool hcs_enter(void);
void hcs_leave(void);

/* True when this call is the outermost one and a quota has a say: then hcs_leave() must follow. */
static inline bool hcs_watching(void)
{
    return hcs_mode() != HCS_MODE_PASS_THROUGH && hcs_enter();
}

#endif
