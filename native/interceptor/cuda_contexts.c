/* CUDA contexts and the code loaded into them: device memory of which no call tells the size.
 *
 * The quota file may say what a context takes; then that is reserved before it is made. Everything else is measured: free
 * memory before and after the call. It may pass the quota once, by what it is; while more is held than the quota allows,
 * nothing of the kind is begun.
 */
#include <sched.h>
#include <stdatomic.h>

#include "cuda.h"
#include "nvml.h"
#include "pools.h"

typedef CUresult (*context_state_function)(CUdevice, unsigned int *, int *);
typedef CUresult (*device_call)(CUdevice);

/* ---- measuring --------------------------------------------------------------------------------------------------- */

static void lock_contexts(void)
{
    struct hcs_driver_state *state = cuda_state();
    uint32_t open = 0;
    while (state != NULL && !atomic_compare_exchange_weak(&state->measuring, &open, 1)) {
        open = 0;
        sched_yield();
    }
}

static void unlock_contexts(void)
{
    struct hcs_driver_state *state = cuda_state();
    if (state != NULL)
        atomic_store(&state->measuring, 0);
}

bool cuda_free_memory(uint64_t *bytes)
{
    typedef CUresult (*information_function)(size_t *, size_t *);
    ASK(information_function, ask, MemGetInfo_v2);
    size_t free_bytes, total_bytes;
    if (ask == NULL || ask(&free_bytes, &total_bytes) != CUDA_SUCCESS)
        return false;
    *bytes = free_bytes;
    return true;
}

void cuda_begin_measure(struct cuda_measure *measure, int card, bool known, uint64_t free_before)
{
    *measure = (struct cuda_measure){
        .card = card, .known = known, .free_before = free_before, .used_before = hcs_used(card)};
}

uint64_t cuda_end_measure(const struct cuda_measure *measure, bool known, uint64_t free_after)
{
    if (!known || !measure->known)
        return 0;
    int64_t shrunk = (int64_t)(measure->free_before - free_after);
    int64_t others = (int64_t)(hcs_used(measure->card) - measure->used_before);
    return shrunk > others ? (uint64_t)(shrunk - others) : 0;
}

/* Before a context there is none to ask for free memory. */
static bool free_without_context(int card, uint64_t *bytes)
{
#ifdef HCS_MUSA
    (void)card, (void)bytes;
    return false;
#else
    return hcs_nvml_free_memory(card, bytes);
#endif
}

/* ---- contexts ---------------------------------------------------------------------------------------------------- */

struct beginning {
    int card;
    uint64_t charged;
    struct cuda_measure measure;
};

static bool begin_context(struct beginning *beginning, int card)
{
    *beginning = (struct beginning){.card = card};
    if (hcs_refuses_measured(card) || !hcs_context_begin(card, &beginning->charged))
        return false;
    uint64_t before = 0;
    bool known = beginning->charged == 0 && free_without_context(card, &before);
    cuda_begin_measure(&beginning->measure, card, known, before);
    return true;
}

static void end_context(const struct beginning *beginning, bool made, CUcontext context)
{
    if (!made) {
        hcs_context_end(beginning->card, beginning->charged);
        return;
    }
    uint64_t after = 0, bytes = beginning->charged;
    if (beginning->measure.known) {
        bool known = free_without_context(beginning->card, &after);
        bytes = cuda_end_measure(&beginning->measure, known, after);
        hcs_charge_measured(beginning->card, bytes);
    }
    struct hcs_place place = {.card = beginning->card};
    hcs_book(KIND(CONTEXT), (uint64_t)(uintptr_t)context, bytes, &place);
}

static void context_died(CUcontext context)
{
    struct hcs_entry entry;
    if (context == NULL)
        return;
    if (hcs_unbook(KIND(CONTEXT), (uint64_t)(uintptr_t)context, &entry))
        hcs_context_end((int)entry.card, entry.bytes);
    hcs_forget_owned(HCS_DRIVER_RUNTIME, (uint64_t)(uintptr_t)context);
}

/* The generations of cuCtxCreate differ in what stands between context and device. */
#define CREATE_CONTEXT(...)                                                                                            \
    if (!hcs_watching())                                                                                               \
        return real(__VA_ARGS__);                                                                                      \
    struct beginning beginning;                                                                                        \
    CUresult result = CUDA_ERROR_OUT_OF_MEMORY;                                                                        \
    lock_contexts();                                                                                                   \
    if (begin_context(&beginning, cuda_card_of(device))) {                                                             \
        result = real(__VA_ARGS__);                                                                                    \
        end_context(&beginning, result == CUDA_SUCCESS, result == CUDA_SUCCESS ? *context : NULL);                     \
    }                                                                                                                  \
    unlock_contexts();                                                                                                 \
    hcs_leave();                                                                                                       \
    return result

HCS_EXPORT CUresult CU(CtxCreate_v2)(CUcontext *context, unsigned int flags, CUdevice device)
{
    REAL(CtxCreate_v2);
    CREATE_CONTEXT(context, flags, device);
}

HCS_EXPORT CUresult CU(CtxCreate)(CUcontext *context, unsigned int flags, CUdevice device)
{
    REAL(CtxCreate);
    CREATE_CONTEXT(context, flags, device);
}

HCS_EXPORT CUresult CU(CtxCreate_v3)(CUcontext *context, void *affinities, int count, unsigned int flags,
                                     CUdevice device)
{
    REAL(CtxCreate_v3);
    CREATE_CONTEXT(context, affinities, count, flags, device);
}

HCS_EXPORT CUresult CU(CtxCreate_v4)(CUcontext *context, void *parameters, unsigned int flags, CUdevice device)
{
    REAL(CtxCreate_v4);
    CREATE_CONTEXT(context, parameters, flags, device);
}

static CUresult destroy_context(CUresult (*real)(CUcontext), CUcontext context)
{
    if (!hcs_watching())
        return real(context);
    /* Under the lock: no new context can be given this one's handle before it is forgotten. */
    lock_contexts();
    CUresult result = real(context);
    if (result == CUDA_SUCCESS)
        context_died(context);
    unlock_contexts();
    hcs_pools_refresh();
    hcs_leave();
    return result;
}

HCS_EXPORT CUresult CU(CtxDestroy_v2)(CUcontext context)
{
    REAL(CtxDestroy_v2);
    return destroy_context(real, context);
}

HCS_EXPORT CUresult CU(CtxDestroy)(CUcontext context)
{
    REAL(CtxDestroy);
    return destroy_context(real, context);
}

HCS_EXPORT CUresult CU(CtxSetLimit)(int limit, size_t value)
{
    /* Stack and heap of kernels: device memory that belongs to the context. */
    REAL(CtxSetLimit);
    if (!hcs_watching())
        return real(limit, value);
    struct hcs_place place;
    CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
    if (!cuda_current_place(&place, NULL)) {
        result = real(limit, value);
    } else if (!hcs_refuses_measured(place.card)) {
        struct cuda_measure measure;
        struct hcs_entry entry;
        uint64_t before = 0, after = 0;
        lock_contexts();
        bool known = cuda_free_memory(&before);
        cuda_begin_measure(&measure, place.card, known, before);
        result = real(limit, value);
        known = cuda_free_memory(&after);
        uint64_t bytes = cuda_end_measure(&measure, known, after);
        if (bytes != 0 && hcs_unbook(KIND(CONTEXT), place.owner, &entry)) {
            hcs_charge_measured(place.card, bytes);
            hcs_book(KIND(CONTEXT), place.owner, entry.bytes + bytes, &(struct hcs_place){.card = place.card});
        }
        unlock_contexts();
    }
    hcs_leave();
    return result;
}

/* ---- primary contexts -------------------------------------------------------------------------------------------- */

static bool is_active(CUdevice device)
{
    ASK(context_state_function, get_state, DevicePrimaryCtxGetState);
    unsigned int flags;
    int active;
    return get_state != NULL && get_state(device, &flags, &active) == CUDA_SUCCESS && active;
}

HCS_EXPORT CUresult CU(DevicePrimaryCtxRetain)(CUcontext *context, CUdevice device)
{
    REAL(DevicePrimaryCtxRetain);
    if (!hcs_watching())
        return real(context, device);
    struct hcs_driver_state *state = cuda_state();
    struct beginning beginning;
    CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
    lock_contexts();
    if (is_active(device)) {
        result = real(context, device);
    } else if (begin_context(&beginning, cuda_card_of(device))) {
        result = real(context, device);
        end_context(&beginning, result == CUDA_SUCCESS, result == CUDA_SUCCESS ? *context : NULL);
    }
    if (result == CUDA_SUCCESS && state != NULL && device >= 0 && device < HCS_MAX_ORDINALS)
        atomic_store(&state->primary_contexts[device], (uint64_t)(uintptr_t)*context);
    unlock_contexts();
    hcs_leave();
    return result;
}

/* `always`: a reset frees the context's memory even while references to it are left. */
static CUresult end_primary(device_call real, CUdevice device, bool always)
{
    if (!hcs_watching())
        return real(device);
    struct hcs_driver_state *state = cuda_state();
    lock_contexts();
    CUresult result = real(device);
    if (result == CUDA_SUCCESS && state != NULL && device >= 0 && device < HCS_MAX_ORDINALS) {
        uint64_t context = atomic_load(&state->primary_contexts[device]);
        if (!is_active(device))
            context_died((CUcontext)(uintptr_t)context); // NOLINT
        else if (always)
            hcs_forget_owned(HCS_DRIVER_RUNTIME, context);
    }
    unlock_contexts();
    hcs_pools_refresh();
    cuda_refresh_graphs();
    hcs_leave();
    return result;
}

HCS_EXPORT CUresult CU(DevicePrimaryCtxRelease)(CUdevice device)
{
    REAL(DevicePrimaryCtxRelease);
    return end_primary(real, device, false);
}

HCS_EXPORT CUresult CU(DevicePrimaryCtxRelease_v2)(CUdevice device)
{
    REAL(DevicePrimaryCtxRelease_v2);
    return end_primary(real, device, false);
}

HCS_EXPORT CUresult CU(DevicePrimaryCtxReset)(CUdevice device)
{
    REAL(DevicePrimaryCtxReset);
    return end_primary(real, device, true);
}

HCS_EXPORT CUresult CU(DevicePrimaryCtxReset_v2)(CUdevice device)
{
    REAL(DevicePrimaryCtxReset_v2);
    return end_primary(real, device, true);
}

/* ---- modules, libraries, link states ------------------------------------------------------------------------------ */

struct loading {
    bool placed;
    struct hcs_place place;
    struct cuda_measure measure;
};

static bool begin_loading(struct loading *loading)
{
    loading->placed = cuda_current_place(&loading->place, NULL);
    if (!loading->placed)
        return true;
    if (hcs_refuses_measured(loading->place.card))
        return false;
    uint64_t before = 0;
    lock_contexts();
    bool known = cuda_free_memory(&before);
    cuda_begin_measure(&loading->measure, loading->place.card, known, before);
    return true;
}

static void end_loading(const struct loading *loading, bool loaded, uint32_t kind, const void *handle)
{
    if (!loading->placed)
        return;
    uint64_t after = 0;
    bool known = cuda_free_memory(&after);
    uint64_t bytes = loaded ? cuda_end_measure(&loading->measure, known, after) : 0;
    if (bytes != 0) {
        hcs_charge_measured(loading->place.card, bytes);
        hcs_book(kind, (uint64_t)(uintptr_t)handle, bytes, &loading->place);
    }
    unlock_contexts();
}

/* LOAD(kind, handle, arguments...): the measured call, as the body of a hook. */
#define LOAD(kind, handle, ...)                                                                                        \
    if (!hcs_watching())                                                                                               \
        return real(__VA_ARGS__);                                                                                      \
    struct loading loading;                                                                                            \
    CUresult result = CUDA_ERROR_OUT_OF_MEMORY;                                                                        \
    if (begin_loading(&loading)) {                                                                                     \
        result = real(__VA_ARGS__);                                                                                    \
        end_loading(&loading, result == CUDA_SUCCESS, KIND(kind), result == CUDA_SUCCESS ? (handle) : NULL);           \
    }                                                                                                                  \
    hcs_leave();                                                                                                       \
    return result

#define UNLOAD(kind, handle)                                                                                           \
    if (!hcs_watching())                                                                                               \
        return real(handle);                                                                                           \
    struct hcs_entry entry;                                                                                            \
    bool known = hcs_unbook(KIND(kind), (uint64_t)(uintptr_t)(handle), &entry);                                        \
    CUresult result = real(handle);                                                                                    \
    hcs_settle_free(result == CUDA_SUCCESS, known, &entry);                                                            \
    hcs_leave();                                                                                                       \
    return result

HCS_EXPORT CUresult CU(ModuleLoad)(CUmodule *module, const char *path)
{
    REAL(ModuleLoad);
    LOAD(MODULE, *module, module, path);
}

HCS_EXPORT CUresult CU(ModuleLoadData)(CUmodule *module, const void *image)
{
    REAL(ModuleLoadData);
    LOAD(MODULE, *module, module, image);
}

HCS_EXPORT CUresult CU(ModuleLoadDataEx)(CUmodule *module, const void *image, unsigned int count, int *options,
                                         void **values)
{
    REAL(ModuleLoadDataEx);
    LOAD(MODULE, *module, module, image, count, options, values);
}

HCS_EXPORT CUresult CU(ModuleLoadFatBinary)(CUmodule *module, const void *image)
{
    REAL(ModuleLoadFatBinary);
    LOAD(MODULE, *module, module, image);
}

HCS_EXPORT CUresult CU(ModuleUnload)(CUmodule module)
{
    REAL(ModuleUnload);
    UNLOAD(MODULE, module);
}

HCS_EXPORT CUresult CU(LibraryLoadData)(CUlibrary *library, const void *code, int *jit_options, void **jit_values,
                                        unsigned int jit_count, int *options, void **values, unsigned int count)
{
    REAL(LibraryLoadData);
    LOAD(LIBRARY, *library, library, code, jit_options, jit_values, jit_count, options, values, count);
}

HCS_EXPORT CUresult CU(LibraryLoadFromFile)(CUlibrary *library, const char *path, int *jit_options, void **jit_values,
                                            unsigned int jit_count, int *options, void **values, unsigned int count)
{
    REAL(LibraryLoadFromFile);
    LOAD(LIBRARY, *library, library, path, jit_options, jit_values, jit_count, options, values, count);
}

HCS_EXPORT CUresult CU(LibraryUnload)(CUlibrary library)
{
    REAL(LibraryUnload);
    UNLOAD(LIBRARY, library);
}

HCS_EXPORT CUresult CU(LinkComplete)(CUlinkState state, void **image, size_t *bytes)
{
    REAL(LinkComplete);
    LOAD(MODULE, state, state, image, bytes);
}

HCS_EXPORT CUresult CU(LinkDestroy)(CUlinkState state)
{
    REAL(LinkDestroy);
    UNLOAD(MODULE, state);
}
