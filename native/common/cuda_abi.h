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
typedef struct CUevent_st *CUevent;
typedef struct CUmod_st *CUmodule;
typedef struct CUlib_st *CUlibrary;
typedef struct CUlinkState_st *CUlinkState;
typedef struct CUarray_st *CUarray;
typedef struct CUmipmappedArray_st *CUmipmappedArray;
typedef struct CUmemPoolHandle_st *CUmemoryPool;
typedef struct CUgraph_st *CUgraph;
typedef struct CUgraphNode_st *CUgraphNode;
typedef struct CUgraphExec_st *CUgraphExec;
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

typedef struct {
    int allocType;
    int handleTypes;
    CUmemLocation location;
    void *win32SecurityAttributes;
    size_t maxSize;
    unsigned short usage;
    unsigned char reserved[54];
} CUmemPoolProps;

typedef struct {
    CUmemPoolProps poolProps;
    const void *accessDescs;
    size_t accessDescCount;
    size_t bytesize;
    CUdeviceptr dptr;
} CUDA_MEM_ALLOC_NODE_PARAMS;

/* The beginning of what cuGraphAddNode takes; the node's own parameters follow. */
typedef struct {
    int type;
    int reserved0[3];
    CUDA_MEM_ALLOC_NODE_PARAMS alloc;
} CUgraphNodeParams;

/* What the functions without a suffix take: the interface of CUDA 2, with sizes and pointers of 32 bits. Drivers still
 * have them. */
typedef unsigned int CUdeviceptr_v1;

typedef struct {
    unsigned int Width;
    unsigned int Height;
    int Format;
    unsigned int NumChannels;
} CUDA_ARRAY_DESCRIPTOR_v1;

typedef struct {
    unsigned int Width;
    unsigned int Height;
    unsigned int Depth;
    int Format;
    unsigned int NumChannels;
    unsigned int Flags;
} CUDA_ARRAY3D_DESCRIPTOR_v1;

typedef struct {
    size_t Width;
    size_t Height;
    int Format;
    unsigned int NumChannels;
} CUDA_ARRAY_DESCRIPTOR;

typedef struct {
    size_t Width;
    size_t Height;
    size_t Depth;
    int Format;
    unsigned int NumChannels;
    unsigned int Flags;
} CUDA_ARRAY3D_DESCRIPTOR;

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

#define CU_STREAM_PER_THREAD ((CUstream)0x2)

enum { CU_MEM_LOCATION_TYPE_DEVICE = 1 };
enum {
    CU_MEMPOOL_ATTR_RELEASE_THRESHOLD = 4,
    CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT = 5,
    CU_MEMPOOL_ATTR_USED_MEM_CURRENT = 7,
};
enum { CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT = 0, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT = 2 };
enum { CU_GRAPH_NODE_TYPE_MEM_ALLOC = 10, CU_GRAPH_NODE_TYPE_MEM_FREE = 11 };
enum { CUDA_ARRAY3D_SPARSE = 0x40, CUDA_ARRAY3D_DEFERRED_MAPPING = 0x80 };

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

static inline uint64_t hcs_rounded(uint64_t value, uint64_t unit)
{
    return value > UINT64_MAX - unit ? UINT64_MAX : (value + unit - 1) / unit * unit;
}

/* Bytes of one channel of an array format (CUarray_format). Formats that pack several channels into an element (block
 * compression, YUV) count as four bytes a channel: rather too much than too little. */
static inline uint64_t hcs_cuda_channel_bytes(int format)
{
    switch (format) {
    case 0x01: /* unsigned and signed 8 bit */
    case 0x08:
        return 1;
    case 0x02: /* 16 bit, and half */
    case 0x03:
    case 0x09:
    case 0x0a:
    case 0x10:
        return 2;
    default:
        return 4;
    }
}

/* Bytes of one level of an array: the hardware stores blocks of 64 bytes by 8 rows. */
static inline uint64_t hcs_cuda_array_level(const CUDA_ARRAY3D_DESCRIPTOR *array, unsigned int level)
{
    uint64_t width = array->Width >> level, height = array->Height >> level, depth = array->Depth >> level;
    uint64_t row = hcs_rounded((width ? width : 1) * hcs_cuda_channel_bytes(array->Format) * array->NumChannels, 64);
    uint64_t rows = array->Height != 0 ? hcs_rounded(height ? height : 1, 8) : 1;
    return row * rows * (array->Depth != 0 ? (depth ? depth : 1) : 1);
}

/* What an array of that many levels takes of the card; 0 where its memory is mapped later by the program. */
static inline uint64_t hcs_cuda_array_taken(const CUDA_ARRAY3D_DESCRIPTOR *array, unsigned int levels)
{
    uint64_t bytes = 0;
    if (array->Flags & (CUDA_ARRAY3D_SPARSE | CUDA_ARRAY3D_DEFERRED_MAPPING))
        return 0;
    for (unsigned int level = 0; level < levels; level++)
        bytes += hcs_cuda_array_level(array, level);
    return hcs_cuda_taken(bytes);
}

#endif
