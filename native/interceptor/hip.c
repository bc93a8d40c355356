/* HIP's devices: which card a number means (by UUID, which is the text that HIP keeps in it, or by PCI address), its start,
 * its questions about memory, and functions by name. */
#include "hip.h"

#include <stdatomic.h>
#include <string.h>

#include "pools.h"

enum { BUS_ID_BYTES = 32 };

static int ask_card_of(int device)
{
    typedef hipError_t (*uuid_function)(hipUUID *, int);
    typedef hipError_t (*bus_id_function)(char *, int, int);
    static const char *const vendors[] = {"amd", "hygon"};
    ASK(uuid_function, get_uuid, hipDeviceGetUuid);
    ASK(bus_id_function, get_bus_id, hipDeviceGetPCIBusId);
    hipUUID uuid;
    char text[4 + sizeof uuid.bytes + 1] = "GPU-", bus_id[BUS_ID_BYTES] = "";
    bool has_uuid = get_uuid != NULL && get_uuid(&uuid, device) == hipSuccess;
    if (has_uuid)
        memcpy(text + 4, uuid.bytes, sizeof uuid.bytes);
    bool has_bus_id = get_bus_id != NULL && get_bus_id(bus_id, sizeof bus_id, device) == hipSuccess;
    for (size_t vendor = 0; vendor < sizeof vendors / sizeof *vendors; vendor++) {
        int card = has_uuid ? hcs_card_of_uuid_text(vendors[vendor], text) : HCS_CARD_UNLISTED;
        if (card == HCS_CARD_UNLISTED && has_bus_id)
            card = hcs_card_of_bus_id(vendors[vendor], bus_id);
        if (card != HCS_CARD_UNLISTED)
            return card;
    }
    return HCS_CARD_UNLISTED;
}

int hip_card_of(int device)
{
    struct hcs_local *local = hcs_local();
    if (local == NULL || device < 0 || device >= HCS_MAX_ORDINALS)
        return ask_card_of(device);
    _Atomic int32_t *cards = local->drivers[HCS_RUNTIME_HIP].cards;
    int known = atomic_load_explicit(&cards[device], memory_order_relaxed);
    if (known == 0) {
        known = ask_card_of(device) + 2;
        atomic_store(&cards[device], known);
    }
    return known - 2;
}

struct hcs_place hip_place_of(int device)
{
    return (struct hcs_place){.card = hip_card_of(device), .owner = (uint64_t)device + 1};
}

bool hip_current_device(int *device)
{
    typedef hipError_t (*function)(int *);
    ASK(function, get, hipGetDevice);
    return get != NULL && get(device) == hipSuccess;
}

HCS_EXPORT hipError_t hipInit(unsigned int flags)
{
    REAL(hipInit);
    hcs_announce_problem();
    return real(flags);
}

hipError_t hip_release(enum hcs_symbol symbol, void *handle)
{
    typedef hipError_t (*function)(void *);
    function real = (function)hcs_real(symbol);
    return real != NULL ? real(handle) : hipErrorNotInitialized;
}

/* ---- devices, questions, functions by name ------------------------------------------------------------------------ */

HCS_EXPORT hipError_t hipDeviceReset(void)
{
    REAL(hipDeviceReset);
    if (!hcs_watching())
        return real();
    int device;
    bool known = hip_current_device(&device);
    hipError_t result = real();
    if (result == hipSuccess && known)
        hcs_forget_owned(HCS_RUNTIME_HIP, (uint64_t)device + 1);
    hcs_pools_refresh();
    hip_refresh_graphs();
    hcs_leave();
    return result;
}

HCS_EXPORT hipError_t hipMemGetInfo(size_t *free_bytes, size_t *total_bytes)
{
    REAL(hipMemGetInfo);
    if (!hcs_watching())
        return real(free_bytes, total_bytes);
    int device;
    hipError_t result = real(free_bytes, total_bytes);
    if (result == hipSuccess && hip_current_device(&device)) {
        hip_refresh_graphs();
        hcs_clamp(hip_card_of(device), free_bytes, total_bytes);
    }
    hcs_leave();
    return result;
}

HCS_EXPORT hipError_t hipDeviceTotalMem(size_t *bytes, int device)
{
    REAL(hipDeviceTotalMem);
    if (!hcs_watching())
        return real(bytes, device);
    hipError_t result = real(bytes, device);
    if (result == hipSuccess) {
        size_t free_bytes = *bytes;
        hcs_clamp(hip_card_of(device), &free_bytes, bytes);
    }
    hcs_leave();
    return result;
}

HCS_EXPORT hipError_t hipGetProcAddress(const char *name, void **function, int version, uint64_t flags, int *status)
{
    REAL(hipGetProcAddress);
    if (!hcs_watching())
        return real(name, function, version, flags, status);
    hipError_t result = real(name, function, version, flags, status);
    if (result == hipSuccess && function != NULL)
        *function = hcs_substitute(*function);
    hcs_leave();
    return result;
}
