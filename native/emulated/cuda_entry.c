/* Emulated CUDA driver: error texts, and functions by name and version. */
#include <string.h>

#include "cuda.h"
#include "cuda_lookup.h"

static const struct {
    CUresult code;
    const char *name;
    const char *text;
} errors[] = {
    {CUDA_SUCCESS, "CUDA_SUCCESS", "no error"},
    {CUDA_ERROR_INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {CUDA_ERROR_OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {CUDA_ERROR_NOT_INITIALIZED, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
    {CUDA_ERROR_NO_DEVICE, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    {CUDA_ERROR_INVALID_DEVICE, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
    {CUDA_ERROR_INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {CUDA_ERROR_INVALID_HANDLE, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
    {CUDA_ERROR_NOT_FOUND, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
    {CUDA_ERROR_NOT_SUPPORTED, "CUDA_ERROR_NOT_SUPPORTED", "operation not supported"},
    {CUDA_ERROR_UNKNOWN, "CUDA_ERROR_UNKNOWN", "unknown error"},
};

static CUresult describe(CUresult code, const char **out, int want_name)
{
    for (size_t index = 0; index < sizeof errors / sizeof *errors; index++)
        if (errors[index].code == code) {
            *out = want_name ? errors[index].name : errors[index].text;
            return CUDA_SUCCESS;
        }
    *out = NULL;
    return CUDA_ERROR_INVALID_VALUE;
}

HCS_EXPORT CUresult cuGetErrorName(CUresult code, const char **name)
{
    return describe(code, name, 1);
}

HCS_EXPORT CUresult cuGetErrorString(CUresult code, const char **text)
{
    return describe(code, text, 0);
}

/* A table of private functions, as a real driver has them for its runtime: nobody interposes these. The first entry is
 * the table's size in bytes. */
HCS_EXPORT CUresult cuMemAlloc_v2(CUdeviceptr *pointer, size_t bytes);

HCS_EXPORT CUresult cuGetExportTable(const void **table, const CUuuid *id)
{
    static const void *private_functions[2];
    private_functions[0] = (const void *)sizeof private_functions; // NOLINT
    private_functions[1] = (const void *)cuMemAlloc_v2;            // NOLINT
    if (id == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *table = private_functions;
    return CUDA_SUCCESS;
}

HCS_EXPORT CUresult cuGetProcAddress_v2(const char *name, void **function, int version, uint64_t flags, int *status)
{
    if (name == NULL || function == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    int found;
    *function = hcs_cuda_find(name, version, (flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) != 0, &found);
    if (status != NULL)
        *status = found;
    return *function != NULL ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

HCS_EXPORT CUresult cuGetProcAddress(const char *name, void **function, int version, uint64_t flags)
{
    return cuGetProcAddress_v2(name, function, version, flags, NULL);
}
