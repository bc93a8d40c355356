/* Emulated Ascend runtime (libascendcl.so): devices, memory, copies. Not Huawei's library and says so in the SoC
 * name. */
#include "../common/acl_abi.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "card.h"
#include "memory.h"
#include "visible.h"

#define HCS_EXPORT __attribute__((visibility("default")))

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static bool initialised;
static struct hcs_card cards[HCS_MAX_CARDS];
static uint32_t card_count;
static uint32_t order[HCS_MAX_CARDS]; /* user device id to card */
static uint32_t device_count;
static char soc_name[sizeof(((struct hcs_card_file *)0)->model) + 16];

static _Thread_local int32_t current = -1;
static _Thread_local char recent_error[160];

static aclError failed(aclError code, const char *why)
{
    snprintf(recent_error, sizeof recent_error, "emulated Ascend runtime: %s (error %d)", why, code);
    return code;
}

HCS_EXPORT aclError aclInit(const char *configuration)
{
    (void)configuration;
    aclError result = ACL_SUCCESS;
    pthread_mutex_lock(&lock);
    if (initialised) {
        result = failed(ACL_ERROR_REPEAT_INITIALIZE, "aclInit was called before");
    } else {
        card_count = hcs_cards_open("davinci", "ascend", cards);
        device_count = hcs_visible_ascend(getenv("ASCEND_RT_VISIBLE_DEVICES"), card_count, order);
        if (device_count > 0)
            snprintf(soc_name, sizeof soc_name, "%s (emulated)", cards[order[0]].file->model);
        initialised = true;
    }
    pthread_mutex_unlock(&lock);
    return result;
}

HCS_EXPORT aclError aclFinalize(void)
{
    /* The cards stay mapped: memory that the program still holds stays charged until it ends. */
    pthread_mutex_lock(&lock);
    bool was = initialised;
    initialised = false;
    pthread_mutex_unlock(&lock);
    return was ? ACL_SUCCESS : ACL_ERROR_UNINITIALIZE;
}

/* The current device's card, or why there is none. A card with a fault answers with the code for a driver that cannot
 * reach its device: 507899. */
static aclError usable(int32_t device, const struct hcs_card **card)
{
    if (!initialised)
        return failed(ACL_ERROR_UNINITIALIZE, "aclInit has not been called");
    if (device < 0)
        return failed(ACL_ERROR_RT_CONTEXT_NULL, "no device is set in this thread");
    if ((uint32_t)device >= device_count)
        return failed(ACL_ERROR_RT_INVALID_DEVICEID, "no such device");
    *card = &cards[order[device]];
    if (hcs_card_dead(*card))
        return failed(ACL_ERROR_RT_DRV_INTERNAL_ERROR, (*card)->file->fault_name);
    return ACL_SUCCESS;
}

HCS_EXPORT const char *aclGetRecentErrMsg(void)
{
    return recent_error[0] != '\0' ? recent_error : NULL;
}

HCS_EXPORT const char *aclrtGetSocName(void)
{
    return soc_name[0] != '\0' ? soc_name : NULL;
}

/* ---- devices ----------------------------------------------------------------------------------------------------- */

HCS_EXPORT aclError aclrtGetDeviceCount(uint32_t *count)
{
    if (!initialised)
        return failed(ACL_ERROR_UNINITIALIZE, "aclInit has not been called");
    *count = device_count;
    return ACL_SUCCESS;
}

HCS_EXPORT aclError aclrtSetDevice(int32_t device)
{
    const struct hcs_card *card;
    aclError result = usable(device < 0 ? INT32_MAX : device, &card);
    if (result == ACL_SUCCESS)
        current = device;
    return result;
}

HCS_EXPORT aclError aclrtGetDevice(int32_t *device)
{
    if (current < 0)
        return failed(ACL_ERROR_RT_CONTEXT_NULL, "no device is set in this thread");
    *device = current;
    return ACL_SUCCESS;
}

HCS_EXPORT aclError aclrtResetDevice(int32_t device)
{
    if (device < 0 || (uint32_t)device >= device_count)
        return failed(ACL_ERROR_RT_INVALID_DEVICEID, "no such device");
    if (current == device)
        current = -1;
    return ACL_SUCCESS;
}

HCS_EXPORT aclError aclrtGetPhyDevIdByUserDevId(int32_t device, int32_t *physical_id)
{
    if (device < 0 || (uint32_t)device >= device_count)
        return failed(ACL_ERROR_RT_INVALID_DEVICEID, "no such device");
    *physical_id = (int32_t)cards[order[device]].node;
    return ACL_SUCCESS;
}

HCS_EXPORT aclError aclrtGetPhyDevIdByLogicDevId(int32_t device, int32_t *physical_id)
{
    return aclrtGetPhyDevIdByUserDevId(device, physical_id);
}

HCS_EXPORT aclError aclrtSynchronizeDevice(void)
{
    const struct hcs_card *card;
    return usable(current, &card);
}

/* ---- memory ------------------------------------------------------------------------------------------------------ */

static aclError take(void **pointer, size_t bytes, uint64_t extra)
{
    const struct hcs_card *card;
    aclError result = usable(current, &card);
    if (result != ACL_SUCCESS)
        return result;
    if (pointer == NULL || bytes == 0)
        return failed(ACL_ERROR_RT_PARAM_INVALID, "nothing to allocate");
    uint32_t index = order[current];
    uint64_t charged = hcs_acl_taken(bytes, extra);
    uint64_t address;
    if (!hcs_card_take(index, card, charged))
        return failed(ACL_ERROR_RT_MEMORY_ALLOCATION, "the card's memory is full");
    if (!hcs_memory_allocate(bytes, charged, index, NULL, &address)) {
        hcs_card_give_back(index, card, charged);
        return failed(ACL_ERROR_RT_MEMORY_ALLOCATION, "the host has no address space left");
    }
    *pointer = (void *)(uintptr_t)address; // NOLINT
    return ACL_SUCCESS;
}

HCS_EXPORT aclError aclrtMalloc(void **pointer, size_t bytes, aclrtMemMallocPolicy policy)
{
    (void)policy;
    return take(pointer, bytes, HCS_ACL_UNIT);
}

HCS_EXPORT aclError aclrtMallocCached(void **pointer, size_t bytes, aclrtMemMallocPolicy policy)
{
    (void)policy;
    return take(pointer, bytes, HCS_ACL_UNIT);
}

HCS_EXPORT aclError aclrtMallocAlign32(void **pointer, size_t bytes, aclrtMemMallocPolicy policy)
{
    (void)policy;
    return take(pointer, bytes, 0);
}

HCS_EXPORT aclError aclrtFree(void *pointer)
{
    struct hcs_allocation freed;
    const struct hcs_card *card;
    aclError result = usable(current, &card);
    if (result != ACL_SUCCESS)
        return result;
    if (!hcs_memory_free((uint64_t)(uintptr_t)pointer, &freed))
        return failed(ACL_ERROR_RT_PARAM_INVALID, "no device memory starts at this address");
    hcs_card_give_back(freed.card, &cards[freed.card], freed.charged);
    return ACL_SUCCESS;
}

HCS_EXPORT aclError aclrtGetMemInfo(aclrtMemAttr attribute, size_t *free_bytes, size_t *total_bytes)
{
    const struct hcs_card *card;
    aclError result = usable(current, &card);
    if (result != ACL_SUCCESS)
        return result;
    *free_bytes = *total_bytes = 0;
    if (attribute != ACL_HBM_MEM && attribute != ACL_HBM_MEM_HUGE && attribute != ACL_HBM_MEM_NORMAL)
        return ACL_SUCCESS; /* the emulated cards have HBM only */
    uint64_t used = hcs_card_used(card);
    *total_bytes = card->file->total_bytes;
    *free_bytes = used < card->file->total_bytes ? card->file->total_bytes - used : 0;
    return ACL_SUCCESS;
}

static bool on_device(const void *address, size_t bytes)
{
    struct hcs_allocation found;
    return hcs_memory_find((uint64_t)(uintptr_t)address, bytes, &found);
}

HCS_EXPORT aclError aclrtMemcpy(void *destination, size_t room, const void *source, size_t bytes, aclrtMemcpyKind kind)
{
    const struct hcs_card *card;
    aclError result = usable(current, &card);
    if (result != ACL_SUCCESS)
        return result;
    bool to_device = kind == ACL_MEMCPY_HOST_TO_DEVICE || kind == ACL_MEMCPY_DEVICE_TO_DEVICE;
    bool from_device = kind == ACL_MEMCPY_DEVICE_TO_HOST || kind == ACL_MEMCPY_DEVICE_TO_DEVICE;
    if (bytes > room || (to_device && !on_device(destination, bytes)) || (from_device && !on_device(source, bytes)))
        return failed(ACL_ERROR_RT_PARAM_INVALID, "a copy beyond the memory it names");
    memmove(destination, source, bytes);
    return ACL_SUCCESS;
}

HCS_EXPORT aclError aclrtMemset(void *address, size_t room, int32_t value, size_t count)
{
    const struct hcs_card *card;
    aclError result = usable(current, &card);
    if (result != ACL_SUCCESS)
        return result;
    if (count > room || !on_device(address, count))
        return failed(ACL_ERROR_RT_PARAM_INVALID, "a fill beyond the memory it names");
    memset(address, value, count);
    return ACL_SUCCESS;
}
