/* The part of the CUDA driver API's binary interface that we meet: types and values as in NVIDIA's public cuda.h.
 * Written out here because nothing of a vendor is needed to build. */
#ifndef HCS_CUDA_ABI_H
#define HCS_CUDA_ABI_H

#include <stddef.h>
#include <stdint.h>

typedef int CUresult;
typedef int CUdevice;
typedef unsigned long long CUdeviceptr;
typedef unsigned long long CUmemGenericAllocationHandle;
typedef struct CUctx_st *CUcontext;
typedef struct CUstream_st *CUstream;
typedef struct {
    unsigned char bytes[16];
} CUuuid;

typedef struct {
    int type; /* 1 = device */
    int id;   /* device ordinal where the type is device */
} CUmemLocation;

typedef struct {
    int type;
    int requestedHandleTypes;
    CUmemLocation location;
    void *win32HandleMetaData;
    unsigned char allocFlags[8];
} CUmemAllocationProp;

enum {
    CUDA_SUCCESS = 0,
    CUDA_ERROR_INVALID_VALUE = 1,
    CUDA_ERROR_OUT_OF_MEMORY = 2,
    CUDA_ERROR_NOT_INITIALIZED = 3,
    CUDA_ERROR_NO_DEVICE = 100,
    CUDA_ERROR_INVALID_DEVICE = 101,
    CUDA_ERROR_INVALID_CONTEXT = 201,
    CUDA_ERROR_INVALID_HANDLE = 400,
    CUDA_ERROR_NOT_FOUND = 500,
    CUDA_ERROR_ILLEGAL_ADDRESS = 700,
    CUDA_ERROR_NOT_SUPPORTED = 801,
    CUDA_ERROR_UNKNOWN = 999,
};

enum { CU_MEM_LOCATION_TYPE_DEVICE = 1 };

/* Answers of cuGetProcAddress_v2 in *symbolStatus, and its flag. */
enum {
    CU_GET_PROC_ADDRESS_SUCCESS = 0,
    CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND = 1,
    CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT = 2,
    CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM = 2,
};

/* Driver granularity: large allocations take whole 2 MiB pages, small ones are packed at 512 bytes. */
#define HCS_CUDA_PAGE (UINT64_C(2) << 20)
#define HCS_CUDA_SMALL_LIMIT (UINT64_C(1) << 20)
#define HCS_CUDA_SMALL_UNIT UINT64_C(512)

/* Bytes the driver takes for a request; UINT64_MAX when the request cannot be rounded. */
static inline uint64_t hcs_cuda_taken(uint64_t bytes)
{
    uint64_t unit = bytes < HCS_CUDA_SMALL_LIMIT ? HCS_CUDA_SMALL_UNIT : HCS_CUDA_PAGE;
    if (bytes > UINT64_MAX - unit)
        return UINT64_MAX;
    return (bytes + unit - 1) / unit * unit;
}

#endif
