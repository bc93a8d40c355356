/* Cambricon: the driver CNDrv, below the runtime CNRT, so that whatever sits above is counted once. The card is known by
 * UUID, else by PCI address. Signatures as in Cambricon's public cn_api.h. Where dynamic sMLU is on, the driver itself
 * enforces memory and cores; then this library is not needed. */
#include <stdatomic.h>

#include "../common/cndrv_abi.h"
#include "books.h"
#include "interceptor.h"

#define REAL(name)                                                                                                     \
    __typeof__(&name) real = (__typeof__(&name))hcs_real(HCS_SYM_##name);                                              \
    if (real == NULL)                                                                                                  \
    return CN_ERROR_NOT_INITIALIZED

#define CN_POINTER HCS_KIND(HCS_RUNTIME_CNDRV, HCS_KIND_POINTER)

enum { BUS_ID_BYTES = 32, IN_DEVICE = 1 };

static int ask_card_of(CNdev device)
{
    typedef CNresult (*uuid_function)(CNuuid *, CNdev);
    typedef CNresult (*bus_id_function)(char *, int, CNdev);
    uuid_function get_uuid = (uuid_function)hcs_real(HCS_SYM_cnDeviceGetUuid);
    bus_id_function get_bus_id = (bus_id_function)hcs_real(HCS_SYM_cnDeviceGetPCIBusId);
    CNuuid uuid;
    char bus_id[BUS_ID_BYTES];
    if (get_uuid != NULL && get_uuid(&uuid, device) == CN_SUCCESS) {
        int card = hcs_card_of_uuid("cambricon", "MLU-", uuid.bytes);
        if (card != HCS_CARD_UNLISTED)
            return card;
    }
    if (get_bus_id != NULL && get_bus_id(bus_id, sizeof bus_id, device) == CN_SUCCESS)
        return hcs_card_of_bus_id("cambricon", bus_id);
    return HCS_CARD_UNLISTED;
}

static int card_of(CNdev device)
{
    struct hcs_local *local = hcs_local();
    if (local == NULL || device < 0 || device >= HCS_MAX_ORDINALS)
        return ask_card_of(device);
    _Atomic int32_t *cards = local->drivers[HCS_RUNTIME_CNDRV].cards;
    int known = atomic_load_explicit(&cards[device], memory_order_relaxed);
    if (known == 0) {
        known = ask_card_of(device) + 2;
        atomic_store(&cards[device], known);
    }
    return known - 2;
}

/* The current context and its card; false when there is none, and the driver may say so itself. */
static bool current_place(struct hcs_place *place)
{
    typedef CNresult (*context_function)(CNcontext *);
    typedef CNresult (*device_function)(CNdev *);
    context_function get_context = (context_function)hcs_real(HCS_SYM_cnCtxGetCurrent);
    device_function get_device = (device_function)hcs_real(HCS_SYM_cnCtxGetDevice);
    CNcontext context;
    CNdev device;
    if (get_context == NULL || get_device == NULL || get_context(&context) != CN_SUCCESS || context == NULL ||
        get_device(&device) != CN_SUCCESS)
        return false;
    *place = (struct hcs_place){.card = card_of(device), .owner = (uint64_t)(uintptr_t)context};
    return true;
}

HCS_EXPORT CNresult cnInit(unsigned int flags)
{
    REAL(cnInit);
    hcs_announce_problem();
    return real(flags);
}

/* ---- memory behind a pointer ------------------------------------------------------------------------------------- */

HCS_EXPORT CNresult cnFree(CNaddr pointer)
{
    REAL(cnFree);
    if (!hcs_watching())
        return real(pointer);
    struct hcs_entry entry;
    bool known = hcs_unbook(CN_POINTER, pointer, &entry);
    CNresult result = real(pointer); /* unknown pointers too: the driver knows better */
    hcs_settle_free(result == CN_SUCCESS, known, &entry);
    hcs_leave();
    return result;
}

/* ALLOCATE(arguments...): the body of a hook that allocates `bytes` into *pointer. */
#define ALLOCATE(...)                                                                                                  \
    if (!hcs_watching())                                                                                               \
        return real(__VA_ARGS__);                                                                                      \
    struct hcs_place place;                                                                                            \
    uint64_t taken = hcs_cndrv_taken(bytes);                                                                           \
    CNresult result = CN_MEMORY_ERROR_OUT_OF_MEMORY;                                                                   \
    if (!current_place(&place)) {                                                                                      \
        result = real(__VA_ARGS__);                                                                                    \
    } else if (hcs_charge(place.card, taken)) {                                                                        \
        result = real(__VA_ARGS__);                                                                                    \
        bool ok = result == CN_SUCCESS;                                                                                \
        if (!hcs_settle(ok, CN_POINTER, ok ? *pointer : 0, taken, &place)) {                                           \
            cnFree(*pointer); /* inside a hook: straight to the driver */                                              \
            result = CN_MEMORY_ERROR_OUT_OF_MEMORY;                                                                    \
        }                                                                                                              \
    }                                                                                                                  \
    hcs_leave();                                                                                                       \
    return result

#define PLAIN(name)                                                                                                    \
    HCS_EXPORT CNresult name(CNaddr *pointer, uint64_t bytes)                                                          \
    {                                                                                                                  \
        REAL(name);                                                                                                    \
        ALLOCATE(pointer, bytes);                                                                                      \
    }
#define ON_NODE(name)                                                                                                  \
    HCS_EXPORT CNresult name(CNaddr *pointer, uint64_t bytes, int node)                                                \
    {                                                                                                                  \
        REAL(name);                                                                                                    \
        ALLOCATE(pointer, bytes, node);                                                                                \
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

/* ---- physical memory --------------------------------------------------------------------------------------------- */

HCS_EXPORT CNresult cnMemRelease(CNmemHandle handle)
{
    REAL(cnMemRelease);
    if (!hcs_watching())
        return real(handle);
    struct hcs_releasing releasing;
    hcs_physical_begin_release(HCS_RUNTIME_CNDRV, handle, &releasing);
    CNresult result = real(handle);
    hcs_physical_end_release(HCS_RUNTIME_CNDRV, result == CN_SUCCESS, &releasing);
    hcs_leave();
    return result;
}

HCS_EXPORT CNresult cnMemCreate(CNmemHandle *handle, size_t bytes, const CNmemAllocationProp *properties,
                                unsigned long long flags)
{
    REAL(cnMemCreate);
    if (properties == NULL || properties->location.type != IN_DEVICE || !hcs_watching())
        return real(handle, bytes, properties, flags);
    int card = card_of(properties->location.id);
    CNresult result = CN_MEMORY_ERROR_OUT_OF_MEMORY;
    if (hcs_charge(card, bytes)) {
        result = real(handle, bytes, properties, flags);
        bool ok = result == CN_SUCCESS;
        if (!hcs_physical_settle(ok, HCS_RUNTIME_CNDRV, ok ? *handle : 0, bytes, card)) {
            cnMemRelease(*handle);
            result = CN_MEMORY_ERROR_OUT_OF_MEMORY;
        }
    }
    hcs_leave();
    return result;
}

HCS_EXPORT CNresult cnMemMap(CNaddr address, size_t bytes, size_t offset, CNmemHandle handle, unsigned long long flags)
{
    REAL(cnMemMap);
    if (!hcs_watching())
        return real(address, bytes, offset, handle, flags);
    uint64_t memory = hcs_physical_begin_map(HCS_RUNTIME_CNDRV, handle);
    CNresult result = real(address, bytes, offset, handle, flags);
    hcs_physical_end_map(HCS_RUNTIME_CNDRV, result == CN_SUCCESS, memory, address, bytes);
    hcs_leave();
    return result;
}

HCS_EXPORT CNresult cnMemUnmap(CNaddr address, size_t bytes)
{
    REAL(cnMemUnmap);
    if (!hcs_watching())
        return real(address, bytes);
    CNresult result = real(address, bytes);
    if (result == CN_SUCCESS)
        hcs_physical_unmapped(HCS_RUNTIME_CNDRV, address, bytes);
    hcs_leave();
    return result;
}

/* ---- contexts ---------------------------------------------------------------------------------------------------- */

HCS_EXPORT CNresult cnCtxDestroy(CNcontext context)
{
    REAL(cnCtxDestroy);
    if (!hcs_watching())
        return real(context);
    CNresult result = real(context);
    if (result == CN_SUCCESS)
        hcs_forget_owned(HCS_RUNTIME_CNDRV, (uint64_t)(uintptr_t)context);
    hcs_leave();
    return result;
}

HCS_EXPORT CNresult cnSharedContextReset(CNdev device)
{
    REAL(cnSharedContextReset);
    if (!hcs_watching())
        return real(device);
    /* Its handle is learnt from one more reference. */
    typedef CNresult (*acquire_function)(CNcontext *, CNdev);
    typedef CNresult (*release_function)(CNdev);
    acquire_function acquire = (acquire_function)hcs_real(HCS_SYM_cnSharedContextAcquire);
    release_function release = (release_function)hcs_real(HCS_SYM_cnSharedContextRelease);
    CNcontext context = NULL;
    if (acquire != NULL && release != NULL && acquire(&context, device) == CN_SUCCESS)
        release(device);
    CNresult result = real(device);
    if (result == CN_SUCCESS)
        hcs_forget_owned(HCS_RUNTIME_CNDRV, (uint64_t)(uintptr_t)context);
    hcs_leave();
    return result;
}

/* ---- questions --------------------------------------------------------------------------------------------------- */

#define ANSWER(...)                                                                                                    \
    if (!hcs_watching())                                                                                               \
        return real(__VA_ARGS__);                                                                                      \
    struct hcs_place place;                                                                                            \
    CNresult result = real(__VA_ARGS__);                                                                               \
    if (result == CN_SUCCESS && current_place(&place)) {                                                               \
        size_t free_now = *free_bytes, total_now = *total_bytes;                                                       \
        hcs_clamp(place.card, &free_now, &total_now);                                                                  \
        *free_bytes = free_now;                                                                                        \
        *total_bytes = total_now;                                                                                      \
    }                                                                                                                  \
    hcs_leave();                                                                                                       \
    return result

HCS_EXPORT CNresult cnMemGetInfo(uint64_t *free_bytes, uint64_t *total_bytes)
{
    REAL(cnMemGetInfo);
    ANSWER(free_bytes, total_bytes);
}

HCS_EXPORT CNresult cnMemGetNodeInfo(uint64_t *free_bytes, uint64_t *total_bytes, int node)
{
    REAL(cnMemGetNodeInfo);
    ANSWER(free_bytes, total_bytes, node);
}

HCS_EXPORT CNresult cnDeviceTotalMem(uint64_t *bytes, CNdev device)
{
    REAL(cnDeviceTotalMem);
    if (!hcs_watching())
        return real(bytes, device);
    CNresult result = real(bytes, device);
    if (result == CN_SUCCESS) {
        size_t free_bytes = *bytes, total_bytes = *bytes;
        hcs_clamp(card_of(device), &free_bytes, &total_bytes);
        *bytes = total_bytes;
    }
    hcs_leave();
    return result;
}

/* Road (c): the driver answers first, and only an exact match is exchanged. */
HCS_EXPORT CNresult cnGetExportFunction(const char *name, const void **function)
{
    REAL(cnGetExportFunction);
    if (!hcs_watching())
        return real(name, function);
    CNresult result = real(name, function);
    if (result == CN_SUCCESS && function != NULL)
        *function = hcs_substitute((void *)(uintptr_t)*function); // NOLINT
    hcs_leave();
    return result;
}
