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
        card_count = hcs_cards_open("nvidia", "nvidia", cards);
        device_count = hcs_visible_cuda(getenv("CUDA_VISIBLE_DEVICES"), cards, card_count, order);
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
    if (strncmp(text, "GPU-", 4) == 0)
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

HCS_EXPORT CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device)
{
    const struct hcs_card *card;
    CUresult result = usable_card(device, &card);
    if (result != CUDA_SUCCESS)
        return result;
    pthread_mutex_lock(&lock);
    primaries[device].device = device;
    primaries[device].primary = true;
    primaries[device].references++;
    *context = &primaries[device];
    pthread_mutex_unlock(&lock);
    return CUDA_SUCCESS;
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
        hcs_cuda_free_owned(&primaries[device]);
    return retained ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
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
    hcs_cuda_free_owned(context);
    free(context);
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

HCS_EXPORT CUresult cuCtxSynchronize(void)
{
    CUcontext context;
    return hcs_cuda_current(&context);
}

/* ---- streams: everything here is synchronous, so a stream only knows its context -------------------------------- */

HCS_EXPORT CUresult cuStreamCreate(CUstream *stream, unsigned int flags)
{
    (void)flags;
    CUcontext context;
    CUresult result = hcs_cuda_current(&context);
    if (result != CUDA_SUCCESS)
        return result;
    CUstream fresh = malloc(sizeof *fresh);
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
    if ((uintptr_t)stream <= 2)
        return hcs_cuda_current(context);
    *context = stream->context;
    return CUDA_SUCCESS;
}

HCS_EXPORT CUresult cuStreamSynchronize(CUstream stream)
{
    CUcontext context;
    CUresult result = cuStreamGetCtx(stream, &context);
    return result == CUDA_SUCCESS ? hcs_cuda_health(context->device) : result;
}
