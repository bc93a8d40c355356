/* Emulated CUDA driver: virtual memory management. Physical memory is an anonymous file that can be mapped at several
 * places; it lives while it has a handle or a mapping. Numbers of handles are given out again as soon as they are
 * released, as a real driver may do. */
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "cuda.h"

struct physical {
    uint64_t bytes;
    CUdevice device;
    int file;
    uint32_t references, mappings;
    bool imported; /* a peer's: not charged here */
};

struct mapping {
    uint64_t address, bytes;
    struct physical *memory;
    struct mapping *next;
};

enum { MOST_HANDLES = 65536 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct physical *handles[MOST_HANDLES]; /* handle - 1 */
static uint32_t first_free;                    /* no handle below it is free */
static struct mapping *mappings;

static bool name(struct physical *memory, CUmemGenericAllocationHandle *handle)
{
    for (uint32_t index = first_free; index < MOST_HANDLES; index++)
        if (handles[index] == NULL) {
            handles[index] = memory;
            first_free = index + 1;
            *handle = index + 1;
            return true;
        }
    return false;
}

static struct physical *named(CUmemGenericAllocationHandle handle)
{
    return handle >= 1 && handle <= MOST_HANDLES ? handles[handle - 1] : NULL;
}

static void bury(struct physical *memory)
{
    if (memory->references != 0 || memory->mappings != 0)
        return;
    if (!memory->imported)
        hcs_cuda_give_back(memory->device, memory->bytes);
    if (memory->file >= 0)
        close(memory->file);
    free(memory);
}

HCS_EXPORT CUresult cuMemGetAllocationGranularity(size_t *bytes, const CUmemAllocationProp *properties, int option)
{
    (void)properties, (void)option;
    *bytes = HCS_CUDA_PAGE;
    return CUDA_SUCCESS;
}

HCS_EXPORT CUresult cuMemCreate(CUmemGenericAllocationHandle *handle, size_t bytes,
                                const CUmemAllocationProp *properties, unsigned long long flags)
{
    CUresult result = hcs_cuda_ready();
    HCS_FAULT();
    if (result != CUDA_SUCCESS)
        return result;
    if (properties == NULL || flags != 0 || bytes == 0 || bytes % HCS_CUDA_PAGE != 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (properties->location.type != CU_MEM_LOCATION_TYPE_DEVICE)
        return CUDA_ERROR_NOT_SUPPORTED;
    result = hcs_cuda_health(properties->location.id);
    if (result != CUDA_SUCCESS)
        return result;
    struct physical *memory = calloc(1, sizeof *memory);
    if (memory == NULL || !hcs_cuda_take(properties->location.id, bytes)) {
        free(memory);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *memory = (struct physical){.bytes = bytes, .device = properties->location.id, .file = -1, .references = 1};
    pthread_mutex_lock(&lock);
    if (!name(memory, handle)) {
        memory->references = 0;
        bury(memory);
        result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    pthread_mutex_unlock(&lock);
    return result;
}

HCS_EXPORT CUresult cuMemRelease(CUmemGenericAllocationHandle handle)
{
    HCS_FAULT();
    pthread_mutex_lock(&lock);
    struct physical *memory = named(handle);
    if (memory != NULL && --memory->references == 0) {
        handles[handle - 1] = NULL;
        if (handle - 1 < first_free)
            first_free = (uint32_t)(handle - 1);
        bury(memory);
    }
    pthread_mutex_unlock(&lock);
    return memory != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static struct mapping *covering(CUdeviceptr address)
{
    for (struct mapping *mapping = mappings; mapping != NULL; mapping = mapping->next)
        if (address >= mapping->address && address - mapping->address < mapping->bytes)
            return mapping;
    return NULL;
}

HCS_EXPORT CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle, void *address)
{
    pthread_mutex_lock(&lock);
    struct mapping *mapping = covering((CUdeviceptr)(uintptr_t)address);
    bool found = mapping != NULL;
    if (found && mapping->memory->references == 0)
        found = name(mapping->memory, handle);
    else if (found)
        for (uint32_t index = 0; index < MOST_HANDLES; index++)
            if (handles[index] == mapping->memory)
                *handle = index + 1;
    if (found)
        mapping->memory->references++;
    pthread_mutex_unlock(&lock);
    return found ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* A file descriptor stands for the memory between processes. */
HCS_EXPORT CUresult cuMemExportToShareableHandle(void *shareable, CUmemGenericAllocationHandle handle, int type,
                                                 unsigned long long flags)
{
    (void)type, (void)flags;
    pthread_mutex_lock(&lock);
    struct physical *memory = named(handle);
    if (memory != NULL && memory->file < 0)
        memory->file = memfd_create("emulated device memory", MFD_CLOEXEC);
    bool made = memory != NULL && memory->file >= 0 && ftruncate(memory->file, (off_t)memory->bytes) == 0;
    if (made)
        *(int *)shareable = dup(memory->file);
    pthread_mutex_unlock(&lock);
    return made ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

HCS_EXPORT CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *handle, void *shareable, int type)
{
    (void)type;
    int file = dup((int)(intptr_t)shareable);
    off_t bytes = file >= 0 ? lseek(file, 0, SEEK_END) : -1;
    struct physical *memory = bytes > 0 ? calloc(1, sizeof *memory) : NULL;
    if (memory == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *memory = (struct physical){.bytes = (uint64_t)bytes, .file = file, .references = 1, .imported = true};
    pthread_mutex_lock(&lock);
    bool done = name(memory, handle);
    pthread_mutex_unlock(&lock);
    return done ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

HCS_EXPORT CUresult cuMemAddressReserve(CUdeviceptr *address, size_t bytes, size_t alignment, CUdeviceptr wanted,
                                        unsigned long long flags)
{
    (void)alignment, (void)wanted, (void)flags;
    if (bytes == 0 || bytes % HCS_CUDA_PAGE != 0)
        return CUDA_ERROR_INVALID_VALUE;
    void *memory = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    *address = (CUdeviceptr)(uintptr_t)memory;
    return memory != MAP_FAILED ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

HCS_EXPORT CUresult cuMemAddressFree(CUdeviceptr address, size_t bytes)
{
    return munmap((void *)(uintptr_t)address, bytes) == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE; // NOLINT
}

HCS_EXPORT CUresult cuMemMap(CUdeviceptr address, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle,
                             unsigned long long flags)
{
    (void)flags;
    HCS_FAULT();
    CUresult result = CUDA_ERROR_INVALID_VALUE;
    struct mapping *mapping = calloc(1, sizeof *mapping);
    pthread_mutex_lock(&lock);
    struct physical *memory = named(handle);
    if (mapping != NULL && memory != NULL && offset <= memory->bytes && bytes <= memory->bytes - offset &&
        covering(address) == NULL) {
        if (memory->file < 0)
            memory->file = memfd_create("emulated device memory", MFD_CLOEXEC);
        if (memory->file >= 0 && ftruncate(memory->file, (off_t)memory->bytes) == 0 &&
            mmap((void *)(uintptr_t)address, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, memory->file, // NOLINT
                 (off_t)offset) != MAP_FAILED) {
            *mapping = (struct mapping){.address = address, .bytes = bytes, .memory = memory, .next = mappings};
            mappings = mapping;
            memory->mappings++;
            mapping = NULL;
            result = CUDA_SUCCESS;
        }
    }
    pthread_mutex_unlock(&lock);
    free(mapping);
    return result;
}

HCS_EXPORT CUresult cuMemUnmap(CUdeviceptr address, size_t bytes)
{
    bool found = false;
    pthread_mutex_lock(&lock);
    for (struct mapping **at = &mappings; *at != NULL;) {
        struct mapping *mapping = *at;
        if (mapping->address < address || mapping->address - address >= bytes) {
            at = &mapping->next;
            continue;
        }
        mmap((void *)(uintptr_t)mapping->address, mapping->bytes, PROT_NONE, // NOLINT
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
        *at = mapping->next;
        mapping->memory->mappings--;
        bury(mapping->memory);
        free(mapping);
        found = true;
    }
    pthread_mutex_unlock(&lock);
    return found ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

HCS_EXPORT CUresult cuMemSetAccess(CUdeviceptr address, size_t bytes, const void *access, size_t count)
{
    (void)access, (void)count;
    return hcs_cuda_mapped(address, bytes) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

bool hcs_cuda_mapped(CUdeviceptr address, size_t bytes)
{
    pthread_mutex_lock(&lock);
    bool whole = true;
    while (whole && bytes > 0) {
        struct mapping *mapping = covering(address);
        whole = mapping != NULL;
        if (whole) {
            uint64_t inside = mapping->bytes - (address - mapping->address);
            uint64_t step = inside < bytes ? inside : bytes;
            address += step;
            bytes -= step;
        }
    }
    pthread_mutex_unlock(&lock);
    return whole;
}
