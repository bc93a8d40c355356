/* The CUDA driver API. Accounting happens here, at the driver, and nowhere above it: the runtime, PyTorch's allocator
 * and everything else end in these calls. Signatures as in NVIDIA's cuda.h. */
#include <stdatomic.h>
#include <string.h>

#include "interceptor.h"

/* REAL(name): the driver's own function, typed like ours, as the variable `real`. */
#define REAL(name)                                                                                                     \
    __typeof__(&name) real = (__typeof__(&name))hcs_real(HCS_SYM_##name);                                              \
    if (real == NULL)                                                                                                  \
    return CUDA_ERROR_NOT_INITIALIZED

typedef CUresult (*get_context_function)(CUcontext *);
typedef CUresult (*get_device_function)(CUdevice *);
typedef CUresult (*push_function)(CUcontext);
typedef CUresult (*stream_context_function)(CUstream, CUcontext *);
typedef CUresult (*uuid_function)(CUuuid *, CUdevice);
typedef CUresult (*bus_id_function)(char *, int, CUdevice);
typedef CUresult (*context_state_function)(CUdevice, unsigned int *, int *);

/* Streams 0, 1 and 2 are the default streams: of the current context. */
enum { LAST_DEFAULT_STREAM = 2 };

static bool watching(void)
{
    return hcs_mode() != HCS_MODE_PASS_THROUGH && hcs_enter();
}

/* ---- which card -------------------------------------------------------------------------------------------------- */

static int ask_card_of(CUdevice device)
{
    CUuuid uuid;
    uuid_function get_uuid = (uuid_function)hcs_real(HCS_SYM_cuDeviceGetUuid_v2);
    if (get_uuid == NULL) /* before CUDA 11.4; the newer one knows MIG instances */
        get_uuid = (uuid_function)hcs_real(HCS_SYM_cuDeviceGetUuid);
    if (get_uuid != NULL && get_uuid(&uuid, device) == CUDA_SUCCESS) {
        int card = hcs_card_of_uuid(uuid.bytes);
        if (card != HCS_CARD_UNLISTED)
            return card;
    }
    char bus_id[32];
    bus_id_function get_bus_id = (bus_id_function)hcs_real(HCS_SYM_cuDeviceGetPCIBusId);
    if (get_bus_id != NULL && get_bus_id(bus_id, sizeof bus_id, device) == CUDA_SUCCESS)
        return hcs_card_of_bus_id(bus_id);
    return HCS_CARD_UNLISTED;
}

static int card_of(CUdevice device)
{
    struct hcs_local *local = hcs_local();
    if (local == NULL || device < 0 || device >= HCS_MAX_ORDINALS)
        return ask_card_of(device);
    int known = atomic_load_explicit(&local->cuda_cards[device], memory_order_relaxed);
    if (known == 0) {
        known = ask_card_of(device) + 2;
        atomic_store(&local->cuda_cards[device], known);
    }
    return known - 2;
}

struct place {
    int card;
    CUcontext context;
};

/* The current context and its card; false when there is none, and the driver may say so itself. */
static bool current_place(struct place *place)
{
    get_context_function get_context = (get_context_function)hcs_real(HCS_SYM_cuCtxGetCurrent);
    get_device_function get_device = (get_device_function)hcs_real(HCS_SYM_cuCtxGetDevice);
    CUdevice device;
    if (get_context == NULL || get_device == NULL || get_context(&place->context) != CUDA_SUCCESS ||
        place->context == NULL || get_device(&device) != CUDA_SUCCESS)
        return false;
    place->card = card_of(device);
    return true;
}

/* The place of a stream, which need not belong to the current context. */
static bool place_of_stream(CUstream stream, struct place *place)
{
    stream_context_function stream_context = (stream_context_function)hcs_real(HCS_SYM_cuStreamGetCtx);
    push_function push = (push_function)hcs_real(HCS_SYM_cuCtxPushCurrent_v2);
    get_context_function pop = (get_context_function)hcs_real(HCS_SYM_cuCtxPopCurrent_v2);
    CUcontext context;
    bool known = current_place(place);
    if ((uintptr_t)stream <= LAST_DEFAULT_STREAM || stream_context == NULL || push == NULL || pop == NULL ||
        stream_context(stream, &context) != CUDA_SUCCESS || (known && context == place->context))
        return known;
    if (push(context) != CUDA_SUCCESS)
        return known;
    known = current_place(place);
    pop(&context);
    return known;
}

/* ---- the books --------------------------------------------------------------------------------------------------- */

static bool book(enum hcs_kind kind, uint64_t key, uint64_t bytes, const struct place *place)
{
    struct hcs_local *local = hcs_local();
    struct hcs_entry entry = {.key = key,
                              .bytes = bytes,
                              .owner = (uint64_t)(uintptr_t)place->context,
                              .card = (uint32_t)place->card,
                              .kind = kind};
    return local != NULL && hcs_addresses_put(&local->addresses, &entry);
}

/* After the driver allocated, or not: book it, or give the reservation back. `undo` frees what cannot be booked. */
static CUresult settle(CUresult result, enum hcs_kind kind, uint64_t key, uint64_t bytes, const struct place *place,
                       CUresult (*undo)(unsigned long long))
{
    if (result == CUDA_SUCCESS && book(kind, key, bytes, place))
        return result;
    if (result == CUDA_SUCCESS) {
        undo(key);
        result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    hcs_uncharge(place->card, bytes);
    return result;
}

HCS_EXPORT CUresult cuMemFree_v2(CUdeviceptr pointer);
HCS_EXPORT CUresult cuMemRelease(CUmemGenericAllocationHandle handle);

/* Inside a hook these go straight to the driver. */
static CUresult free_pointer(unsigned long long pointer)
{
    return cuMemFree_v2(pointer);
}

static CUresult release_handle(unsigned long long handle)
{
    return cuMemRelease(handle);
}

/* Takes an entry out before the driver frees it: the moment it is free, another thread may be given the same
 * address. */
static bool unbook(enum hcs_kind kind, uint64_t key, struct hcs_entry *entry)
{
    struct hcs_local *local = hcs_local();
    return local != NULL && hcs_addresses_take(&local->addresses, kind, key, entry);
}

static void finish_free(CUresult result, bool known, const struct hcs_entry *entry)
{
    if (!known)
        return;
    if (result == CUDA_SUCCESS)
        hcs_uncharge((int)entry->card, entry->bytes);
    else
        hcs_addresses_put(&hcs_local()->addresses, entry);
}

/* A context has died, and its memory with it. */
static void forget_context(CUcontext context, int card)
{
    struct hcs_local *local = hcs_local();
    struct hcs_entry entry;
    if (local == NULL || context == NULL || card < 0)
        return;
    while (hcs_addresses_take_owned(&local->addresses, (uint32_t)card, (uint64_t)(uintptr_t)context, &entry))
        hcs_uncharge(card, entry.bytes);
}

/* ---- allocation and release -------------------------------------------------------------------------------------- */

HCS_EXPORT CUresult cuMemAlloc_v2(CUdeviceptr *pointer, size_t bytes)
{
    REAL(cuMemAlloc_v2);
    if (!watching())
        return real(pointer, bytes);
    struct place place;
    uint64_t taken = hcs_cuda_taken(bytes);
    CUresult result;
    if (!current_place(&place))
        result = real(pointer, bytes);
    else if (!hcs_charge(place.card, taken))
        result = CUDA_ERROR_OUT_OF_MEMORY;
    else {
        result = real(pointer, bytes);
        result = settle(result, HCS_KIND_POINTER, result == CUDA_SUCCESS ? *pointer : 0, taken, &place, free_pointer);
    }
    hcs_leave();
    return result;
}

HCS_EXPORT CUresult cuMemAllocManaged(CUdeviceptr *pointer, size_t bytes, unsigned int flags)
{
    /* Charged in full: all of it may become resident. */
    REAL(cuMemAllocManaged);
    if (!watching())
        return real(pointer, bytes, flags);
    struct place place;
    uint64_t taken = hcs_cuda_taken(bytes);
    CUresult result;
    if (!current_place(&place))
        result = real(pointer, bytes, flags);
    else if (!hcs_charge(place.card, taken))
        result = CUDA_ERROR_OUT_OF_MEMORY;
    else {
        result = real(pointer, bytes, flags);
        result = settle(result, HCS_KIND_POINTER, result == CUDA_SUCCESS ? *pointer : 0, taken, &place, free_pointer);
    }
    hcs_leave();
    return result;
}

HCS_EXPORT CUresult cuMemAllocPitch_v2(CUdeviceptr *pointer, size_t *pitch, size_t width, size_t height,
                                       unsigned int element_bytes)
{
    REAL(cuMemAllocPitch_v2);
    if (!watching())
        return real(pointer, pitch, width, height, element_bytes);
    struct place place;
    uint64_t least;
    CUresult result;
    if (!current_place(&place) || __builtin_mul_overflow((uint64_t)width, (uint64_t)height, &least))
        result = real(pointer, pitch, width, height, element_bytes);
    else if (!hcs_charge(place.card, hcs_cuda_taken(least)))
        result = CUDA_ERROR_OUT_OF_MEMORY;
    else {
        /* The pitch is the driver's choice: reserve the least it can be, then the difference. */
        uint64_t charged = hcs_cuda_taken(least);
        result = real(pointer, pitch, width, height, element_bytes);
        if (result == CUDA_SUCCESS) {
            uint64_t taken = hcs_cuda_taken((uint64_t)*pitch * height);
            if (taken > charged && hcs_charge(place.card, taken - charged)) {
                charged = taken;
            } else if (taken > charged) {
                free_pointer(*pointer);
                result = CUDA_ERROR_OUT_OF_MEMORY;
            }
        }
        result =
            settle(result, HCS_KIND_POINTER, result == CUDA_SUCCESS ? *pointer : 0, charged, &place, free_pointer);
    }
    hcs_leave();
    return result;
}

HCS_EXPORT CUresult cuMemFree_v2(CUdeviceptr pointer)
{
    REAL(cuMemFree_v2);
    if (!watching())
        return real(pointer);
    struct hcs_entry entry;
    bool known = unbook(HCS_KIND_POINTER, pointer, &entry);
    CUresult result = real(pointer); /* unknown pointers too: the driver knows better */
    finish_free(result, known, &entry);
    hcs_leave();
    return result;
}

typedef CUresult (*alloc_async_function)(CUdeviceptr *, size_t, CUstream);
typedef CUresult (*free_async_function)(CUdeviceptr, CUstream);

static CUresult alloc_async(alloc_async_function real, CUdeviceptr *pointer, size_t bytes, CUstream stream)
{
    if (!watching())
        return real(pointer, bytes, stream);
    struct place place;
    uint64_t taken = hcs_cuda_taken(bytes);
    CUresult result;
    if (!place_of_stream(stream, &place))
        result = real(pointer, bytes, stream);
    else if (!hcs_charge(place.card, taken))
        result = CUDA_ERROR_OUT_OF_MEMORY;
    else {
        result = real(pointer, bytes, stream);
        result = settle(result, HCS_KIND_POINTER, result == CUDA_SUCCESS ? *pointer : 0, taken, &place, free_pointer);
    }
    hcs_leave();
    return result;
}

static CUresult free_async(free_async_function real, CUdeviceptr pointer, CUstream stream)
{
    if (!watching())
        return real(pointer, stream);
    struct hcs_entry entry;
    bool known = unbook(HCS_KIND_POINTER, pointer, &entry);
    CUresult result = real(pointer, stream);
    finish_free(result, known, &entry);
    hcs_leave();
    return result;
}

HCS_EXPORT CUresult cuMemAllocAsync(CUdeviceptr *pointer, size_t bytes, CUstream stream)
{
    REAL(cuMemAllocAsync);
    return alloc_async(real, pointer, bytes, stream);
}

HCS_EXPORT CUresult cuMemAllocAsync_ptsz(CUdeviceptr *pointer, size_t bytes, CUstream stream)
{
    REAL(cuMemAllocAsync_ptsz);
    return alloc_async(real, pointer, bytes, stream);
}

HCS_EXPORT CUresult cuMemFreeAsync(CUdeviceptr pointer, CUstream stream)
{
    REAL(cuMemFreeAsync);
    return free_async(real, pointer, stream);
}

HCS_EXPORT CUresult cuMemFreeAsync_ptsz(CUdeviceptr pointer, CUstream stream)
{
    REAL(cuMemFreeAsync_ptsz);
    return free_async(real, pointer, stream);
}

HCS_EXPORT CUresult cuMemCreate(CUmemGenericAllocationHandle *handle, size_t bytes,
                                const CUmemAllocationProp *properties, unsigned long long flags)
{
    REAL(cuMemCreate);
    /* Physical memory lies where the properties say, whatever context is current; host memory is free of charge. */
    if (properties == NULL || properties->location.type != CU_MEM_LOCATION_TYPE_DEVICE || !watching())
        return real(handle, bytes, properties, flags);
    struct place place = {.card = card_of(properties->location.id)};
    CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
    if (hcs_charge(place.card, bytes)) {
        result = real(handle, bytes, properties, flags);
        result = settle(result, HCS_KIND_HANDLE, result == CUDA_SUCCESS ? *handle : 0, bytes, &place, release_handle);
    }
    hcs_leave();
    return result;
}

HCS_EXPORT CUresult cuMemRelease(CUmemGenericAllocationHandle handle)
{
    REAL(cuMemRelease);
    if (!watching())
        return real(handle);
    struct hcs_entry entry;
    bool known = unbook(HCS_KIND_HANDLE, handle, &entry);
    CUresult result = real(handle);
    finish_free(result, known, &entry);
    hcs_leave();
    return result;
}

/* ---- questions --------------------------------------------------------------------------------------------------- */

HCS_EXPORT CUresult cuMemGetInfo_v2(size_t *free_bytes, size_t *total_bytes)
{
    REAL(cuMemGetInfo_v2);
    if (!watching())
        return real(free_bytes, total_bytes);
    struct place place;
    CUresult result = real(free_bytes, total_bytes);
    if (result == CUDA_SUCCESS && current_place(&place))
        hcs_clamp(place.card, free_bytes, total_bytes);
    hcs_leave();
    return result;
}

HCS_EXPORT CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device)
{
    REAL(cuDeviceTotalMem_v2);
    if (!watching())
        return real(bytes, device);
    CUresult result = real(bytes, device);
    if (result == CUDA_SUCCESS) {
        size_t free_bytes = *bytes;
        hcs_clamp(card_of(device), &free_bytes, bytes);
    }
    hcs_leave();
    return result;
}

/* ---- contexts: their death frees everything in them -------------------------------------------------------------- */

HCS_EXPORT CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device)
{
    REAL(cuDevicePrimaryCtxRetain);
    if (!watching())
        return real(context, device);
    CUresult result = real(context, device);
    struct hcs_local *local = hcs_local();
    if (result == CUDA_SUCCESS && local != NULL && device >= 0 && device < HCS_MAX_ORDINALS)
        atomic_store(&local->primary_contexts[device], (uint64_t)(uintptr_t)*context);
    hcs_leave();
    return result;
}

typedef CUresult (*device_function)(CUdevice);

static void forget_primary_context(CUdevice device)
{
    struct hcs_local *local = hcs_local();
    if (local != NULL && device >= 0 && device < HCS_MAX_ORDINALS)
        forget_context((CUcontext)(uintptr_t)atomic_load(&local->primary_contexts[device]), card_of(device)); // NOLINT
}

static CUresult release_primary(device_function real, CUdevice device)
{
    if (!watching())
        return real(device);
    CUresult result = real(device);
    context_state_function get_state = (context_state_function)hcs_real(HCS_SYM_cuDevicePrimaryCtxGetState);
    unsigned int flags;
    int active;
    if (result == CUDA_SUCCESS && get_state != NULL && get_state(device, &flags, &active) == CUDA_SUCCESS && !active)
        forget_primary_context(device); /* that was the last reference */
    hcs_leave();
    return result;
}

static CUresult reset_primary(device_function real, CUdevice device)
{
    if (!watching())
        return real(device);
    CUresult result = real(device);
    if (result == CUDA_SUCCESS)
        forget_primary_context(device);
    hcs_leave();
    return result;
}

HCS_EXPORT CUresult cuDevicePrimaryCtxRelease(CUdevice device)
{
    REAL(cuDevicePrimaryCtxRelease);
    return release_primary(real, device);
}

HCS_EXPORT CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device)
{
    REAL(cuDevicePrimaryCtxRelease_v2);
    return release_primary(real, device);
}

HCS_EXPORT CUresult cuDevicePrimaryCtxReset(CUdevice device)
{
    REAL(cuDevicePrimaryCtxReset);
    return reset_primary(real, device);
}

HCS_EXPORT CUresult cuDevicePrimaryCtxReset_v2(CUdevice device)
{
    REAL(cuDevicePrimaryCtxReset_v2);
    return reset_primary(real, device);
}

HCS_EXPORT CUresult cuCtxDestroy_v2(CUcontext context)
{
    REAL(cuCtxDestroy_v2);
    if (!watching())
        return real(context);
    /* Ask for the card while the context still lives. */
    struct place place = {.card = HCS_CARD_UNLISTED};
    push_function push = (push_function)hcs_real(HCS_SYM_cuCtxPushCurrent_v2);
    get_context_function pop = (get_context_function)hcs_real(HCS_SYM_cuCtxPopCurrent_v2);
    bool known = false;
    if (push != NULL && pop != NULL && context != NULL && push(context) == CUDA_SUCCESS) {
        CUcontext popped;
        known = current_place(&place);
        pop(&popped);
    }
    CUresult result = real(context);
    if (result == CUDA_SUCCESS && known)
        forget_context(context, place.card);
    hcs_leave();
    return result;
}

/* ---- road (c) ---------------------------------------------------------------------------------------------------- */

/* The driver answers with the caller's version and flags; only what it would have handed out is exchanged. So a request
 * for another ABI version, or for a name it does not have, gets the driver's own answer. */
static void exchange(CUresult result, void **function)
{
    if (result != CUDA_SUCCESS || function == NULL)
        return;
    hcs_refresh_symbols();
    *function = hcs_substitute(*function);
}

HCS_EXPORT CUresult cuGetProcAddress(const char *name, void **function, int version, uint64_t flags)
{
    REAL(cuGetProcAddress);
    if (!watching())
        return real(name, function, version, flags);
    CUresult result = real(name, function, version, flags);
    exchange(result, function);
    hcs_leave();
    return result;
}

HCS_EXPORT CUresult cuGetProcAddress_v2(const char *name, void **function, int version, uint64_t flags, int *status)
{
    REAL(cuGetProcAddress_v2);
    if (!watching())
        return real(name, function, version, flags, status);
    CUresult result = real(name, function, version, flags, status);
    exchange(result, function);
    hcs_leave();
    return result;
}
