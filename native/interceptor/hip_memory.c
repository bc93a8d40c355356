/* HIP memory behind a pointer, and arrays. */
#include "hip.h"
#include "pools.h"

/* ALLOCATE(kind, pointer, taken, free, arguments...): the body of a hook that allocates. */
#define ALLOCATE(kind, pointer, taken, free, ...)                                                                      \
    if (!hcs_watching())                                                                                               \
        return real(__VA_ARGS__);                                                                                      \
    int device;                                                                                                        \
    hipError_t result = hipErrorOutOfMemory;                                                                           \
    if (!hip_current_device(&device)) {                                                                                \
        result = real(__VA_ARGS__);                                                                                    \
    } else {                                                                                                           \
        struct hcs_place place = hip_place_of(device);                                                                 \
        uint64_t bytes_taken = (taken);                                                                                \
        if (hcs_charge(place.card, bytes_taken)) {                                                                     \
            result = real(__VA_ARGS__);                                                                                \
            bool ok = result == hipSuccess;                                                                            \
            if (!hcs_settle(ok, HIP_KIND(kind), ok ? (uint64_t)(uintptr_t)*(pointer) : 0, bytes_taken, &place)) {      \
                hip_release(HCS_SYM_##free, *(pointer));                                                               \
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
            hip_release(HCS_SYM_hipFree, *pointer);
            result = hipErrorOutOfMemory;
            ok = false;
        } else if (taken > charged) {
            charged = taken;
        }
    }
    if (hcs_settle(ok, HIP_KIND(POINTER), ok ? (uint64_t)(uintptr_t)*pointer : 0, charged, place))
        return result;
    hip_release(HCS_SYM_hipFree, *pointer);
    return hipErrorOutOfMemory;
}

#define PITCHED(pointer, pitch, width, rows, ...)                                                                      \
    if (!hcs_watching())                                                                                               \
        return real(__VA_ARGS__);                                                                                      \
    int device;                                                                                                        \
    uint64_t least;                                                                                                    \
    hipError_t result = hipErrorOutOfMemory;                                                                           \
    if (!hip_current_device(&device) || __builtin_mul_overflow((uint64_t)(width), (uint64_t)(rows), &least)) {         \
        result = real(__VA_ARGS__);                                                                                    \
    } else {                                                                                                           \
        struct hcs_place place = hip_place_of(device);                                                                 \
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

