/* Emulated Ascend runtime level (libruntime.so): devices, memory, copies. Not Huawei's library and says so in the SoC
 * name. Threads begin without a device, as theirs do. */
#include "ascend.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "card.h"
#include "memory.h"
#include "visible.h"

struct physical {
    uint64_t bytes;
    uint32_t device;
    bool on_host, freed;
    uint32_t mappings;
};

struct mapping {
    void *address;
    struct physical *memory;
    struct mapping *next;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static bool initialised;
static struct hcs_card cards[HCS_MAX_CARDS];
static uint32_t order[HCS_MAX_CARDS]; /* user device id to card */
static uint32_t device_count;
static struct mapping *mappings;

static _Thread_local int32_t current = -1;
static _Thread_local char recent_error[160];

HCS_EXPORT aclError rtEmulatedFailed(aclError code, const char *why)
{
    snprintf(recent_error, sizeof recent_error, "emulated Ascend runtime: %s (error %d)", why, code);
    return code;
}

HCS_EXPORT const char *rtEmulatedRecentError(void)
{
    return recent_error[0] != '\0' ? recent_error : NULL;
}

HCS_EXPORT aclError rtEmulatedStart(void)
{
    pthread_mutex_lock(&lock);
    if (!initialised) {
        uint32_t count = hcs_cards_open("davinci", "ascend", cards);
        device_count = hcs_visible_ascend(getenv("ASCEND_RT_VISIBLE_DEVICES"), count, order);
        initialised = true;
    }
    pthread_mutex_unlock(&lock);
    return ACL_SUCCESS;
}

/* The device's card, or why there is none. A card with a fault answers with the code for a driver that cannot reach its
 * device: 507899. */
static aclError usable(int32_t device, const struct hcs_card **card)
{
    rtEmulatedStart();
    if (device < 0)
        return rtEmulatedFailed(ACL_ERROR_RT_CONTEXT_NULL, "no device is set in this thread");
    if ((uint32_t)device >= device_count)
        return rtEmulatedFailed(ACL_ERROR_RT_INVALID_DEVICEID, "no such device");
    *card = &cards[order[device]];
    if (hcs_card_dead(*card))
        return rtEmulatedFailed(ACL_ERROR_RT_DRV_INTERNAL_ERROR, (*card)->file->fault_name);
    return ACL_SUCCESS;
}

/* ---- devices ----------------------------------------------------------------------------------------------------- */

HCS_EXPORT aclError rtGetDeviceCount(int32_t *count)
{
    rtEmulatedStart();
    *count = (int32_t)device_count;
    return ACL_SUCCESS;
}

HCS_EXPORT aclError rtSetDevice(int32_t device)
{
    const struct hcs_card *card;
    aclError result = usable(device < 0 ? INT32_MAX : device, &card);
    if (result == ACL_SUCCESS)
        current = device;
    return result;
}

HCS_EXPORT aclError rtGetDevice(int32_t *device)
{
    if (current < 0)
        return rtEmulatedFailed(ACL_ERROR_RT_CONTEXT_NULL, "no device is set in this thread");
    *device = current;
    return ACL_SUCCESS;
}

HCS_EXPORT aclError rtDeviceReset(int32_t device)
{
    if (device < 0 || (uint32_t)device >= device_count)
        return rtEmulatedFailed(ACL_ERROR_RT_INVALID_DEVICEID, "no such device");
    if (current == device)
        current = -1;
    return ACL_SUCCESS;
}

HCS_EXPORT aclError rtGetDevicePhyIdByIndex(uint32_t device, uint32_t *physical_id)
{
    if (device >= device_count)
        return rtEmulatedFailed(ACL_ERROR_RT_INVALID_DEVICEID, "no such device");
    *physical_id = cards[order[device]].node;
    return ACL_SUCCESS;
}

HCS_EXPORT aclError rtGetSocVersion(char *name, uint32_t length)
{
    if (device_count == 0)
        return rtEmulatedFailed(ACL_ERROR_RT_INVALID_DEVICEID, "no such device");
    snprintf(name, length, "%s (emulated)", cards[order[0]].file->model);
    return ACL_SUCCESS;
}

HCS_EXPORT aclError rtDeviceSynchronize(void)
{
    const struct hcs_card *card;
    return usable(current, &card);
}

/* ---- memory ------------------------------------------------------------------------------------------------------ */

HCS_EXPORT aclError rtMalloc(void **pointer, uint64_t bytes, uint32_t type, uint16_t module)
{
    (void)type, (void)module;
    const struct hcs_card *card;
    aclError result = usable(current, &card);
    int ordered = hcs_fault_injected(__func__);
    if (result != ACL_SUCCESS || ordered != ACL_SUCCESS)
        return result != ACL_SUCCESS ? result : rtEmulatedFailed(ordered, "ordered by HCS_EMULATED_FAIL");
    if (pointer == NULL || bytes == 0)
        return rtEmulatedFailed(ACL_ERROR_RT_PARAM_INVALID, "nothing to allocate");
    uint32_t index = order[current];
    uint64_t charged = hcs_acl_taken(bytes, 0);
    uint64_t address;
    if (!hcs_card_take(index, card, charged))
        return rtEmulatedFailed(ACL_ERROR_RT_MEMORY_ALLOCATION, "the card's memory is full");
    if (!hcs_memory_allocate(bytes, charged, index, NULL, &address)) {
        hcs_card_give_back(index, card, charged);
        return rtEmulatedFailed(ACL_ERROR_RT_MEMORY_ALLOCATION, "the host has no address space left");
    }
    *pointer = (void *)(uintptr_t)address; // NOLINT
    return ACL_SUCCESS;
}

HCS_EXPORT aclError rtMallocCached(void **pointer, uint64_t bytes, uint32_t type, uint16_t module)
{
    return rtMalloc(pointer, bytes, type, module);
}

HCS_EXPORT aclError rtMemAlloc(void **pointer, uint64_t bytes, uint32_t type, uint16_t module)
{
    return rtMalloc(pointer, bytes, type, module);
}

HCS_EXPORT aclError rtMemAllocManaged(void **pointer, uint64_t bytes, uint32_t flags, uint16_t module)
{
    return rtMalloc(pointer, bytes, flags, module);
}

HCS_EXPORT aclError rtDvppMalloc(void **pointer, uint64_t bytes, uint16_t module)
{
    return rtMalloc(pointer, bytes, 0, module);
}

HCS_EXPORT aclError rtDvppMallocWithFlag(void **pointer, uint64_t bytes, uint32_t flags, uint16_t module)
{
    return rtMalloc(pointer, bytes, flags, module);
}

HCS_EXPORT aclError rtFree(void *pointer)
{
    struct hcs_allocation freed;
    const struct hcs_card *card;
    aclError result = usable(current, &card);
    if (result != ACL_SUCCESS)
        return result;
    if (!hcs_memory_free((uint64_t)(uintptr_t)pointer, &freed))
        return rtEmulatedFailed(ACL_ERROR_RT_PARAM_INVALID, "no device memory starts at this address");
    hcs_card_give_back(freed.card, &cards[freed.card], freed.charged);
    return ACL_SUCCESS;
}

HCS_EXPORT aclError rtFreeWithDevSync(void *pointer)
{
    return rtFree(pointer);
}

HCS_EXPORT aclError rtDvppFree(void *pointer)
{
    return rtFree(pointer);
}

HCS_EXPORT aclError rtMemFreeManaged(void *pointer)
{
    return rtFree(pointer);
}

HCS_EXPORT aclError rtMemGetInfo(size_t *free_bytes, size_t *total_bytes)
{
    const struct hcs_card *card;
    aclError result = usable(current, &card);
    if (result != ACL_SUCCESS)
        return result;
    uint64_t used = hcs_card_used(card);
    *total_bytes = card->file->total_bytes;
    *free_bytes = used < card->file->total_bytes ? card->file->total_bytes - used : 0;
    return ACL_SUCCESS;
}

HCS_EXPORT aclError rtMemGetInfoEx(uint32_t kind, size_t *free_bytes, size_t *total_bytes)
{
    if (kind == ACL_HBM_MEM || kind == ACL_HBM_MEM_HUGE || kind == ACL_HBM_MEM_NORMAL)
        return rtMemGetInfo(free_bytes, total_bytes);
    const struct hcs_card *card;
    *free_bytes = *total_bytes = 0; /* the emulated cards have HBM only */
    return usable(current, &card);
}

/* ---- physical memory --------------------------------------------------------------------------------------------- */

static void bury(struct physical *memory)
{
    if (!memory->freed || memory->mappings != 0)
        return;
    if (!memory->on_host)
        hcs_card_give_back(order[memory->device], &cards[order[memory->device]], memory->bytes);
    free(memory);
}

HCS_EXPORT aclError rtMallocPhysical(aclrtDrvMemHandle *handle, size_t bytes, rtDrvMemProp *properties, uint64_t flags)
{
    (void)flags;
    const struct hcs_card *card;
    bool on_host = properties->side == RT_MEMORY_OF_HOST;
    aclError result = on_host ? ACL_SUCCESS : usable((int32_t)properties->devid, &card);
    if (result != ACL_SUCCESS)
        return result;
    struct physical *memory = calloc(1, sizeof *memory);
    if (memory == NULL || (!on_host && !hcs_card_take(order[properties->devid], card, bytes))) {
        free(memory);
        return rtEmulatedFailed(ACL_ERROR_RT_MEMORY_ALLOCATION, "the card's memory is full");
    }
    *memory = (struct physical){.bytes = bytes, .device = properties->devid, .on_host = on_host};
    *handle = memory;
    return ACL_SUCCESS;
}

HCS_EXPORT aclError rtFreePhysical(aclrtDrvMemHandle handle)
{
    struct physical *memory = handle;
    if (memory == NULL || memory->freed)
        return rtEmulatedFailed(ACL_ERROR_RT_PARAM_INVALID, "no such physical memory");
    memory->freed = true;
    bury(memory);
    return ACL_SUCCESS;
}

HCS_EXPORT aclError rtReserveMemAddress(void **address, size_t bytes, size_t alignment, void *wanted, uint64_t flags)
{
    (void)alignment, (void)flags;
    *address = mmap(wanted, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return *address != MAP_FAILED ? ACL_SUCCESS : ACL_ERROR_RT_MEMORY_ALLOCATION;
}

HCS_EXPORT aclError rtReleaseMemAddress(void *address)
{
    (void)address; /* stays reserved: its length is not known here */
    return ACL_SUCCESS;
}

HCS_EXPORT aclError rtMapMem(void *address, size_t bytes, size_t offset, aclrtDrvMemHandle handle, uint64_t flags)
{
    (void)bytes, (void)offset, (void)flags;
    struct mapping *mapping = calloc(1, sizeof *mapping);
    struct physical *memory = handle;
    if (mapping == NULL || memory == NULL) {
        free(mapping);
        return rtEmulatedFailed(ACL_ERROR_RT_PARAM_INVALID, "nothing to map");
    }
    pthread_mutex_lock(&lock);
    *mapping = (struct mapping){.address = address, .memory = memory, .next = mappings};
    mappings = mapping;
    memory->mappings++;
    pthread_mutex_unlock(&lock);
    return ACL_SUCCESS;
}

HCS_EXPORT aclError rtUnmapMem(void *address)
{
    pthread_mutex_lock(&lock);
    struct mapping **at = &mappings;
    while (*at != NULL && (*at)->address != address)
        at = &(*at)->next;
    struct mapping *found = *at;
    if (found != NULL) {
        *at = found->next;
        found->memory->mappings--;
        bury(found->memory);
        free(found);
    }
    pthread_mutex_unlock(&lock);
    return found != NULL ? ACL_SUCCESS : rtEmulatedFailed(ACL_ERROR_RT_PARAM_INVALID, "nothing is mapped there");
}

/* ---- copies ------------------------------------------------------------------------------------------------------ */

static bool on_device(const void *address, uint64_t bytes)
{
    struct hcs_allocation found;
    return hcs_memory_find((uint64_t)(uintptr_t)address, bytes, &found);
}

HCS_EXPORT aclError rtMemcpy(void *destination, uint64_t room, const void *source, uint64_t bytes, int kind)
{
    const struct hcs_card *card;
    aclError result = usable(current, &card);
    if (result != ACL_SUCCESS)
        return result;
    bool to_device = kind == ACL_MEMCPY_HOST_TO_DEVICE || kind == ACL_MEMCPY_DEVICE_TO_DEVICE;
    bool from_device = kind == ACL_MEMCPY_DEVICE_TO_HOST || kind == ACL_MEMCPY_DEVICE_TO_DEVICE;
    if (bytes > room || (to_device && !on_device(destination, bytes)) || (from_device && !on_device(source, bytes)))
        return rtEmulatedFailed(ACL_ERROR_RT_PARAM_INVALID, "a copy beyond the memory it names");
    memmove(destination, source, bytes);
    return ACL_SUCCESS;
}

HCS_EXPORT aclError rtMemset(void *address, uint64_t room, uint32_t value, uint64_t count)
{
    const struct hcs_card *card;
    aclError result = usable(current, &card);
    if (result != ACL_SUCCESS)
        return result;
    if (count > room || !on_device(address, count))
        return rtEmulatedFailed(ACL_ERROR_RT_PARAM_INVALID, "a fill beyond the memory it names");
    memset(address, (int)value, count);
    return ACL_SUCCESS;
}
