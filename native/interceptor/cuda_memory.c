/* CUDA memory behind a pointer: linear, pitched, managed; and the pointers' release, whatever they point into. */
#include "cuda.h"
#include "pools.h"

HCS_EXPORT CUresult CU(MemFree_v2)(CUdeviceptr pointer);

/* Books what the driver gave, or frees it again. Inside a hook the free goes straight to the driver. */
static CUresult settle_pointer(CUresult result, const CUdeviceptr *pointer, uint64_t taken,
                               const struct hcs_place *place)
{
    bool ok = result == CUDA_SUCCESS;
    if (hcs_settle(ok, KIND(POINTER), ok ? *pointer : 0, taken, place))
        return result;
    CU(MemFree_v2)(*pointer);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

HCS_EXPORT CUresult CU(MemAlloc_v2)(CUdeviceptr *pointer, size_t bytes)
{
    REAL(MemAlloc_v2);
    if (!hcs_watching())
        return real(pointer, bytes);
    struct hcs_place place;
    uint64_t taken = hcs_cuda_taken(bytes);
    CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
    if (!cuda_current_place(&place, NULL))
        result = real(pointer, bytes);
    else if (hcs_charge(place.card, taken))
        result = settle_pointer(real(pointer, bytes), pointer, taken, &place);
    hcs_leave();
    return result;
}

HCS_EXPORT CUresult CU(MemAllocManaged)(CUdeviceptr *pointer, size_t bytes, unsigned int flags)
{
    /* Charged in full: all of it may become resident. */
    REAL(MemAllocManaged);
    if (!hcs_watching())
        return real(pointer, bytes, flags);
    struct hcs_place place;
    uint64_t taken = hcs_cuda_taken(bytes);
    CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
    if (!cuda_current_place(&place, NULL))
        result = real(pointer, bytes, flags);
    else if (hcs_charge(place.card, taken))
        result = settle_pointer(real(pointer, bytes, flags), pointer, taken, &place);
    hcs_leave();
    return result;
}

HCS_EXPORT CUresult CU(MemAllocPitch_v2)(CUdeviceptr *pointer, size_t *pitch, size_t width, size_t height,
                                         unsigned int element_bytes)
{
    REAL(MemAllocPitch_v2);
    if (!hcs_watching())
        return real(pointer, pitch, width, height, element_bytes);
    struct hcs_place place;
    uint64_t least;
    CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
    if (!cuda_current_place(&place, NULL) || __builtin_mul_overflow((uint64_t)width, (uint64_t)height, &least)) {
        result = real(pointer, pitch, width, height, element_bytes);
    } else if (hcs_charge(place.card, hcs_cuda_taken(least))) {
        /* The pitch is the driver's choice: reserve the least it can be, then the difference. */
        uint64_t charged = hcs_cuda_taken(least);
        result = real(pointer, pitch, width, height, element_bytes);
        if (result == CUDA_SUCCESS) {
            uint64_t taken = hcs_cuda_taken((uint64_t)*pitch * height);
            if (taken > charged && hcs_charge(place.card, taken - charged)) {
                charged = taken;
            } else if (taken > charged) {
                CU(MemFree_v2)(*pointer);
                result = CUDA_ERROR_OUT_OF_MEMORY;
            }
        }
        result = settle_pointer(result, pointer, charged, &place);
    }
    hcs_leave();
    return result;
}

HCS_EXPORT CUresult CU(MemFree_v2)(CUdeviceptr pointer)
{
    REAL(MemFree_v2);
    if (!hcs_watching())
        return real(pointer);
    struct hcs_entry entry;
    bool known = hcs_unbook(KIND(POINTER), pointer, &entry);
    bool pooled = !known && hcs_pool_unbook(HCS_DRIVER_RUNTIME, pointer, &entry);
    CUresult result = real(pointer); /* unknown pointers too: the driver knows better */
    hcs_settle_free(result == CUDA_SUCCESS, known, &entry);
    if (pooled) {
        hcs_pool_freed(result == CUDA_SUCCESS, &entry);
        hcs_pools_refresh();
    }
    hcs_leave();
    return result;
}

/* ---- the first interface: the same memory, by pointers and sizes of 32 bits ----------------------------------------- */

HCS_EXPORT CUresult CU(MemFree)(CUdeviceptr_v1 pointer)
{
    REAL(MemFree);
    if (!hcs_watching())
        return real(pointer);
    struct hcs_entry entry;
    bool known = hcs_unbook(KIND(POINTER), pointer, &entry);
    CUresult result = real(pointer);
    hcs_settle_free(result == CUDA_SUCCESS, known, &entry);
    hcs_leave();
    return result;
}

static CUresult settle_narrow(CUresult result, const CUdeviceptr_v1 *pointer, uint64_t taken,
                              const struct hcs_place *place)
{
    bool ok = result == CUDA_SUCCESS;
    if (hcs_settle(ok, KIND(POINTER), ok ? *pointer : 0, taken, place))
        return result;
    CU(MemFree)(*pointer);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

HCS_EXPORT CUresult CU(MemAlloc)(CUdeviceptr_v1 *pointer, unsigned int bytes)
{
    REAL(MemAlloc);
    if (!hcs_watching())
        return real(pointer, bytes);
    struct hcs_place place;
    uint64_t taken = hcs_cuda_taken(bytes);
    CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
    if (!cuda_current_place(&place, NULL))
        result = real(pointer, bytes);
    else if (hcs_charge(place.card, taken))
        result = settle_narrow(real(pointer, bytes), pointer, taken, &place);
    hcs_leave();
    return result;
}

/* All of it is charged beforehand: no pitch is larger than the next multiple of 4 KiB. */
HCS_EXPORT CUresult CU(MemAllocPitch)(CUdeviceptr_v1 *pointer, unsigned int *pitch, unsigned int width,
                                      unsigned int height, unsigned int element_bytes)
{
    enum { LARGEST_PITCH_UNIT = 4096 };
    REAL(MemAllocPitch);
    if (!hcs_watching())
        return real(pointer, pitch, width, height, element_bytes);
    struct hcs_place place;
    uint64_t taken = hcs_cuda_taken(hcs_rounded(width, LARGEST_PITCH_UNIT) * height);
    CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
    if (!cuda_current_place(&place, NULL)) {
        result = real(pointer, pitch, width, height, element_bytes);
    } else if (hcs_charge(place.card, taken)) {
        result = real(pointer, pitch, width, height, element_bytes);
        uint64_t really = result == CUDA_SUCCESS ? hcs_cuda_taken((uint64_t)*pitch * height) : taken;
        if (really < taken) {
            hcs_uncharge(place.card, taken - really);
            taken = really;
        }
        result = settle_narrow(result, pointer, taken, &place);
    }
    hcs_leave();
    return result;
}
