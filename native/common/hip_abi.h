/* The part of HIP's binary interface that we meet: types and values as in AMD's public hip_runtime_api.h and
 * driver_types.h, which Hygon's DTK follows. */
#ifndef HCS_HIP_ABI_H
#define HCS_HIP_ABI_H

#include <stddef.h>
#include <stdint.h>

typedef int hipError_t;
typedef struct ihipStream_t *hipStream_t;
typedef struct ihipEvent_t *hipEvent_t;
typedef struct ihipMemPoolHandle_t *hipMemPool_t;
typedef struct ihipMemGenericAllocationHandle *hipMemHandle;
typedef void *hipArray_t;
typedef struct ihipGraph *hipGraph_t;
typedef struct hipGraphNode *hipGraphNode_t;
typedef struct hipGraphExec *hipGraphExec_t;

typedef struct {
    size_t width, height, depth;
} hipExtent;

typedef struct {
    void *ptr;
    size_t pitch, xsize, ysize;
} hipPitchedPtr;

typedef struct {
    int x, y, z, w; /* bits of each channel */
    int f;
} hipChannelFormatDesc;

typedef struct {
    size_t Width, Height;
    int Format;
    unsigned int NumChannels;
} HIP_ARRAY_DESCRIPTOR;

typedef struct {
    size_t Width, Height, Depth;
    int Format;
    unsigned int NumChannels, Flags;
} HIP_ARRAY3D_DESCRIPTOR;

typedef struct {
    int type;
    int id;
} hipMemLocation;

typedef struct {
    int type;
    int requestedHandleType;
    hipMemLocation location;
    void *win32HandleMetaData;
    unsigned char allocFlags[8];
} hipMemAllocationProp;

typedef struct {
    int allocType;
    int handleTypes;
    hipMemLocation location;
    void *win32SecurityAttributes;
    size_t maxSize;
    unsigned char reserved[56];
} hipMemPoolProps;

typedef struct {
    hipMemPoolProps poolProps;
    const void *accessDescs;
    size_t accessDescCount;
    size_t bytesize;
    void *dptr;
} hipMemAllocNodeParams;

/* The beginning of what hipGraphAddNode takes; the node's own parameters follow. */
typedef struct {
    int type;
    int reserved0[3];
    hipMemAllocNodeParams alloc;
} hipGraphNodeParams;

typedef struct {
    char bytes[16];
} hipUUID;

enum {
    hipSuccess = 0,
    hipErrorInvalidValue = 1,
    hipErrorOutOfMemory = 2,
    hipErrorNotInitialized = 3,
    hipErrorNoDevice = 100,
    hipErrorInvalidDevice = 101,
    hipErrorNotFound = 500,
    hipErrorNotSupported = 801,
    hipErrorUnknown = 999,
};

enum { hipMemLocationTypeDevice = 1 };
enum { hipMemPoolAttrReservedMemCurrent = 5 };
enum { hipGraphMemAttrUsedMemCurrent = 0, hipGraphMemAttrReservedMemCurrent = 2 };
enum { hipGraphNodeTypeMemAlloc = 10, hipGraphNodeTypeMemFree = 11 };

/* The driver takes whole pages of 4 KiB (amdgpu's smallest). */
static inline uint64_t hcs_hip_taken(uint64_t bytes)
{
    const uint64_t page = 4096;
    return bytes > UINT64_MAX - page ? UINT64_MAX : (bytes + page - 1) / page * page;
}

/* An array's bytes: rows in multiples of 256, every level half of the one before. */
static inline uint64_t hcs_hip_array_taken(uint64_t element, hipExtent extent, unsigned int levels)
{
    uint64_t bytes = 0;
    for (unsigned int level = 0; level < levels && level < 32; level++) {
        uint64_t width = extent.width >> level, height = extent.height >> level, depth = extent.depth >> level;
        uint64_t row = ((width ? width : 1) * element + 255) / 256 * 256;
        bytes += row * (height ? height : 1) * (depth ? depth : 1);
    }
    return hcs_hip_taken(bytes);
}

static inline uint64_t hcs_hip_element(const hipChannelFormatDesc *channels)
{
    return (uint64_t)(channels->x + channels->y + channels->z + channels->w + 7) / 8;
}

/* The same for the driver-like description; formats as in CUDA. */
static inline uint64_t hcs_hip_format_bytes(int format, unsigned int channels)
{
    uint64_t bytes = format == 0x01 || format == 0x08 ? 1 : format == 0x20 || format == 0x03 || format == 0x0a ? 4 : 2;
    return bytes * channels;
}

#endif
