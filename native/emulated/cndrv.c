/* Emulated Cambricon driver (libcndrv.so): devices, contexts, memory, copies. Not Cambricon's library and says so in the
 * device name. */
#include "../common/cndrv_abi.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "card.h"
#include "memory.h"
#include "visible.h"

#define HCS_EXPORT __attribute__((visibility("default")))

struct CNctx_st {
    CNdev device;
    int references;
};

struct physical {
    uint64_t bytes;
    CNdev device;
    bool released;
    uint32_t mappings;
    struct physical *next;
};

struct mapping {
    CNaddr address;
    struct physical *memory;
    struct mapping *next;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static bool initialised;
static struct hcs_card cards[HCS_MAX_CARDS];
static uint32_t order[HCS_MAX_CARDS], device_count;
static struct CNctx_st shared[HCS_MAX_CARDS];
static struct mapping *mappings;
static _Thread_local CNcontext current;

HCS_EXPORT CNresult cnInit(unsigned int flags)
{
    (void)flags;
    pthread_mutex_lock(&lock);
    if (!initialised) {
        uint32_t count = hcs_cards_open("cambricon_dev", "cambricon", cards);
        device_count = hcs_visible_cuda(getenv("MLU_VISIBLE_DEVICES"), cards, count, order);
        initialised = true;
    }
    pthread_mutex_unlock(&lock);
    return device_count > 0 ? CN_SUCCESS : CN_ERROR_NO_DEVICE;
}

static CNresult usable(CNdev device, const struct hcs_card **card)
{
    if (!initialised)
        return CN_ERROR_NOT_INITIALIZED;
    if (device < 0 || (uint32_t)device >= device_count)
        return CN_ERROR_INVALID_DEVICE;
    *card = &cards[order[device]];
    return hcs_card_dead(*card) ? CN_ERROR_UNKNOWN : CN_SUCCESS;
}

HCS_EXPORT CNresult cnDeviceGetCount(int *count)
{
    *count = (int)device_count;
    return initialised ? CN_SUCCESS : CN_ERROR_NOT_INITIALIZED;
}

HCS_EXPORT CNresult cnDeviceGet(CNdev *device, int ordinal)
{
    const struct hcs_card *card;
    *device = ordinal;
    return usable(ordinal, &card);
}

HCS_EXPORT CNresult cnDeviceGetName(char *name, int length, CNdev device)
{
    const struct hcs_card *card;
    CNresult result = usable(device, &card);
    if (result == CN_SUCCESS && length > 0)
        snprintf(name, (size_t)length, "%s (emulated)", card->file->model);
    return result;
}

HCS_EXPORT CNresult cnDeviceGetUuid(CNuuid *uuid, CNdev device)
{
    const struct hcs_card *card;
    CNresult result = usable(device, &card);
    if (result != CN_SUCCESS)
        return result;
    int nibbles = 0;
    const char *text = card->file->uuid;
    memset(uuid, 0, sizeof *uuid);
    if (strncmp(text, "MLU-", 4) == 0)
        text += 4;
    for (; *text != '\0' && nibbles < 32; text++) {
        static const char digits[] = "0123456789abcdef";
        const char *digit = strchr(digits, *text);
        if (digit == NULL)
            continue;
        uuid->bytes[nibbles / 2] |= (unsigned char)((digit - digits) << (nibbles % 2 ? 0 : 4));
        nibbles++;
    }
    return CN_SUCCESS;
}

HCS_EXPORT CNresult cnDeviceGetPCIBusId(char *text, int length, CNdev device)
{
    const struct hcs_card *card;
    CNresult result = usable(device, &card);
    if (result == CN_SUCCESS && length > 0)
        snprintf(text, (size_t)length, "%s", card->file->bus_id);
    return result;
}

HCS_EXPORT CNresult cnDeviceTotalMem(uint64_t *bytes, CNdev device)
{
    const struct hcs_card *card;
    CNresult result = usable(device, &card);
    if (result == CN_SUCCESS)
        *bytes = card->file->total_bytes;
    return result;
}

/* ---- contexts ---------------------------------------------------------------------------------------------------- */

HCS_EXPORT CNresult cnCtxCreate(CNcontext *context, unsigned int flags, CNdev device)
{
    (void)flags;
    const struct hcs_card *card;
    CNresult result = usable(device, &card);
    if (result != CN_SUCCESS)
        return result;
    CNcontext fresh = calloc(1, sizeof *fresh);
    if (fresh == NULL)
        return CN_MEMORY_ERROR_OUT_OF_MEMORY;
    *fresh = (struct CNctx_st){.device = device, .references = 1};
    current = *context = fresh;
    return CN_SUCCESS;
}

static void free_owned(const void *context)
{
    struct hcs_allocation freed;
    while (hcs_memory_free_owned(context, &freed))
        hcs_card_give_back(freed.card, &cards[freed.card], freed.charged);
}

HCS_EXPORT CNresult cnCtxDestroy(CNcontext context)
{
    if (context == NULL)
        return CN_CONTEXT_ERROR_INVALID;
    free_owned(context);
    if (current == context)
        current = NULL;
    free(context);
    return CN_SUCCESS;
}

HCS_EXPORT CNresult cnCtxSetCurrent(CNcontext context)
{
    current = context;
    return CN_SUCCESS;
}

HCS_EXPORT CNresult cnCtxGetCurrent(CNcontext *context)
{
    *context = current;
    return initialised ? CN_SUCCESS : CN_ERROR_NOT_INITIALIZED;
}

HCS_EXPORT CNresult cnCtxGetDevice(CNdev *device)
{
    if (current == NULL)
        return CN_CONTEXT_ERROR_INVALID;
    *device = current->device;
    return CN_SUCCESS;
}

HCS_EXPORT CNresult cnSharedContextAcquire(CNcontext *context, CNdev device)
{
    const struct hcs_card *card;
    CNresult result = usable(device, &card);
    if (result != CN_SUCCESS)
        return result;
    shared[device].device = device;
    shared[device].references++;
    *context = &shared[device];
    return CN_SUCCESS;
}

HCS_EXPORT CNresult cnSharedContextRelease(CNdev device)
{
    shared[device].references--;
    return CN_SUCCESS;
}

HCS_EXPORT CNresult cnSharedContextReset(CNdev device)
{
    free_owned(&shared[device]);
    return CN_SUCCESS;
}

/* ---- memory ------------------------------------------------------------------------------------------------------ */

static CNresult take(CNaddr *pointer, uint64_t bytes)
{
    const struct hcs_card *card;
    CNresult result = current != NULL ? usable(current->device, &card) : CN_CONTEXT_ERROR_INVALID;
    if (result != CN_SUCCESS)
        return result;
    uint32_t index = order[current->device];
    uint64_t charged = hcs_cndrv_taken(bytes);
    if (bytes == 0)
        return CN_ERROR_INVALID_VALUE;
    if (!hcs_card_take(index, card, charged))
        return CN_MEMORY_ERROR_OUT_OF_MEMORY;
    if (hcs_memory_allocate(bytes, charged, index, current, pointer))
        return CN_SUCCESS;
    hcs_card_give_back(index, card, charged);
    return CN_MEMORY_ERROR_OUT_OF_MEMORY;
}

#define PLAIN(name)                                                                                                    \
    HCS_EXPORT CNresult name(CNaddr *pointer, uint64_t bytes)                                                          \
    {                                                                                                                  \
        return take(pointer, bytes);                                                                                   \
    }
#define ON_NODE(name)                                                                                                  \
    HCS_EXPORT CNresult name(CNaddr *pointer, uint64_t bytes, int node)                                                \
    {                                                                                                                  \
        (void)node;                                                                                                    \
        return take(pointer, bytes);                                                                                   \
    }

PLAIN(cnMalloc)
PLAIN(cnZmalloc)
PLAIN(cnMallocSecurity)
PLAIN(cnMallocConstant)
PLAIN(cnMallocPeerAble)
ON_NODE(cnMallocNode)
ON_NODE(cnZmallocNode)
ON_NODE(cnMallocNodeConstant)
ON_NODE(cnMallocFrameBuffer)

HCS_EXPORT CNresult cnFree(CNaddr pointer)
{
    struct hcs_allocation freed;
    if (!hcs_memory_free(pointer, &freed))
        return CN_ERROR_INVALID_VALUE;
    hcs_card_give_back(freed.card, &cards[freed.card], freed.charged);
    return CN_SUCCESS;
}

HCS_EXPORT CNresult cnMallocHost(void **pointer, uint64_t bytes)
{
    *pointer = malloc(bytes);
    return *pointer != NULL ? CN_SUCCESS : CN_MEMORY_ERROR_OUT_OF_MEMORY;
}

HCS_EXPORT CNresult cnMemGetInfo(uint64_t *free_bytes, uint64_t *total_bytes)
{
    const struct hcs_card *card;
    CNresult result = current != NULL ? usable(current->device, &card) : CN_CONTEXT_ERROR_INVALID;
    if (result != CN_SUCCESS)
        return result;
    uint64_t used = hcs_card_used(card);
    *total_bytes = card->file->total_bytes;
    *free_bytes = used < *total_bytes ? *total_bytes - used : 0;
    return CN_SUCCESS;
}

HCS_EXPORT CNresult cnMemGetNodeInfo(uint64_t *free_bytes, uint64_t *total_bytes, int node)
{
    return node == 0 ? cnMemGetInfo(free_bytes, total_bytes) : CN_ERROR_INVALID_VALUE;
}

/* ---- physical memory --------------------------------------------------------------------------------------------- */

static void bury(struct physical *memory)
{
    if (!memory->released || memory->mappings != 0)
        return;
    hcs_card_give_back(order[memory->device], &cards[order[memory->device]], memory->bytes);
    free(memory);
}

HCS_EXPORT CNresult cnMemCreate(CNmemHandle *handle, size_t bytes, const CNmemAllocationProp *properties,
                                unsigned long long flags)
{
    (void)flags;
    const struct hcs_card *card;
    CNresult result = usable(properties->location.id, &card);
    if (result != CN_SUCCESS)
        return result;
    struct physical *memory = calloc(1, sizeof *memory);
    if (memory == NULL || !hcs_card_take(order[properties->location.id], card, bytes)) {
        free(memory);
        return CN_MEMORY_ERROR_OUT_OF_MEMORY;
    }
    *memory = (struct physical){.bytes = bytes, .device = properties->location.id};
    *handle = (CNmemHandle)(uintptr_t)memory;
    return CN_SUCCESS;
}

HCS_EXPORT CNresult cnMemRelease(CNmemHandle handle)
{
    struct physical *memory = (struct physical *)(uintptr_t)handle; // NOLINT
    if (memory == NULL || memory->released)
        return CN_ERROR_INVALID_VALUE;
    memory->released = true;
    bury(memory);
    return CN_SUCCESS;
}

HCS_EXPORT CNresult cnMemAddressReserve(CNaddr *address, size_t bytes, size_t alignment, CNaddr wanted,
                                        unsigned long long flags)
{
    (void)alignment, (void)wanted, (void)flags;
    void *memory = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    *address = (CNaddr)(uintptr_t)memory;
    return memory != MAP_FAILED ? CN_SUCCESS : CN_MEMORY_ERROR_OUT_OF_MEMORY;
}

HCS_EXPORT CNresult cnMemMap(CNaddr address, size_t bytes, size_t offset, CNmemHandle handle, unsigned long long flags)
{
    (void)bytes, (void)offset, (void)flags;
    struct physical *memory = (struct physical *)(uintptr_t)handle; // NOLINT
    struct mapping *mapping = calloc(1, sizeof *mapping);
    if (mapping == NULL || memory == NULL) {
        free(mapping);
        return CN_ERROR_INVALID_VALUE;
    }
    pthread_mutex_lock(&lock);
    *mapping = (struct mapping){.address = address, .memory = memory, .next = mappings};
    mappings = mapping;
    memory->mappings++;
    pthread_mutex_unlock(&lock);
    return CN_SUCCESS;
}

HCS_EXPORT CNresult cnMemUnmap(CNaddr address, size_t bytes)
{
    (void)bytes;
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
    return found != NULL ? CN_SUCCESS : CN_ERROR_INVALID_VALUE;
}

/* ---- copies and functions by name --------------------------------------------------------------------------------- */

HCS_EXPORT CNresult cnMemcpyHtoD(CNaddr destination, const void *source, uint64_t bytes)
{
    struct hcs_allocation found;
    if (!hcs_memory_find(destination, bytes, &found))
        return CN_ERROR_INVALID_VALUE;
    memcpy((void *)(uintptr_t)destination, source, bytes); // NOLINT
    return CN_SUCCESS;
}

HCS_EXPORT CNresult cnMemcpyDtoH(void *destination, CNaddr source, uint64_t bytes)
{
    struct hcs_allocation found;
    if (!hcs_memory_find(source, bytes, &found))
        return CN_ERROR_INVALID_VALUE;
    memcpy(destination, (const void *)(uintptr_t)source, bytes); // NOLINT
    return CN_SUCCESS;
}

HCS_EXPORT CNresult cnGetExportFunction(const char *name, const void **function)
{
#define ENTRY(name) {#name, (const void *)name}
    static const struct {
        const char *name;
        const void *function;
    } functions[] = {ENTRY(cnMalloc), ENTRY(cnMallocNode), ENTRY(cnMallocPeerAble), ENTRY(cnFree), ENTRY(cnMemGetInfo)};
#undef ENTRY
    for (size_t index = 0; index < sizeof functions / sizeof *functions; index++)
        if (strcmp(functions[index].name, name) == 0) {
            *function = functions[index].function;
            return CN_SUCCESS;
        }
    return CN_ERROR_NOT_FOUND;
}
