/* Emulated HIP runtime (libamdhip64.so): devices, memory, arrays, a pool, physical memory. Like the real one it calls its
 * own exported functions through the loader, which is what makes preloading them a bad idea. */
#include "hip.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/mman.h>

#include "memory.h"
#include "vdcu.h"
#include "visible.h"

struct ihipMemPoolHandle_t {
    int device;
    uint64_t reserved, used;
};

struct ihipMemGenericAllocationHandle {
    uint64_t bytes;
    int device;
    uint32_t references, mappings;
};

struct mapping {
    uint64_t address;
    hipMemHandle memory;
    struct mapping *next;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static bool initialised;
static struct hcs_card cards[HCS_MAX_CARDS];
static uint32_t order[HCS_MAX_CARDS], device_count;
static struct ihipMemPoolHandle_t pools[HCS_MAX_CARDS];
static struct mapping *mappings;
static _Thread_local int current;

static enum hcs_vdcu_state split;
static struct hcs_vdcu part; /* of the one device there is then */

static bool same_place(const char *left, const char *right)
{
    while (*left == '0')
        left++;
    while (*right == '0')
        right++;
    return strcasecmp(left, right) == 0;
}

/* A container with a virtual DCU has that and nothing else; with a record that is none, nothing at all. */
static void keep_the_part(void)
{
    uint32_t kept = 0;
    for (uint32_t device = 0; split == HCS_VDCU_GOOD && device < device_count; device++)
        if (kept == 0 && same_place(cards[order[device]].file->bus_id, part.bus_id))
            order[kept++] = order[device];
    device_count = kept;
}

/* Marks of the books: what holds a container to a part is counted under the part's pipe. */
static uint32_t mark_of_part(void)
{
    return (uint32_t)part.pipe + 1;
}

HCS_EXPORT hipError_t hipInit(unsigned int flags)
{
    (void)flags;
    pthread_mutex_lock(&lock);
    if (!initialised) {
        uint32_t count = hcs_cards_open("emulated-hygon", "hygon", cards);
        device_count = hcs_visible_cuda(getenv("HIP_VISIBLE_DEVICES"), cards, count, order);
        split = hcs_vdcu_read(&part);
        if (split != HCS_VDCU_NONE)
            keep_the_part();
        initialised = true;
    }
    pthread_mutex_unlock(&lock);
    return device_count > 0 ? hipSuccess : hipErrorNoDevice;
}

hipError_t hcs_hip_usable(int device, const struct hcs_card **card)
{
    hipError_t result = hipInit(0);
    if (result != hipSuccess)
        return result;
    if (device < 0 || (uint32_t)device >= device_count)
        return hipErrorInvalidDevice;
    *card = &cards[order[device]];
    return hcs_card_dead(*card) ? hipErrorUnknown : hipSuccess;
}

int hcs_hip_current(void)
{
    return current;
}

bool hcs_hip_take(int device, uint64_t bytes)
{
    const struct hcs_card *card = &cards[order[device]];
    if (split == HCS_VDCU_GOOD)
        hcs_card_mark(order[device], card, mark_of_part());
    if (!hcs_card_take(order[device], card, bytes))
        return false;
    if (split != HCS_VDCU_GOOD || hcs_card_used_under(card, mark_of_part()) <= part.bytes)
        return true;
    hcs_card_give_back(order[device], card, bytes);
    return false;
}

void hcs_hip_give_back(int device, uint64_t bytes)
{
    hcs_card_give_back(order[device], &cards[order[device]], bytes);
}

HCS_EXPORT hipError_t hipGetDeviceCount(int *count)
{
    hipError_t result = hipInit(0);
    *count = (int)device_count;
    return result;
}

HCS_EXPORT hipError_t hipSetDevice(int device)
{
    const struct hcs_card *card;
    hipError_t result = hcs_hip_usable(device, &card);
    if (result == hipSuccess)
        current = device;
    return result;
}

HCS_EXPORT hipError_t hipGetDevice(int *device)
{
    *device = current;
    return hipInit(0);
}

HCS_EXPORT hipError_t hipDeviceGetName(char *name, int length, int device)
{
    const struct hcs_card *card;
    hipError_t result = hcs_hip_usable(device, &card);
    if (result == hipSuccess && length > 0)
        snprintf(name, (size_t)length, "%s (emulated)", card->file->model);
    return result;
}

HCS_EXPORT hipError_t hipDeviceGetUuid(hipUUID *uuid, int device)
{
    const struct hcs_card *card;
    hipError_t result = hcs_hip_usable(device, &card);
    if (result != hipSuccess)
        return result;
    const char *text = strncmp(card->file->uuid, "GPU-", 4) == 0 ? card->file->uuid + 4 : card->file->uuid;
    memset(uuid, 0, sizeof *uuid);
    memcpy(uuid->bytes, text, strnlen(text, sizeof uuid->bytes));
    return hipSuccess;
}

HCS_EXPORT hipError_t hipDeviceGetPCIBusId(char *text, int length, int device)
{
    const struct hcs_card *card;
    hipError_t result = hcs_hip_usable(device, &card);
    if (result == hipSuccess && length > 0)
        snprintf(text, (size_t)length, "%s", card->file->bus_id);
    return result;
}

static uint64_t total_of(const struct hcs_card *card)
{
    return split == HCS_VDCU_GOOD ? part.bytes : card->file->total_bytes;
}

/* hipDeviceAttributeMultiprocessorCount; 64 where the card is whole. */
HCS_EXPORT hipError_t hipDeviceGetAttribute(int *value, int attribute, int device)
{
    enum { MULTIPROCESSORS = 63, ALL = 64 };
    const struct hcs_card *card;
    hipError_t result = hcs_hip_usable(device, &card);
    if (result == hipSuccess && attribute != MULTIPROCESSORS)
        result = hipErrorNotSupported;
    if (result == hipSuccess)
        *value = split == HCS_VDCU_GOOD ? part.compute_units : ALL;
    return result;
}

HCS_EXPORT hipError_t hipDeviceTotalMem(size_t *bytes, int device)
{
    const struct hcs_card *card;
    hipError_t result = hcs_hip_usable(device, &card);
    if (result == hipSuccess)
        *bytes = total_of(card);
    return result;
}

HCS_EXPORT hipError_t hipMemGetInfo(size_t *free_bytes, size_t *total_bytes)
{
    const struct hcs_card *card;
    hipError_t result = hcs_hip_usable(current, &card);
    if (result != hipSuccess)
        return result;
    uint64_t used = split == HCS_VDCU_GOOD ? hcs_card_used_under(card, mark_of_part()) : hcs_card_used(card);
    *total_bytes = total_of(card);
    *free_bytes = used < *total_bytes ? *total_bytes - used : 0;
    return hipSuccess;
}

/* ---- memory ------------------------------------------------------------------------------------------------------ */

static hipError_t take(void **pointer, uint64_t bytes, uint64_t charged, hipMemPool_t pool)
{
    const struct hcs_card *card;
    hipError_t result = hcs_hip_usable(current, &card);
    uint32_t index = order[current];
    uint64_t address;
    if (result != hipSuccess)
        return result;
    if (bytes == 0) {
        *pointer = NULL;
        return hipSuccess;
    }
    if (!hcs_hip_take(current, charged))
        return hipErrorOutOfMemory;
    if (!hcs_memory_allocate(bytes, charged, index, pool, &address)) {
        hcs_card_give_back(index, card, charged);
        return hipErrorOutOfMemory;
    }
    *pointer = (void *)(uintptr_t)address; // NOLINT
    return hipSuccess;
}

HCS_EXPORT hipError_t hipExtMallocWithFlags(void **pointer, size_t bytes, unsigned int flags)
{
    (void)flags;
    return take(pointer, bytes, hcs_hip_taken(bytes), NULL);
}

/* As in the real library one exported function calls another. */
HCS_EXPORT hipError_t hipMalloc(void **pointer, size_t bytes)
{
    return hipExtMallocWithFlags(pointer, bytes, 0);
}

HCS_EXPORT hipError_t hipMallocManaged(void **pointer, size_t bytes, unsigned int flags)
{
    (void)flags;
    return hipMalloc(pointer, bytes);
}

HCS_EXPORT hipError_t hipMallocPitch(void **pointer, size_t *pitch, size_t width, size_t height)
{
    *pitch = (width + 255) / 256 * 256;
    return hipMalloc(pointer, *pitch * height);
}

HCS_EXPORT hipError_t hipMemAllocPitch(void **pointer, size_t *pitch, size_t width, size_t height, unsigned int element)
{
    (void)element;
    return hipMallocPitch(pointer, pitch, width, height);
}

HCS_EXPORT hipError_t hipMalloc3D(hipPitchedPtr *pitched, hipExtent extent)
{
    return hipMallocPitch(&pitched->ptr, &pitched->pitch, extent.width, extent.height * extent.depth);
}

HCS_EXPORT hipError_t hipFree(void *pointer)
{
    struct hcs_allocation freed;
    if (pointer == NULL)
        return hipSuccess;
    if (!hcs_memory_free((uint64_t)(uintptr_t)pointer, &freed))
        return hipErrorInvalidValue;
    if (freed.owner != NULL) /* it came from a pool, which keeps nothing */
        for (uint32_t device = 0; device < device_count; device++)
            if (freed.owner == &pools[device])
                pools[device].reserved -= freed.charged;
    hcs_card_give_back(freed.card, &cards[freed.card], freed.charged);
    return hipSuccess;
}

HCS_EXPORT hipError_t hipHostMalloc(void **pointer, size_t bytes, unsigned int flags)
{
    (void)flags;
    *pointer = malloc(bytes);
    return *pointer != NULL ? hipSuccess : hipErrorOutOfMemory;
}

HCS_EXPORT hipError_t hipMallocMipmappedArray(hipArray_t *array, const hipChannelFormatDesc *channels, hipExtent extent,
                                              unsigned int levels, unsigned int flags)
{
    (void)flags;
    uint64_t bytes = hcs_hip_array_taken(hcs_hip_element(channels), extent, levels);
    return take(array, bytes, bytes, NULL);
}

HCS_EXPORT hipError_t hipMalloc3DArray(hipArray_t *array, const hipChannelFormatDesc *channels, hipExtent extent,
                                       unsigned int flags)
{
    return hipMallocMipmappedArray(array, channels, extent, 1, flags);
}

HCS_EXPORT hipError_t hipMallocArray(hipArray_t *array, const hipChannelFormatDesc *channels, size_t width,
                                     size_t height, unsigned int flags)
{
    return hipMalloc3DArray(array, channels, (hipExtent){width, height, 1}, flags);
}

HCS_EXPORT hipError_t hipArray3DCreate(hipArray_t *array, const HIP_ARRAY3D_DESCRIPTOR *wanted)
{
    uint64_t bytes = hcs_hip_array_taken(hcs_hip_format_bytes(wanted->Format, wanted->NumChannels),
                                         (hipExtent){wanted->Width, wanted->Height, wanted->Depth}, 1);
    return take(array, bytes, bytes, NULL);
}

HCS_EXPORT hipError_t hipArrayCreate(hipArray_t *array, const HIP_ARRAY_DESCRIPTOR *wanted)
{
    HIP_ARRAY3D_DESCRIPTOR described = {
        .Width = wanted->Width, .Height = wanted->Height, .Format = wanted->Format, .NumChannels = wanted->NumChannels};
    return hipArray3DCreate(array, &described);
}

HCS_EXPORT hipError_t hipFreeArray(hipArray_t array)
{
    return hipFree(array);
}

HCS_EXPORT hipError_t hipArrayDestroy(hipArray_t array)
{
    return hipFree(array);
}

HCS_EXPORT hipError_t hipFreeMipmappedArray(hipArray_t array)
{
    return hipFree(array);
}

/* ---- stream-ordered: one pool per device that keeps nothing ------------------------------------------------------ */

HCS_EXPORT hipError_t hipDeviceGetMemPool(hipMemPool_t *pool, int device)
{
    *pool = &pools[device];
    pools[device].device = device;
    return hipSuccess;
}

HCS_EXPORT hipError_t hipMemPoolGetAttribute(hipMemPool_t pool, int attribute, void *value)
{
    uint64_t answer = attribute == hipMemPoolAttrReservedMemCurrent ? pool->reserved : pool->used;
    memcpy(value, &answer, sizeof answer);
    return hipSuccess;
}

HCS_EXPORT hipError_t hipMemPoolTrimTo(hipMemPool_t pool, size_t keep)
{
    (void)pool, (void)keep;
    return hipSuccess;
}

HCS_EXPORT hipError_t hipMallocFromPoolAsync(void **pointer, size_t bytes, hipMemPool_t pool, hipStream_t stream)
{
    if (stream != NULL && stream->capture != NULL)
        return hcs_hip_capture_allocation(stream->capture, pool->device, bytes, pointer);
    hipError_t result = take(pointer, bytes, hcs_hip_taken(bytes), pool);
    if (result == hipSuccess)
        pool->reserved += hcs_hip_taken(bytes);
    return result;
}

HCS_EXPORT hipError_t hipMallocAsync(void **pointer, size_t bytes, hipStream_t stream)
{
    hipMemPool_t pool;
    hipDeviceGetMemPool(&pool, current);
    return hipMallocFromPoolAsync(pointer, bytes, pool, stream);
}

HCS_EXPORT hipError_t hipFreeAsync(void *pointer, hipStream_t stream)
{
    (void)stream;
    return hipFree(pointer);
}

HCS_EXPORT hipError_t hipDeviceSynchronize(void)
{
    const struct hcs_card *card;
    return hcs_hip_usable(current, &card);
}

HCS_EXPORT hipError_t hipStreamSynchronize(hipStream_t stream)
{
    (void)stream;
    return hipDeviceSynchronize();
}

HCS_EXPORT hipError_t hipStreamSynchronize_spt(hipStream_t stream)
{
    return hipStreamSynchronize(stream);
}

HCS_EXPORT hipError_t hipEventSynchronize(hipEvent_t event)
{
    (void)event;
    return hipDeviceSynchronize();
}

/* ---- physical memory --------------------------------------------------------------------------------------------- */

static void bury(hipMemHandle memory)
{
    if (memory->references != 0 || memory->mappings != 0)
        return;
    hcs_card_give_back(order[memory->device], &cards[order[memory->device]], memory->bytes);
    free(memory);
}

HCS_EXPORT hipError_t hipMemCreate(hipMemHandle *handle, size_t bytes, const hipMemAllocationProp *properties,
                                   unsigned long long flags)
{
    (void)flags;
    const struct hcs_card *card;
    hipError_t result = hcs_hip_usable(properties->location.id, &card);
    if (result != hipSuccess)
        return result;
    hipMemHandle memory = calloc(1, sizeof *memory);
    if (memory == NULL || !hcs_hip_take(properties->location.id, bytes)) {
        free(memory);
        return hipErrorOutOfMemory;
    }
    *memory = (struct ihipMemGenericAllocationHandle){
        .bytes = bytes, .device = properties->location.id, .references = 1};
    *handle = memory;
    return hipSuccess;
}

HCS_EXPORT hipError_t hipMemRelease(hipMemHandle handle)
{
    handle->references--;
    bury(handle);
    return hipSuccess;
}

HCS_EXPORT hipError_t hipMemAddressReserve(void **address, size_t bytes, size_t alignment, void *wanted,
                                           unsigned long long flags)
{
    (void)alignment, (void)flags;
    *address = mmap(wanted, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return *address != MAP_FAILED ? hipSuccess : hipErrorOutOfMemory;
}

HCS_EXPORT hipError_t hipMemMap(void *address, size_t bytes, size_t offset, hipMemHandle handle,
                                unsigned long long flags)
{
    (void)bytes, (void)offset, (void)flags;
    struct mapping *mapping = calloc(1, sizeof *mapping);
    if (mapping == NULL)
        return hipErrorOutOfMemory;
    pthread_mutex_lock(&lock);
    *mapping = (struct mapping){.address = (uint64_t)(uintptr_t)address, .memory = handle, .next = mappings};
    mappings = mapping;
    handle->mappings++;
    pthread_mutex_unlock(&lock);
    return hipSuccess;
}

HCS_EXPORT hipError_t hipMemUnmap(void *address, size_t bytes)
{
    (void)bytes;
    pthread_mutex_lock(&lock);
    struct mapping **at = &mappings;
    while (*at != NULL && (*at)->address != (uint64_t)(uintptr_t)address)
        at = &(*at)->next;
    struct mapping *found = *at;
    if (found != NULL) {
        *at = found->next;
        found->memory->mappings--;
        bury(found->memory);
        free(found);
    }
    pthread_mutex_unlock(&lock);
    return found != NULL ? hipSuccess : hipErrorInvalidValue;
}

HCS_EXPORT hipError_t hipDeviceReset(void)
{
    struct hcs_allocation freed;
    hipError_t result = hipDeviceSynchronize();
    while (result == hipSuccess && hcs_memory_free_owned(NULL, &freed))
        hcs_card_give_back(freed.card, &cards[freed.card], freed.charged);
    return result;
}

HCS_EXPORT hipError_t hipGetProcAddress(const char *name, void **function, int version, uint64_t flags, int *status)
{
    (void)version, (void)flags;
#define ENTRY(name) {#name, (void *)name}
    static const struct {
        const char *name;
        void *function;
    } functions[] = {ENTRY(hipMalloc), ENTRY(hipFree), ENTRY(hipMemGetInfo), ENTRY(hipInit), ENTRY(hipSetDevice)};
#undef ENTRY
    *function = NULL;
    for (size_t index = 0; index < sizeof functions / sizeof *functions; index++)
        if (strcmp(functions[index].name, name) == 0)
            *function = functions[index].function;
    if (status != NULL)
        *status = *function == NULL;
    return *function != NULL ? hipSuccess : hipErrorNotFound;
}
