/* Emulated CUDA driver: initialisation, devices, contexts, streams. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cuda.h"
#include "visible.h"

enum { CONTEXT_STACK = 16 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pid_t initialised_by;
static struct hcs_card cards[HCS_MAX_CARDS];
static uint32_t card_count;
static uint32_t order[HCS_MAX_CARDS]; /* device ordinal to card */
static uint32_t device_count;
static struct CUctx_st primaries[HCS_MAX_CARDS];

static _Thread_local CUcontext stack[CONTEXT_STACK];
static _Thread_local int depth;

/* ---- initialisation ---------------------------------------------------------------------------------------------- */

HCS_EXPORT CUresult cuInit(unsigned int flags)
{
    if (flags != 0)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = CUDA_SUCCESS;
    pthread_mutex_lock(&lock);
    if (initialised_by != 0 && initialised_by != getpid())
        result = CUDA_ERROR_NOT_INITIALIZED;
    if (initialised_by == 0) {
        card_count = hcs_cards_open(HCS_EMULATED_NODES, HCS_EMULATED_VENDOR, cards);
        device_count = hcs_visible_cuda(getenv(HCS_EMULATED_VISIBLE), cards, card_count, order);
        if (device_count == 0)
            result = CUDA_ERROR_NO_DEVICE;
        /* A driver cannot be initialised on a card that does not answer. */
        for (uint32_t device = 0; device < device_count && result == CUDA_SUCCESS; device++)
            if (hcs_card_dead(&cards[order[device]]))
                result = CUDA_ERROR_UNKNOWN;
        if (result == CUDA_SUCCESS)
            initialised_by = getpid();
    }
    pthread_mutex_unlock(&lock);
    return result;
}

CUresult hcs_cuda_ready(void)
{
    return initialised_by == getpid() ? CUDA_SUCCESS : CUDA_ERROR_NOT_INITIALIZED;
}

const struct hcs_card *hcs_cuda_card(CUdevice device, uint32_t *index)
{
    if (device < 0 || (uint32_t)device >= device_count)
        return NULL;
    if (index != NULL)
        *index = order[device];
    return &cards[order[device]];
}

bool hcs_cuda_take(CUdevice device, uint64_t bytes)
{
    uint32_t index;
    const struct hcs_card *card = hcs_cuda_card(device, &index);
    return card != NULL && hcs_card_take(index, card, bytes);
}

void hcs_cuda_give_back(CUdevice device, uint64_t bytes)
{
    uint32_t index;
    const struct hcs_card *card = hcs_cuda_ready() == CUDA_SUCCESS ? hcs_cuda_card(device, &index) : NULL;
    if (card != NULL)
        hcs_card_give_back(index, card, bytes);
}

CUresult hcs_cuda_health(CUdevice device)
{
    const struct hcs_card *card = hcs_cuda_card(device, NULL);
    if (card == NULL)
        return CUDA_ERROR_INVALID_DEVICE;
    return hcs_card_dead(card) ? CUDA_ERROR_UNKNOWN : CUDA_SUCCESS;
}

HCS_EXPORT CUresult cuDriverGetVersion(int *version)
{
    if (version == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *version = HCS_EMULATED_CUDA_VERSION;
    return CUDA_SUCCESS;
}

/* ---- devices ----------------------------------------------------------------------------------------------------- */

HCS_EXPORT CUresult cuDeviceGetCount(int *count)
{
    CUresult result = hcs_cuda_ready();
    if (result == CUDA_SUCCESS)
        *count = (int)device_count;
    return result;
}

HCS_EXPORT CUresult cuDeviceGet(CUdevice *device, int ordinal)
{
    CUresult result = hcs_cuda_ready();
    if (result != CUDA_SUCCESS)
        return result;
    if (hcs_cuda_card(ordinal, NULL) == NULL)
        return CUDA_ERROR_INVALID_DEVICE;
    *device = ordinal;
    return CUDA_SUCCESS;
}

static CUresult usable_card(CUdevice device, const struct hcs_card **card)
{
    CUresult result = hcs_cuda_ready();
    if (result != CUDA_SUCCESS)
        return result;
    *card = hcs_cuda_card(device, NULL);
    return hcs_cuda_health(device);
}

HCS_EXPORT CUresult cuDeviceGetName(char *name, int length, CUdevice device)
{
    const struct hcs_card *card;
    CUresult result = usable_card(device, &card);
    if (result == CUDA_SUCCESS && length > 0)
        snprintf(name, (size_t)length, "%s (emulated)", card->file->model);
    return result;
}

static int hex_digit(char letter)
{
    if (letter >= '0' && letter <= '9')
        return letter - '0';
    if (letter >= 'a' && letter <= 'f')
        return letter - 'a' + 10;
    return letter >= 'A' && letter <= 'F' ? letter - 'A' + 10 : -1;
}

HCS_EXPORT CUresult cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice device)
{
    const struct hcs_card *card;
    CUresult result = usable_card(device, &card);
    if (result != CUDA_SUCCESS)
        return result;
    int nibbles = 0;
    memset(uuid, 0, sizeof *uuid);
    const char *text = card->file->uuid;
    if (strncmp(text, "GPU-", 4) == 0 || strncmp(text, "MIG-", 4) == 0)
        text += 4;
    for (; *text != '\0' && nibbles < 32; text++)
        if (hex_digit(*text) >= 0) {
            uuid->bytes[nibbles / 2] |= (unsigned char)(hex_digit(*text) << (nibbles % 2 ? 0 : 4));
            nibbles++;
        }
    return CUDA_SUCCESS;
}

HCS_EXPORT CUresult cuDeviceGetUuid(CUuuid *uuid, CUdevice device)
{
    return cuDeviceGetUuid_v2(uuid, device);
}

HCS_EXPORT CUresult cuDeviceGetPCIBusId(char *bus_id, int length, CUdevice device)
{
    const struct hcs_card *card;
    CUresult result = usable_card(device, &card);
    if (result == CUDA_SUCCESS && length > 0)
        snprintf(bus_id, (size_t)length, "%s", card->file->bus_id);
    return result;
}

HCS_EXPORT CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device)
{
    const struct hcs_card *card;
    CUresult result = usable_card(device, &card);
    if (result == CUDA_SUCCESS)
        *bytes = card->file->total_bytes;
    return result;
}

HCS_EXPORT CUresult cuDeviceGetAttribute(int *value, int attribute, CUdevice device)
{
    enum { WARP_SIZE = 10, PCI_BUS_ID = 33, UNIFIED_ADDRESSING = 41, MAJOR = 75, MINOR = 76, MEMORY_POOLS = 115 };
    const struct hcs_card *card;
    CUresult result = usable_card(device, &card);
    if (result != CUDA_SUCCESS)
        return result;
    switch (attribute) {
    case WARP_SIZE:
        *value = 32;
        return CUDA_SUCCESS;
    case PCI_BUS_ID:
        *value = (int)card->node;
        return CUDA_SUCCESS;
    case UNIFIED_ADDRESSING:
    case MEMORY_POOLS:
        *value = 1;
        return CUDA_SUCCESS;
    case MAJOR:
        *value = 8;
        return CUDA_SUCCESS;
    case MINOR:
        *value = 0;
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

/* ---- contexts ---------------------------------------------------------------------------------------------------- */

static bool charge_context(CUcontext context)
{
    uint64_t bytes = hcs_cuda_card(context->device, NULL)->file->context_bytes;
    if (!hcs_cuda_take(context->device, bytes))
        return false;
    context->charged = bytes;
    return true;
}

static void end_context(CUcontext context)
{
    hcs_cuda_free_owned(context);
    hcs_cuda_give_back(context->device, context->charged + context->heap);
    context->charged = context->heap = 0;
}

HCS_EXPORT CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device)
{
    const struct hcs_card *card;
    CUresult result = usable_card(device, &card);
    if (result != CUDA_SUCCESS)
        return result;
    HCS_FAULT();
    pthread_mutex_lock(&lock);
    primaries[device].device = device;
    primaries[device].primary = true;
    if (primaries[device].references == 0 && !charge_context(&primaries[device]))
        result = CUDA_ERROR_OUT_OF_MEMORY;
    if (result == CUDA_SUCCESS) {
        primaries[device].references++;
        *context = &primaries[device];
    }
    pthread_mutex_unlock(&lock);
    return result;
}

HCS_EXPORT CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned int *flags, int *active)
{
    CUresult result = hcs_cuda_ready();
    if (result != CUDA_SUCCESS)
        return result;
    if (hcs_cuda_card(device, NULL) == NULL)
        return CUDA_ERROR_INVALID_DEVICE;
    *flags = 0;
    *active = primaries[device].references > 0;
    return CUDA_SUCCESS;
}

HCS_EXPORT CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device)
{
    CUresult result = hcs_cuda_ready();
    if (result != CUDA_SUCCESS)
        return result;
    if (hcs_cuda_card(device, NULL) == NULL)
        return CUDA_ERROR_INVALID_DEVICE;
    pthread_mutex_lock(&lock);
    bool retained = primaries[device].references > 0;
    bool last = retained && --primaries[device].references == 0;
    pthread_mutex_unlock(&lock);
    if (last)
        end_context(&primaries[device]);
    return retained ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

HCS_EXPORT CUresult cuDevicePrimaryCtxRelease(CUdevice device)
{
    return cuDevicePrimaryCtxRelease_v2(device);
}

HCS_EXPORT CUresult cuDevicePrimaryCtxReset_v2(CUdevice device)
{
    CUresult result = hcs_cuda_ready();
    if (result != CUDA_SUCCESS)
        return result;
    if (hcs_cuda_card(device, NULL) == NULL)
        return CUDA_ERROR_INVALID_DEVICE;
    hcs_cuda_free_owned(&primaries[device]);
    return CUDA_SUCCESS;
}

HCS_EXPORT CUresult cuDevicePrimaryCtxReset(CUdevice device)
{
    return cuDevicePrimaryCtxReset_v2(device);
}

HCS_EXPORT CUresult cuCtxCreate_v2(CUcontext *context, unsigned int flags, CUdevice device)
{
    (void)flags;
    const struct hcs_card *card;
    CUresult result = usable_card(device, &card);
    if (result != CUDA_SUCCESS)
        return result;
    CUcontext fresh = calloc(1, sizeof *fresh);
    if (fresh == NULL || depth == CONTEXT_STACK) {
        free(fresh);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    fresh->device = device;
    fresh->references = 1;
    if (!charge_context(fresh)) {
        free(fresh);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    stack[depth++] = fresh;
    *context = fresh;
    return CUDA_SUCCESS;
}

HCS_EXPORT CUresult cuCtxDestroy_v2(CUcontext context)
{
    if (context == NULL || context->primary)
        return CUDA_ERROR_INVALID_CONTEXT;
    if (depth > 0 && stack[depth - 1] == context)
        depth--;
    end_context(context);
    free(context);
    return CUDA_SUCCESS;
}

HCS_EXPORT CUresult cuCtxCreate_v3(CUcontext *context, void *affinities, int count, unsigned int flags, CUdevice device)
{
    (void)affinities, (void)count;
    return cuCtxCreate_v2(context, flags, device);
}

HCS_EXPORT CUresult cuCtxCreate_v4(CUcontext *context, void *parameters, unsigned int flags, CUdevice device)
{
    (void)parameters;
    return cuCtxCreate_v2(context, flags, device);
}

/* Only the heap of kernels takes memory here. */
HCS_EXPORT CUresult cuCtxSetLimit(int limit, size_t value)
{
    enum { STACK_SIZE = 0, MALLOC_HEAP_SIZE = 2, LAST_LIMIT = 6 };
    CUcontext context;
    CUresult result = hcs_cuda_current(&context);
    if (result != CUDA_SUCCESS || limit != MALLOC_HEAP_SIZE)
        return result != CUDA_SUCCESS || (limit >= STACK_SIZE && limit <= LAST_LIMIT) ? result : CUDA_ERROR_INVALID_VALUE;
    uint64_t bytes = hcs_cuda_taken(value);
    if (bytes > context->heap && !hcs_cuda_take(context->device, bytes - context->heap))
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (bytes < context->heap)
        hcs_cuda_give_back(context->device, context->heap - bytes);
    context->heap = bytes;
    return CUDA_SUCCESS;
}

HCS_EXPORT CUresult cuCtxSetCurrent(CUcontext context)
{
    CUresult result = hcs_cuda_ready();
    if (result != CUDA_SUCCESS)
        return result;
    if (depth > 0)
        depth--;
    if (context != NULL)
        stack[depth++] = context;
    return CUDA_SUCCESS;
}

HCS_EXPORT CUresult cuCtxGetCurrent(CUcontext *context)
{
    CUresult result = hcs_cuda_ready();
    if (result == CUDA_SUCCESS)
        *context = depth > 0 ? stack[depth - 1] : NULL;
    return result;
}

HCS_EXPORT CUresult cuCtxPushCurrent_v2(CUcontext context)
{
    CUresult result = hcs_cuda_ready();
    if (result != CUDA_SUCCESS)
        return result;
    if (context == NULL || depth == CONTEXT_STACK)
        return CUDA_ERROR_INVALID_CONTEXT;
    stack[depth++] = context;
    return CUDA_SUCCESS;
}

HCS_EXPORT CUresult cuCtxPopCurrent_v2(CUcontext *context)
{
    CUresult result = hcs_cuda_ready();
    if (result != CUDA_SUCCESS)
        return result;
    if (depth == 0)
        return CUDA_ERROR_INVALID_CONTEXT;
    *context = stack[--depth];
    return CUDA_SUCCESS;
}

HCS_EXPORT CUresult cuCtxGetDevice(CUdevice *device)
{
    CUcontext context;
    CUresult result = cuCtxGetCurrent(&context);
    if (result != CUDA_SUCCESS)
        return result;
    if (context == NULL)
        return CUDA_ERROR_INVALID_CONTEXT;
    *device = context->device;
    return CUDA_SUCCESS;
}

CUresult hcs_cuda_current(CUcontext *context)
{
    CUresult result = cuCtxGetCurrent(context);
    if (result != CUDA_SUCCESS)
        return result;
    if (*context == NULL)
        return CUDA_ERROR_INVALID_CONTEXT;
    return hcs_cuda_health((*context)->device);
}

CUresult hcs_cuda_of_stream(CUstream stream, CUcontext *context)
{
    enum { LAST_DEFAULT_STREAM = 2 };
    if ((uintptr_t)stream <= LAST_DEFAULT_STREAM)
        return hcs_cuda_current(context);
    *context = stream->context;
    return hcs_cuda_health((*context)->device);
}

/* ---- streams and events: everything here is synchronous, so a stream only knows its context ----------------------- */

static CUresult synchronised(CUresult result)
{
    if (result == CUDA_SUCCESS)
        hcs_cuda_pools_synchronised();
    return result;
}

HCS_EXPORT CUresult cuCtxSynchronize(void)
{
    CUcontext context;
    return synchronised(hcs_cuda_current(&context));
}

HCS_EXPORT CUresult cuCtxSynchronize_v2(CUcontext context)
{
    return synchronised(context != NULL ? hcs_cuda_health(context->device) : CUDA_ERROR_INVALID_CONTEXT);
}

HCS_EXPORT CUresult cuStreamCreate(CUstream *stream, unsigned int flags)
{
    (void)flags;
    CUcontext context;
    CUresult result = hcs_cuda_current(&context);
    if (result != CUDA_SUCCESS)
        return result;
    CUstream fresh = calloc(1, sizeof *fresh);
    if (fresh == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    fresh->context = context;
    *stream = fresh;
    return CUDA_SUCCESS;
}

HCS_EXPORT CUresult cuStreamDestroy_v2(CUstream stream)
{
    free(stream);
    return CUDA_SUCCESS;
}

HCS_EXPORT CUresult cuStreamGetCtx(CUstream stream, CUcontext *context)
{
    return hcs_cuda_of_stream(stream, context);
}

HCS_EXPORT CUresult cuStreamSynchronize(CUstream stream)
{
    CUcontext context;
    return synchronised(hcs_cuda_of_stream(stream, &context));
}

HCS_EXPORT CUresult cuStreamSynchronize_ptsz(CUstream stream)
{
    return cuStreamSynchronize(stream);
}

struct CUevent_st {
    CUcontext context;
};

HCS_EXPORT CUresult cuEventCreate(CUevent *event, unsigned int flags)
{
    (void)flags;
    CUcontext context;
    CUresult result = hcs_cuda_current(&context);
    if (result != CUDA_SUCCESS)
        return result;
    CUevent fresh = calloc(1, sizeof *fresh);
    if (fresh == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    fresh->context = context;
    *event = fresh;
    return CUDA_SUCCESS;
}

HCS_EXPORT CUresult cuEventRecord(CUevent event, CUstream stream)
{
    (void)event;
    CUcontext context;
    return hcs_cuda_of_stream(stream, &context);
}

HCS_EXPORT CUresult cuEventSynchronize(CUevent event)
{
    return synchronised(hcs_cuda_health(event->context->device));
}

HCS_EXPORT CUresult cuEventDestroy_v2(CUevent event)
{
    free(event);
    return CUDA_SUCCESS;
}
