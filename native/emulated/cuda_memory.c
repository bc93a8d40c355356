/* Emulated CUDA driver: memory. Large allocations take whole 2 MiB pages of the card. */
#include <stdlib.h>
#include <string.h>

#include "cuda.h"
#include "memory.h"

static CUresult take(uint64_t bytes, CUdevice device, CUcontext owner, uint64_t *address)
{
    uint32_t index;
    uint64_t charged = hcs_cuda_taken(bytes);
    if (bytes == 0 || hcs_cuda_card(device, &index) == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    if (!hcs_cuda_take(device, charged))
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (hcs_memory_allocate(bytes, charged, index, owner, address))
        return CUDA_SUCCESS;
    hcs_cuda_give_back(device, charged);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

/* Charged memory goes back to the card it came from, whatever ordinal that card has. */
static void give_back(const struct hcs_allocation *freed)
{
    for (CUdevice device = 0; hcs_cuda_card(device, NULL) != NULL; device++) {
        uint32_t index;
        hcs_cuda_card(device, &index);
        if (index == freed->card)
            hcs_cuda_give_back(device, freed->charged);
    }
}

void hcs_cuda_free_owned(CUcontext context)
{
    struct hcs_allocation freed;
    while (hcs_memory_free_owned(context, &freed))
        give_back(&freed);
    hcs_cuda_free_objects(context);
}

HCS_EXPORT CUresult cuMemAlloc_v2(CUdeviceptr *pointer, size_t bytes)
{
    CUcontext context;
    uint64_t address;
    CUresult result = hcs_cuda_current(&context);
    HCS_FAULT();
    if (result == CUDA_SUCCESS)
        result = take(bytes, context->device, context, &address);
    if (result == CUDA_SUCCESS)
        *pointer = address;
    return result;
}

HCS_EXPORT CUresult cuMemAllocManaged(CUdeviceptr *pointer, size_t bytes, unsigned int flags)
{
    (void)flags;
    return cuMemAlloc_v2(pointer, bytes);
}

HCS_EXPORT CUresult cuMemAllocPitch_v2(CUdeviceptr *pointer, size_t *pitch, size_t width, size_t height,
                                       unsigned int element_bytes)
{
    enum { PITCH_UNIT = 512 };
    if (element_bytes != 4 && element_bytes != 8 && element_bytes != 16)
        return CUDA_ERROR_INVALID_VALUE;
    size_t row = (width + PITCH_UNIT - 1) / PITCH_UNIT * PITCH_UNIT;
    size_t bytes;
    if (__builtin_mul_overflow(row, height, &bytes))
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = cuMemAlloc_v2(pointer, bytes);
    if (result == CUDA_SUCCESS)
        *pitch = row;
    return result;
}

HCS_EXPORT CUresult cuMemFree_v2(CUdeviceptr pointer)
{
    struct hcs_allocation freed;
    CUcontext context;
    CUresult result = hcs_cuda_current(&context);
    if (result != CUDA_SUCCESS || pointer == 0)
        return result;
    if (hcs_cuda_pool_free(pointer, true))
        return CUDA_SUCCESS;
    if (!hcs_memory_free(pointer, &freed))
        return CUDA_ERROR_INVALID_VALUE;
    give_back(&freed);
    return CUDA_SUCCESS;
}

/* ---- memory of the host, and of peers: nothing of the card ---------------------------------------------------------- */

HCS_EXPORT CUresult cuMemAllocHost_v2(void **pointer, size_t bytes)
{
    CUcontext context;
    CUresult result = hcs_cuda_current(&context);
    if (result == CUDA_SUCCESS && (*pointer = malloc(bytes)) == NULL)
        result = CUDA_ERROR_OUT_OF_MEMORY;
    return result;
}

HCS_EXPORT CUresult cuMemHostAlloc(void **pointer, size_t bytes, unsigned int flags)
{
    (void)flags;
    return cuMemAllocHost_v2(pointer, bytes);
}

HCS_EXPORT CUresult cuMemFreeHost(void *pointer)
{
    free(pointer);
    return CUDA_SUCCESS;
}

/* The bookkeeping of sharing between processes: an opened handle has the size of what it names, not its content. */
struct ipc_handle {
    uint64_t bytes;
    uint64_t address;
    char rest[48];
};

HCS_EXPORT CUresult cuIpcGetMemHandle(struct ipc_handle *handle, CUdeviceptr pointer)
{
    struct hcs_allocation found;
    if (!hcs_memory_find(pointer, 1, &found))
        return CUDA_ERROR_INVALID_VALUE;
    *handle = (struct ipc_handle){.bytes = found.bytes, .address = found.address};
    return CUDA_SUCCESS;
}

HCS_EXPORT CUresult cuIpcOpenMemHandle_v2(CUdeviceptr *pointer, struct ipc_handle handle, unsigned int flags)
{
    (void)flags;
    CUcontext context;
    CUresult result = hcs_cuda_current(&context);
    uint32_t index;
    uint64_t address;
    if (result != CUDA_SUCCESS)
        return result;
    hcs_cuda_card(context->device, &index);
    if (!hcs_memory_allocate(handle.bytes, 0, index, context, &address))
        return CUDA_ERROR_INVALID_VALUE;
    *pointer = address;
    return CUDA_SUCCESS;
}

HCS_EXPORT CUresult cuIpcCloseMemHandle(CUdeviceptr pointer)
{
    struct hcs_allocation freed;
    return hcs_memory_free(pointer, &freed) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

HCS_EXPORT CUresult cuMemGetInfo_v2(size_t *free_bytes, size_t *total_bytes)
{
    CUcontext context;
    CUresult result = hcs_cuda_current(&context);
    if (result != CUDA_SUCCESS)
        return result;
    const struct hcs_card *card = hcs_cuda_card(context->device, NULL);
    uint64_t used = hcs_card_used(card);
    *total_bytes = card->file->total_bytes;
    *free_bytes = used < card->file->total_bytes ? card->file->total_bytes - used : 0;
    return CUDA_SUCCESS;
}

/* ---- copies ------------------------------------------------------------------------------------------------------ */

static CUresult check_range(CUdeviceptr address, size_t bytes)
{
    CUcontext context;
    struct hcs_allocation found;
    CUresult result = hcs_cuda_current(&context);
    if (result != CUDA_SUCCESS)
        return result;
    return hcs_memory_find(address, bytes, &found) || hcs_cuda_mapped(address, bytes) ? CUDA_SUCCESS
                                                                                      : CUDA_ERROR_INVALID_VALUE;
}

static void *host_of(CUdeviceptr address)
{
    return (void *)(uintptr_t)address; // NOLINT
}

HCS_EXPORT CUresult cuMemcpyHtoD_v2(CUdeviceptr destination, const void *source, size_t bytes)
{
    CUresult result = check_range(destination, bytes);
    if (result == CUDA_SUCCESS)
        memcpy(host_of(destination), source, bytes);
    return result;
}

HCS_EXPORT CUresult cuMemcpyDtoH_v2(void *destination, CUdeviceptr source, size_t bytes)
{
    CUresult result = check_range(source, bytes);
    if (result == CUDA_SUCCESS)
        memcpy(destination, host_of(source), bytes);
    return result;
}

HCS_EXPORT CUresult cuMemcpyDtoD_v2(CUdeviceptr destination, CUdeviceptr source, size_t bytes)
{
    CUresult result = check_range(destination, bytes);
    if (result == CUDA_SUCCESS)
        result = check_range(source, bytes);
    if (result == CUDA_SUCCESS)
        memmove(host_of(destination), host_of(source), bytes);
    return result;
}

HCS_EXPORT CUresult cuMemsetD8_v2(CUdeviceptr destination, unsigned char value, size_t count)
{
    CUresult result = check_range(destination, count);
    if (result == CUDA_SUCCESS)
        memset(host_of(destination), value, count);
    return result;
}

HCS_EXPORT CUresult cuMemsetD32_v2(CUdeviceptr destination, unsigned int value, size_t count)
{
    if (destination % 4 != 0 || count > SIZE_MAX / 4)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = check_range(destination, count * 4);
    if (result == CUDA_SUCCESS)
        for (size_t at = 0; at < count; at++)
            memcpy((char *)host_of(destination) + at * 4, &value, sizeof value);
    return result;
}
