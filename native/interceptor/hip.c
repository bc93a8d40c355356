/* HIP (AMD, Hygon DTK), for the audit library: functions that the loader binds in the place of HIP's own, between
 * libraries only, so that HIP's calls of itself never come here. A card is known by its UUID (the text that HIP keeps in
 * it) or by PCI address. Signatures as in AMD's public hip_runtime_api.h. HIP has no context of its own: what dies with a
 * device reset is kept under the device. */
#include "../common/hip_abi.h"

#include <stdatomic.h>
#include <string.h>

#include "books.h"
#include "interceptor.h"
#include "pools.h"

#define REAL(name)                                                                                                     \
    __typeof__(&name) real = (__typeof__(&name))hcs_real(HCS_SYM_##name);                                              \
    if (real == NULL)                                                                                                  \
    return hipErrorNotInitialized

#define ASK(type, variable, name) type variable = (type)hcs_real(HCS_SYM_##name)

#define HIP_KIND(kind) HCS_KIND(HCS_RUNTIME_HIP, HCS_KIND_##kind)

enum { BUS_ID_BYTES = 32 };

static int ask_card_of(int device)
{
    typedef hipError_t (*uuid_function)(hipUUID *, int);
    typedef hipError_t (*bus_id_function)(char *, int, int);
    static const char *const vendors[] = {"amd", "hygon"};
    ASK(uuid_function, get_uuid, hipDeviceGetUuid);
    ASK(bus_id_function, get_bus_id, hipDeviceGetPCIBusId);
    hipUUID uuid;
    char text[4 + sizeof uuid.bytes + 1] = "GPU-", bus_id[BUS_ID_BYTES] = "";
    bool has_uuid = get_uuid != NULL && get_uuid(&uuid, device) == hipSuccess;
    if (has_uuid)
        memcpy(text + 4, uuid.bytes, sizeof uuid.bytes);
    bool has_bus_id = get_bus_id != NULL && get_bus_id(bus_id, sizeof bus_id, device) == hipSuccess;
    for (size_t vendor = 0; vendor < sizeof vendors / sizeof *vendors; vendor++) {
        int card = has_uuid ? hcs_card_of_uuid_text(vendors[vendor], text) : HCS_CARD_UNLISTED;
        if (card == HCS_CARD_UNLISTED && has_bus_id)
            card = hcs_card_of_bus_id(vendors[vendor], bus_id);
        if (card != HCS_CARD_UNLISTED)
            return card;
    }
    return HCS_CARD_UNLISTED;
}

static int card_of(int device)
{
    struct hcs_local *local = hcs_local();
    if (local == NULL || device < 0 || device >= HCS_MAX_ORDINALS)
        return ask_card_of(device);
    _Atomic int32_t *cards = local->drivers[HCS_RUNTIME_HIP].cards;
    int known = atomic_load_explicit(&cards[device], memory_order_relaxed);
    if (known == 0) {
        known = ask_card_of(device) + 2;
        atomic_store(&cards[device], known);
    }
    return known - 2;
}

static struct hcs_place place_of(int device)
{
    return (struct hcs_place){.card = card_of(device), .owner = (uint64_t)device + 1};
}

static bool current_device(int *device)
{
    typedef hipError_t (*function)(int *);
    ASK(function, get, hipGetDevice);
    return get != NULL && get(device) == hipSuccess;
}

HCS_EXPORT hipError_t hipInit(unsigned int flags)
{
    REAL(hipInit);
    hcs_announce_problem();
    return real(flags);
}

/* ---- memory behind a pointer, and arrays -------------------------------------------------------------------------- */

static hipError_t release(enum hcs_symbol symbol, void *handle)
{
    typedef hipError_t (*function)(void *);
    function real = (function)hcs_real(symbol);
    return real != NULL ? real(handle) : hipErrorNotInitialized;
}

/* ALLOCATE(kind, pointer, taken, free, arguments...): the body of a hook that allocates. */
#define ALLOCATE(kind, pointer, taken, free, ...)                                                                      \
    if (!hcs_watching())                                                                                               \
        return real(__VA_ARGS__);                                                                                      \
    int device;                                                                                                        \
    hipError_t result = hipErrorOutOfMemory;                                                                           \
    if (!current_device(&device)) {                                                                                    \
        result = real(__VA_ARGS__);                                                                                    \
    } else {                                                                                                           \
        struct hcs_place place = place_of(device);                                                                     \
        uint64_t bytes_taken = (taken);                                                                                \
        if (hcs_charge(place.card, bytes_taken)) {                                                                     \
            result = real(__VA_ARGS__);                                                                                \
            bool ok = result == hipSuccess;                                                                            \
            if (!hcs_settle(ok, HIP_KIND(kind), ok ? (uint64_t)(uintptr_t)*(pointer) : 0, bytes_taken, &place)) {      \
                release(HCS_SYM_##free, *(pointer));                                                                   \
                result = hipErrorOutOfMemory;                                                                          \
            }                                                                                                          \
        }                                                                                                              \
    }                                                                                                                  \
    hcs_leave();                                                                                                       \
    return result

HCS_EXPORT hipError_t hipMalloc(void **pointer, size_t bytes)
{
    REAL(hipMalloc);
    ALLOCATE(POINTER, pointer, hcs_hip_taken(bytes), hipFree, pointer, bytes);
}

HCS_EXPORT hipError_t hipExtMallocWithFlags(void **pointer, size_t bytes, unsigned int flags)
{
    REAL(hipExtMallocWithFlags);
    ALLOCATE(POINTER, pointer, hcs_hip_taken(bytes), hipFree, pointer, bytes, flags);
}

HCS_EXPORT hipError_t hipMallocManaged(void **pointer, size_t bytes, unsigned int flags)
{
    REAL(hipMallocManaged);
    ALLOCATE(POINTER, pointer, hcs_hip_taken(bytes), hipFree, pointer, bytes, flags);
}

/* The pitch is the driver's choice: reserve the least it can be, then the difference. */
static hipError_t settle_pitched(hipError_t result, void **pointer, uint64_t rows, const size_t *pitch,
                                 uint64_t charged, const struct hcs_place *place)
{
    bool ok = result == hipSuccess;
    if (ok) {
        uint64_t taken = hcs_hip_taken((uint64_t)*pitch * rows);
        if (taken > charged && !hcs_charge(place->card, taken - charged)) {
            release(HCS_SYM_hipFree, *pointer);
            result = hipErrorOutOfMemory;
            ok = false;
        } else if (taken > charged) {
            charged = taken;
        }
    }
    if (hcs_settle(ok, HIP_KIND(POINTER), ok ? (uint64_t)(uintptr_t)*pointer : 0, charged, place))
        return result;
    release(HCS_SYM_hipFree, *pointer);
    return hipErrorOutOfMemory;
}

#define PITCHED(pointer, pitch, width, rows, ...)                                                                      \
    if (!hcs_watching())                                                                                               \
        return real(__VA_ARGS__);                                                                                      \
    int device;                                                                                                        \
    uint64_t least;                                                                                                    \
    hipError_t result = hipErrorOutOfMemory;                                                                           \
    if (!current_device(&device) || __builtin_mul_overflow((uint64_t)(width), (uint64_t)(rows), &least)) {             \
        result = real(__VA_ARGS__);                                                                                    \
    } else {                                                                                                           \
        struct hcs_place place = place_of(device);                                                                     \
        if (hcs_charge(place.card, hcs_hip_taken(least))) {                                                            \
            result = real(__VA_ARGS__);                                                                                \
            result = settle_pitched(result, pointer, rows, pitch, hcs_hip_taken(least), &place);                       \
        }                                                                                                              \
    }                                                                                                                  \
    hcs_leave();                                                                                                       \
    return result

HCS_EXPORT hipError_t hipMallocPitch(void **pointer, size_t *pitch, size_t width, size_t height)
{
    REAL(hipMallocPitch);
    PITCHED(pointer, pitch, width, height, pointer, pitch, width, height);
}

HCS_EXPORT hipError_t hipMemAllocPitch(void **pointer, size_t *pitch, size_t width, size_t height,
                                       unsigned int element_bytes)
{
    REAL(hipMemAllocPitch);
    PITCHED(pointer, pitch, width, height, pointer, pitch, width, height, element_bytes);
}

HCS_EXPORT hipError_t hipMalloc3D(hipPitchedPtr *pitched, hipExtent extent)
{
    REAL(hipMalloc3D);
    PITCHED(&pitched->ptr, &pitched->pitch, extent.width, extent.height *extent.depth, pitched, extent);
}

HCS_EXPORT hipError_t hipMallocArray(hipArray_t *array, const hipChannelFormatDesc *channels, size_t width,
                                     size_t height, unsigned int flags)
{
    REAL(hipMallocArray);
    if (channels == NULL)
        return real(array, channels, width, height, flags);
    ALLOCATE(ARRAY, array, hcs_hip_array_taken(hcs_hip_element(channels), (hipExtent){width, height, 1}, 1),
             hipFreeArray, array, channels, width, height, flags);
}

HCS_EXPORT hipError_t hipMalloc3DArray(hipArray_t *array, const hipChannelFormatDesc *channels, hipExtent extent,
                                       unsigned int flags)
{
    REAL(hipMalloc3DArray);
    if (channels == NULL)
        return real(array, channels, extent, flags);
    ALLOCATE(ARRAY, array, hcs_hip_array_taken(hcs_hip_element(channels), extent, 1), hipFreeArray, array, channels,
             extent, flags);
}

HCS_EXPORT hipError_t hipArrayCreate(hipArray_t *array, const HIP_ARRAY_DESCRIPTOR *wanted)
{
    REAL(hipArrayCreate);
    if (wanted == NULL)
        return real(array, wanted);
    ALLOCATE(ARRAY, array,
             hcs_hip_array_taken(hcs_hip_format_bytes(wanted->Format, wanted->NumChannels),
                                 (hipExtent){wanted->Width, wanted->Height, 1}, 1),
             hipArrayDestroy, array, wanted);
}

HCS_EXPORT hipError_t hipArray3DCreate(hipArray_t *array, const HIP_ARRAY3D_DESCRIPTOR *wanted)
{
    REAL(hipArray3DCreate);
    if (wanted == NULL)
        return real(array, wanted);
    ALLOCATE(ARRAY, array,
             hcs_hip_array_taken(hcs_hip_format_bytes(wanted->Format, wanted->NumChannels),
                                 (hipExtent){wanted->Width, wanted->Height, wanted->Depth}, 1),
             hipArrayDestroy, array, wanted);
}

HCS_EXPORT hipError_t hipMallocMipmappedArray(hipArray_t *array, const hipChannelFormatDesc *channels,
                                              hipExtent extent, unsigned int levels, unsigned int flags)
{
    REAL(hipMallocMipmappedArray);
    if (channels == NULL)
        return real(array, channels, extent, levels, flags);
    ALLOCATE(ARRAY, array, hcs_hip_array_taken(hcs_hip_element(channels), extent, levels), hipFreeMipmappedArray, array,
             channels, extent, levels, flags);
}

#define FREE(kind, handle)                                                                                             \
    if (!hcs_watching())                                                                                               \
        return real(handle);                                                                                           \
    struct hcs_entry entry;                                                                                            \
    bool known = hcs_unbook(HIP_KIND(kind), (uint64_t)(uintptr_t)(handle), &entry);                                    \
    hipError_t result = real(handle);                                                                                  \
    hcs_settle_free(result == hipSuccess, known, &entry);                                                              \
    hcs_leave();                                                                                                       \
    return result

HCS_EXPORT hipError_t hipFree(void *pointer)
{
    REAL(hipFree);
    if (!hcs_watching())
        return real(pointer);
    struct hcs_entry entry;
    bool known = hcs_unbook(HIP_KIND(POINTER), (uint64_t)(uintptr_t)pointer, &entry);
    bool pooled = !known && hcs_pool_unbook(HCS_RUNTIME_HIP, (uint64_t)(uintptr_t)pointer, &entry);
    hipError_t result = real(pointer); /* unknown pointers too: the driver knows better */
    hcs_settle_free(result == hipSuccess, known, &entry);
    if (pooled) {
        hcs_pool_freed(result == hipSuccess, &entry);
        hcs_pools_refresh();
    }
    hcs_leave();
    return result;
}

HCS_EXPORT hipError_t hipFreeArray(hipArray_t array)
{
    REAL(hipFreeArray);
    FREE(ARRAY, array);
}

HCS_EXPORT hipError_t hipArrayDestroy(hipArray_t array)
{
    REAL(hipArrayDestroy);
    FREE(ARRAY, array);
}

HCS_EXPORT hipError_t hipFreeMipmappedArray(hipArray_t array)
{
    REAL(hipFreeMipmappedArray);
    FREE(ARRAY, array);
}

/* ---- stream-ordered ---------------------------------------------------------------------------------------------- */

static uint64_t number(const void *handle)
{
    return (uint64_t)(uintptr_t)handle;
}

static hipMemPool_t as_pool(uint64_t handle)
{
    return (hipMemPool_t)(uintptr_t)handle; // NOLINT
}

static bool ask_reserved(uint64_t pool, uint64_t *bytes)
{
    typedef hipError_t (*function)(hipMemPool_t, int, void *);
    ASK(function, get, hipMemPoolGetAttribute);
    return get != NULL && get(as_pool(pool), hipMemPoolAttrReservedMemCurrent, bytes) == hipSuccess;
}

static void trim(uint64_t pool)
{
    typedef hipError_t (*function)(hipMemPool_t, size_t);
    ASK(function, real, hipMemPoolTrimTo);
    if (real != NULL)
        real(as_pool(pool), 0);
}

static const struct hcs_pool_driver pool_driver = {ask_reserved, trim, 4096};

enum { HOST_POOL = -2 }; /* in the place of a card: a pool of host memory is free of charge */

typedef hipError_t (*alloc_async_function)(void **, size_t, hipStream_t);
typedef hipError_t (*alloc_from_pool_function)(void **, size_t, hipMemPool_t, hipStream_t);

struct request {
    alloc_async_function from_current; /* one of the two */
    alloc_from_pool_function from_pool;
    hipMemPool_t pool;
    hipStream_t stream;
};

static hipError_t ask_driver(const struct request *request, void **pointer, size_t bytes)
{
    return request->from_pool != NULL ? request->from_pool(pointer, bytes, request->pool, request->stream)
                                      : request->from_current(pointer, bytes, request->stream);
}

static bool device_of_stream(hipStream_t stream, int *device)
{
    typedef hipError_t (*function)(hipStream_t, int *);
    ASK(function, get, hipStreamGetDevice);
    return (stream != NULL && get != NULL && get(stream, device) == hipSuccess) || current_device(device);
}

static hipError_t allocate(const struct request *request, void **pointer, size_t bytes)
{
    typedef hipError_t (*capturing_function)(hipStream_t, int *);
    typedef hipError_t (*device_pool_function)(hipMemPool_t *, int);
    ASK(capturing_function, is_capturing, hipStreamIsCapturing);
    ASK(device_pool_function, get_pool, hipDeviceGetMemPool);
    int device, status = 0;
    hipMemPool_t handle = request->pool;
    if (!device_of_stream(request->stream, &device) ||
        (is_capturing != NULL && is_capturing(request->stream, &status) == hipSuccess && status != 0) ||
        (request->from_pool == NULL && (get_pool == NULL || get_pool(&handle, device) != hipSuccess)))
        return ask_driver(request, pointer, bytes);
    struct hcs_pool *pool = hcs_pool_of(HCS_RUNTIME_HIP, number(handle), card_of(device), &pool_driver);
    if (pool != NULL && pool->card == HOST_POOL)
        return ask_driver(request, pointer, bytes);
    uint64_t taken = hcs_hip_taken(bytes);
    enum hcs_pool_answer answer = pool != NULL ? hcs_pool_begin(pool, taken) : HCS_POOL_REFUSE;
    if (answer == HCS_POOL_REFUSE)
        return hipErrorOutOfMemory;
    hipError_t result = ask_driver(request, pointer, bytes);
    bool fits = hcs_pool_end(pool, answer, taken);
    if (fits && (result != hipSuccess || hcs_pool_book(pool, number(*pointer), taken)))
        return result;
    if (result == hipSuccess)
        release(HCS_SYM_hipFree, *pointer);
    if (!fits)
        hcs_pool_give_up(pool);
    return hipErrorOutOfMemory;
}

static hipError_t watched(const struct request *request, void **pointer, size_t bytes)
{
    if (!hcs_watching())
        return ask_driver(request, pointer, bytes);
    hipError_t result = allocate(request, pointer, bytes);
    hcs_leave();
    return result;
}

HCS_EXPORT hipError_t hipMallocAsync(void **pointer, size_t bytes, hipStream_t stream)
{
    REAL(hipMallocAsync);
    return watched(&(struct request){.from_current = real, .stream = stream}, pointer, bytes);
}

HCS_EXPORT hipError_t hipMallocFromPoolAsync(void **pointer, size_t bytes, hipMemPool_t pool, hipStream_t stream)
{
    REAL(hipMallocFromPoolAsync);
    return watched(&(struct request){.from_pool = real, .pool = pool, .stream = stream}, pointer, bytes);
}

HCS_EXPORT hipError_t hipFreeAsync(void *pointer, hipStream_t stream)
{
    REAL(hipFreeAsync);
    if (!hcs_watching())
        return real(pointer, stream);
    struct hcs_entry entry;
    bool pooled = hcs_pool_unbook(HCS_RUNTIME_HIP, number(pointer), &entry);
    bool known = !pooled && hcs_unbook(HIP_KIND(POINTER), number(pointer), &entry);
    hipError_t result = real(pointer, stream);
    if (pooled)
        hcs_pool_freed(result == hipSuccess, &entry);
    hcs_settle_free(result == hipSuccess, known, &entry);
    hcs_leave();
    return result;
}

HCS_EXPORT hipError_t hipMemPoolCreate(hipMemPool_t *pool, const hipMemPoolProps *properties)
{
    REAL(hipMemPoolCreate);
    if (properties == NULL || !hcs_watching())
        return real(pool, properties);
    hipError_t result = real(pool, properties);
    bool on_device = properties->location.type == hipMemLocationTypeDevice;
    if (result == hipSuccess)
        hcs_pool_of(HCS_RUNTIME_HIP, number(*pool), on_device ? card_of(properties->location.id) : HOST_POOL,
                    &pool_driver);
    hcs_leave();
    return result;
}

HCS_EXPORT hipError_t hipMemPoolDestroy(hipMemPool_t handle)
{
    REAL(hipMemPoolDestroy);
    if (!hcs_watching())
        return real(handle);
    struct hcs_pool *pool = hcs_pool_known(HCS_RUNTIME_HIP, number(handle));
    if (pool != NULL)
        hcs_pool_begin_destroy(pool);
    hipError_t result = real(handle);
    if (pool != NULL)
        hcs_pool_end_destroy(pool, result == hipSuccess);
    hcs_leave();
    return result;
}

HCS_EXPORT hipError_t hipMemPoolTrimTo(hipMemPool_t handle, size_t keep)
{
    REAL(hipMemPoolTrimTo);
    if (!hcs_watching())
        return real(handle, keep);
    hipError_t result = real(handle, keep);
    hcs_pools_refresh();
    hcs_leave();
    return result;
}

static hipError_t synchronised(hipError_t result)
{
    if (hcs_watching()) {
        hcs_pools_refresh_if_dirty();
        hcs_leave();
    }
    return result;
}

HCS_EXPORT hipError_t hipDeviceSynchronize(void)
{
    REAL(hipDeviceSynchronize);
    return synchronised(real());
}

HCS_EXPORT hipError_t hipStreamSynchronize(hipStream_t stream)
{
    REAL(hipStreamSynchronize);
    return synchronised(real(stream));
}

/* ---- physical memory --------------------------------------------------------------------------------------------- */

HCS_EXPORT hipError_t hipMemCreate(hipMemHandle *handle, size_t bytes, const hipMemAllocationProp *properties,
                                   unsigned long long flags)
{
    REAL(hipMemCreate);
    if (properties == NULL || properties->location.type != hipMemLocationTypeDevice || !hcs_watching())
        return real(handle, bytes, properties, flags);
    int card = card_of(properties->location.id);
    hipError_t result = hipErrorOutOfMemory;
    if (hcs_charge(card, bytes)) {
        result = real(handle, bytes, properties, flags);
        bool ok = result == hipSuccess;
        if (!hcs_physical_settle(ok, HCS_RUNTIME_HIP, ok ? number(*handle) : 0, bytes, card)) {
            release(HCS_SYM_hipMemRelease, *handle);
            result = hipErrorOutOfMemory;
        }
    }
    hcs_leave();
    return result;
}

HCS_EXPORT hipError_t hipMemRelease(hipMemHandle handle)
{
    REAL(hipMemRelease);
    if (!hcs_watching())
        return real(handle);
    struct hcs_releasing releasing;
    hcs_physical_begin_release(HCS_RUNTIME_HIP, number(handle), &releasing);
    hipError_t result = real(handle);
    hcs_physical_end_release(HCS_RUNTIME_HIP, result == hipSuccess, &releasing);
    hcs_leave();
    return result;
}

HCS_EXPORT hipError_t hipMemRetainAllocationHandle(hipMemHandle *handle, void *address)
{
    REAL(hipMemRetainAllocationHandle);
    if (!hcs_watching())
        return real(handle, address);
    hipError_t result = real(handle, address);
    if (result == hipSuccess)
        hcs_physical_retained(HCS_RUNTIME_HIP, number(*handle), number(address));
    hcs_leave();
    return result;
}

HCS_EXPORT hipError_t hipMemMap(void *address, size_t bytes, size_t offset, hipMemHandle handle,
                                unsigned long long flags)
{
    REAL(hipMemMap);
    if (!hcs_watching())
        return real(address, bytes, offset, handle, flags);
    uint64_t memory = hcs_physical_begin_map(HCS_RUNTIME_HIP, number(handle));
    hipError_t result = real(address, bytes, offset, handle, flags);
    hcs_physical_end_map(HCS_RUNTIME_HIP, result == hipSuccess, memory, number(address), bytes);
    hcs_leave();
    return result;
}

HCS_EXPORT hipError_t hipMemUnmap(void *address, size_t bytes)
{
    REAL(hipMemUnmap);
    if (!hcs_watching())
        return real(address, bytes);
    hipError_t result = real(address, bytes);
    if (result == hipSuccess)
        hcs_physical_unmapped(HCS_RUNTIME_HIP, number(address), bytes);
    hcs_leave();
    return result;
}

/* ---- devices, questions, functions by name ------------------------------------------------------------------------ */

HCS_EXPORT hipError_t hipDeviceReset(void)
{
    REAL(hipDeviceReset);
    if (!hcs_watching())
        return real();
    int device;
    bool known = current_device(&device);
    hipError_t result = real();
    if (result == hipSuccess && known)
        hcs_forget_owned(HCS_RUNTIME_HIP, (uint64_t)device + 1);
    hcs_pools_refresh();
    hcs_leave();
    return result;
}

HCS_EXPORT hipError_t hipMemGetInfo(size_t *free_bytes, size_t *total_bytes)
{
    REAL(hipMemGetInfo);
    if (!hcs_watching())
        return real(free_bytes, total_bytes);
    int device;
    hipError_t result = real(free_bytes, total_bytes);
    if (result == hipSuccess && current_device(&device))
        hcs_clamp(card_of(device), free_bytes, total_bytes);
    hcs_leave();
    return result;
}

HCS_EXPORT hipError_t hipDeviceTotalMem(size_t *bytes, int device)
{
    REAL(hipDeviceTotalMem);
    if (!hcs_watching())
        return real(bytes, device);
    hipError_t result = real(bytes, device);
    if (result == hipSuccess) {
        size_t free_bytes = *bytes;
        hcs_clamp(card_of(device), &free_bytes, bytes);
    }
    hcs_leave();
    return result;
}

HCS_EXPORT hipError_t hipGetProcAddress(const char *name, void **function, int version, uint64_t flags, int *status)
{
    REAL(hipGetProcAddress);
    if (!hcs_watching())
        return real(name, function, version, flags, status);
    hipError_t result = real(name, function, version, flags, status);
    if (result == hipSuccess && function != NULL)
        *function = hcs_substitute(*function);
    hcs_leave();
    return result;
}
