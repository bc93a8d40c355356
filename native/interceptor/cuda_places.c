/* Which card a CUDA call is about: ordinals to cards by UUID or PCI address, contexts and streams to ordinals. */
#include <stdatomic.h>

#include "cuda.h"

typedef CUresult (*stream_context_function)(CUstream, CUcontext *);
typedef CUresult (*uuid_function)(CUuuid *, CUdevice);
typedef CUresult (*bus_id_function)(char *, int, CUdevice);

/* Streams 0, 1 and 2 are the default streams: of the current context. */
enum { LAST_DEFAULT_STREAM = 2, BUS_ID_BYTES = 32 };

struct hcs_driver_state *cuda_state(void)
{
    struct hcs_local *local = hcs_local();
    return local != NULL ? &local->drivers[HCS_DRIVER_RUNTIME] : NULL;
}

static int ask_card_of(CUdevice device)
{
    CUuuid uuid;
    ASK(uuid_function, get_uuid, DeviceGetUuid_v2);
    if (get_uuid == NULL) /* before CUDA 11.4; the newer one knows MIG instances */
        get_uuid = (uuid_function)hcs_real(CU_SYMBOL(DeviceGetUuid));
    if (get_uuid != NULL && get_uuid(&uuid, device) == CUDA_SUCCESS) {
        int card = hcs_card_of_uuid(HCS_DRIVER_VENDOR, HCS_DRIVER_PREFIXES, uuid.bytes);
        if (card != HCS_CARD_UNLISTED)
            return card;
    }
    char bus_id[BUS_ID_BYTES];
    ASK(bus_id_function, get_bus_id, DeviceGetPCIBusId);
    if (get_bus_id != NULL && get_bus_id(bus_id, sizeof bus_id, device) == CUDA_SUCCESS)
        return hcs_card_of_bus_id(HCS_DRIVER_VENDOR, bus_id);
    return HCS_CARD_UNLISTED;
}

int cuda_card_of(CUdevice device)
{
    struct hcs_driver_state *state = cuda_state();
    if (state == NULL || device < 0 || device >= HCS_MAX_ORDINALS)
        return ask_card_of(device);
    int known = atomic_load_explicit(&state->cards[device], memory_order_relaxed);
    if (known == 0) {
        known = ask_card_of(device) + 2;
        atomic_store(&state->cards[device], known);
    }
    return known - 2;
}

bool cuda_current_place(struct hcs_place *place, CUdevice *device)
{
    ASK(get_context_function, get_context, CtxGetCurrent);
    ASK(get_device_function, get_device, CtxGetDevice);
    CUcontext context;
    CUdevice ordinal;
    if (get_context == NULL || get_device == NULL || get_context(&context) != CUDA_SUCCESS || context == NULL ||
        get_device(&ordinal) != CUDA_SUCCESS)
        return false;
    place->owner = (uint64_t)(uintptr_t)context;
    place->card = cuda_card_of(ordinal);
    if (device != NULL)
        *device = ordinal;
    return true;
}

bool cuda_place_of_stream(CUstream stream, struct hcs_place *place, CUdevice *device)
{
    bool known = cuda_current_place(place, device);
    if ((uintptr_t)stream <= LAST_DEFAULT_STREAM)
        return known;
    ASK(stream_context_function, stream_context, StreamGetCtx);
    ASK(push_function, push, CtxPushCurrent_v2);
    ASK(get_context_function, pop, CtxPopCurrent_v2);
    CUcontext context;
    if (stream_context == NULL || push == NULL || pop == NULL || stream_context(stream, &context) != CUDA_SUCCESS ||
        (known && (uint64_t)(uintptr_t)context == place->owner) || push(context) != CUDA_SUCCESS)
        return known;
    known = cuda_current_place(place, device);
    pop(&context);
    return known;
}
