/* Emulated CUDA driver: the functions of CUDA 2, whose names have no suffix, and whose sizes and pointers have 32 bits. As in
 * a real driver they are still there. A pointer of theirs is a number below 4 GiB that stands for the memory. */
#include <limits.h>
#include <pthread.h>

#include "cuda.h"

HCS_EXPORT CUresult cuMemAlloc_v2(CUdeviceptr *pointer, size_t bytes);
HCS_EXPORT CUresult cuMemAllocPitch_v2(CUdeviceptr *pointer, size_t *pitch, size_t width, size_t height,
                                       unsigned int element_bytes);
HCS_EXPORT CUresult cuMemFree_v2(CUdeviceptr pointer);
HCS_EXPORT CUresult cuMemGetInfo_v2(size_t *free_bytes, size_t *total_bytes);
HCS_EXPORT CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device);
HCS_EXPORT CUresult cuArrayCreate_v2(void **array, const CUDA_ARRAY_DESCRIPTOR *wanted);
HCS_EXPORT CUresult cuArray3DCreate_v2(void **array, const CUDA_ARRAY3D_DESCRIPTOR *wanted);
HCS_EXPORT CUresult cuCtxCreate_v2(CUcontext *context, unsigned int flags, CUdevice device);
HCS_EXPORT CUresult cuCtxDestroy_v2(CUcontext context);

enum { MOST = 1024, STEP = 1 << 20 };
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static CUdeviceptr behind[MOST]; /* place n is the pointer (n + 1) * STEP */

static CUresult keep(CUresult result, CUdeviceptr address, CUdeviceptr_v1 *pointer)
{
    if (result != CUDA_SUCCESS)
        return result;
    pthread_mutex_lock(&lock);
    unsigned int place = 0;
    while (place < MOST && behind[place] != 0)
        place++;
    if (place < MOST)
        behind[place] = address;
    pthread_mutex_unlock(&lock);
    *pointer = (place + 1) * STEP;
    return place < MOST ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static unsigned int narrow(size_t bytes)
{
    return bytes < UINT_MAX ? (unsigned int)bytes : UINT_MAX;
}

HCS_EXPORT CUresult cuMemAlloc(CUdeviceptr_v1 *pointer, unsigned int bytes)
{
    CUdeviceptr address = 0;
    CUresult result = cuMemAlloc_v2(&address, bytes);
    return keep(result, address, pointer);
}

HCS_EXPORT CUresult cuMemAllocPitch(CUdeviceptr_v1 *pointer, unsigned int *pitch, unsigned int width,
                                    unsigned int height, unsigned int element_bytes)
{
    CUdeviceptr address = 0;
    size_t row = 0;
    CUresult result = cuMemAllocPitch_v2(&address, &row, width, height, element_bytes);
    *pitch = narrow(row);
    return keep(result, address, pointer);
}

HCS_EXPORT CUresult cuMemFree(CUdeviceptr_v1 pointer)
{
    unsigned int place = pointer / STEP - 1;
    CUdeviceptr address = 0;
    pthread_mutex_lock(&lock);
    if (pointer % STEP == 0 && place < MOST) {
        address = behind[place];
        behind[place] = 0;
    }
    pthread_mutex_unlock(&lock);
    return address != 0 ? cuMemFree_v2(address) : CUDA_ERROR_INVALID_VALUE;
}

HCS_EXPORT CUresult cuMemGetInfo(unsigned int *free_bytes, unsigned int *total_bytes)
{
    size_t free_now = 0, total_now = 0;
    CUresult result = cuMemGetInfo_v2(&free_now, &total_now);
    *free_bytes = narrow(free_now);
    *total_bytes = narrow(total_now);
    return result;
}

HCS_EXPORT CUresult cuDeviceTotalMem(unsigned int *bytes, CUdevice device)
{
    size_t total = 0;
    CUresult result = cuDeviceTotalMem_v2(&total, device);
    *bytes = narrow(total);
    return result;
}

HCS_EXPORT CUresult cuArrayCreate(void **array, const CUDA_ARRAY_DESCRIPTOR_v1 *wanted)
{
    CUDA_ARRAY_DESCRIPTOR described = {
        .Width = wanted->Width, .Height = wanted->Height, .Format = wanted->Format, .NumChannels = wanted->NumChannels};
    return cuArrayCreate_v2(array, &described);
}

HCS_EXPORT CUresult cuArray3DCreate(void **array, const CUDA_ARRAY3D_DESCRIPTOR_v1 *wanted)
{
    CUDA_ARRAY3D_DESCRIPTOR described = {.Width = wanted->Width,
                                         .Height = wanted->Height,
                                         .Depth = wanted->Depth,
                                         .Format = wanted->Format,
                                         .NumChannels = wanted->NumChannels,
                                         .Flags = wanted->Flags};
    return cuArray3DCreate_v2(array, &described);
}

HCS_EXPORT CUresult cuCtxCreate(CUcontext *context, unsigned int flags, CUdevice device)
{
    return cuCtxCreate_v2(context, flags, device);
}

HCS_EXPORT CUresult cuCtxDestroy(CUcontext context)
{
    return cuCtxDestroy_v2(context);
}
