/* CUDA arrays and mipmapped arrays: device memory without a pointer, charged by format and dimensions as the hardware
 * lays them out. Sparse arrays and those mapped later take their memory from cuMemCreate. */
#include "cuda.h"

typedef CUresult (*destroy_function)(void *);

/* Reserves for an array; false where the answer is "out of memory". *watched tells that settle must follow. */
struct array_call {
    bool placed;
    uint64_t taken;
    struct hcs_place place;
};

static bool begin(struct array_call *call, const CUDA_ARRAY3D_DESCRIPTOR *array, unsigned int levels)
{
    call->placed = cuda_current_place(&call->place, NULL);
    call->taken = hcs_cuda_array_taken(array, levels);
    return !call->placed || call->taken == 0 || hcs_charge(call->place.card, call->taken);
}

static CUresult end(const struct array_call *call, CUresult result, void *handle, destroy_function destroy)
{
    if (!call->placed || call->taken == 0 ||
        hcs_settle(result == CUDA_SUCCESS, KIND(ARRAY), (uint64_t)(uintptr_t)handle, call->taken, &call->place))
        return result;
    destroy(handle);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult destroy_array(void *handle)
{
    typedef CUresult (*function)(void *);
    ASK(function, real, ArrayDestroy);
    return real != NULL ? real(handle) : CUDA_ERROR_NOT_INITIALIZED;
}

static CUresult destroy_mipmapped(void *handle)
{
    typedef CUresult (*function)(void *);
    ASK(function, real, MipmappedArrayDestroy);
    return real != NULL ? real(handle) : CUDA_ERROR_NOT_INITIALIZED;
}

HCS_EXPORT CUresult CU(ArrayCreate_v2)(CUarray *array, const CUDA_ARRAY_DESCRIPTOR *wanted)
{
    REAL(ArrayCreate_v2);
    if (wanted == NULL || !hcs_watching())
        return real(array, wanted);
    CUDA_ARRAY3D_DESCRIPTOR described = {.Width = wanted->Width,
                                         .Height = wanted->Height,
                                         .Format = wanted->Format,
                                         .NumChannels = wanted->NumChannels};
    struct array_call call;
    CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
    if (begin(&call, &described, 1)) {
        result = real(array, wanted);
        result = end(&call, result, result == CUDA_SUCCESS ? *array : NULL, destroy_array);
    }
    hcs_leave();
    return result;
}

HCS_EXPORT CUresult CU(Array3DCreate_v2)(CUarray *array, const CUDA_ARRAY3D_DESCRIPTOR *wanted)
{
    REAL(Array3DCreate_v2);
    if (wanted == NULL || !hcs_watching())
        return real(array, wanted);
    struct array_call call;
    CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
    if (begin(&call, wanted, 1)) {
        result = real(array, wanted);
        result = end(&call, result, result == CUDA_SUCCESS ? *array : NULL, destroy_array);
    }
    hcs_leave();
    return result;
}

/* The first interface. */
HCS_EXPORT CUresult CU(ArrayCreate)(CUarray *array, const CUDA_ARRAY_DESCRIPTOR_v1 *wanted)
{
    REAL(ArrayCreate);
    if (wanted == NULL || !hcs_watching())
        return real(array, wanted);
    CUDA_ARRAY3D_DESCRIPTOR described = {.Width = wanted->Width,
                                         .Height = wanted->Height,
                                         .Format = wanted->Format,
                                         .NumChannels = wanted->NumChannels};
    struct array_call call;
    CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
    if (begin(&call, &described, 1)) {
        result = real(array, wanted);
        result = end(&call, result, result == CUDA_SUCCESS ? *array : NULL, destroy_array);
    }
    hcs_leave();
    return result;
}

HCS_EXPORT CUresult CU(Array3DCreate)(CUarray *array, const CUDA_ARRAY3D_DESCRIPTOR_v1 *wanted)
{
    REAL(Array3DCreate);
    if (wanted == NULL || !hcs_watching())
        return real(array, wanted);
    CUDA_ARRAY3D_DESCRIPTOR described = {.Width = wanted->Width,
                                         .Height = wanted->Height,
                                         .Depth = wanted->Depth,
                                         .Format = wanted->Format,
                                         .NumChannels = wanted->NumChannels,
                                         .Flags = wanted->Flags};
    struct array_call call;
    CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
    if (begin(&call, &described, 1)) {
        result = real(array, wanted);
        result = end(&call, result, result == CUDA_SUCCESS ? *array : NULL, destroy_array);
    }
    hcs_leave();
    return result;
}

HCS_EXPORT CUresult CU(MipmappedArrayCreate)(CUmipmappedArray *array, const CUDA_ARRAY3D_DESCRIPTOR *wanted,
                                             unsigned int levels)
{
    REAL(MipmappedArrayCreate);
    if (wanted == NULL || !hcs_watching())
        return real(array, wanted, levels);
    enum { MOST_LEVELS = 32 };
    struct array_call call;
    CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
    if (begin(&call, wanted, levels < MOST_LEVELS ? levels : MOST_LEVELS)) {
        result = real(array, wanted, levels);
        result = end(&call, result, result == CUDA_SUCCESS ? *array : NULL, destroy_mipmapped);
    }
    hcs_leave();
    return result;
}

HCS_EXPORT CUresult CU(ArrayDestroy)(CUarray array)
{
    REAL(ArrayDestroy);
    if (!hcs_watching())
        return real(array);
    struct hcs_entry entry;
    bool known = hcs_unbook(KIND(ARRAY), (uint64_t)(uintptr_t)array, &entry);
    CUresult result = real(array);
    hcs_settle_free(result == CUDA_SUCCESS, known, &entry);
    hcs_leave();
    return result;
}

HCS_EXPORT CUresult CU(MipmappedArrayDestroy)(CUmipmappedArray array)
{
    REAL(MipmappedArrayDestroy);
    if (!hcs_watching())
        return real(array);
    struct hcs_entry entry;
    bool known = hcs_unbook(KIND(ARRAY), (uint64_t)(uintptr_t)array, &entry);
    CUresult result = real(array);
    hcs_settle_free(result == CUDA_SUCCESS, known, &entry);
    hcs_leave();
    return result;
}
