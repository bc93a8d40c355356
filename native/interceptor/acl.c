/* Ascend's AscendCL, the upper level. The card is known by the physical id that the runtime itself names for a device id;
 * there is no UUID at this level. Signatures as in Huawei's acl_rt.h. */
#include <stdatomic.h>

#include "ascend.h"

typedef aclError (*get_device_function)(int32_t *);
typedef aclError (*physical_id_function)(int32_t, int32_t *);

static int ask_card_of(int32_t device)
{
    /* In order of age, newest first. The second one's parameter is documented to be the user device id as well. */
    static const enum hcs_symbol ways[] = {HCS_SYM_aclrtGetPhyDevIdByUserDevId, HCS_SYM_aclrtGetPhyDevIdByLogicDevId,
                                           HCS_SYM_rtGetDevicePhyIdByIndex};
    for (size_t way = 0; way < sizeof ways / sizeof *ways; way++) {
        physical_id_function get = (physical_id_function)hcs_real(ways[way]);
        int32_t physical_id;
        if (get != NULL && get(device, &physical_id) == ACL_SUCCESS)
            return hcs_card_of_physical_id("ascend", physical_id);
    }
    return HCS_CARD_UNLISTED;
}

int ascend_card_of(int32_t device)
{
    struct hcs_local *local = hcs_local();
    if (local == NULL || device < 0 || device >= HCS_MAX_ORDINALS)
        return ask_card_of(device);
    _Atomic int32_t *cards = local->drivers[HCS_RUNTIME_ASCEND].cards;
    int known = atomic_load_explicit(&cards[device], memory_order_relaxed);
    if (known == 0) {
        known = ask_card_of(device) + 2;
        atomic_store(&cards[device], known);
    }
    return known - 2;
}

bool ascend_current_card(int *card)
{
    static const enum hcs_symbol ways[] = {HCS_SYM_aclrtGetDevice, HCS_SYM_rtGetDevice};
    int32_t device;
    for (size_t way = 0; way < sizeof ways / sizeof *ways; way++) {
        get_device_function get = (get_device_function)hcs_real(ways[way]);
        if (get == NULL || get(&device) != ACL_SUCCESS)
            continue;
        *card = ascend_card_of(device);
        return true;
    }
    return false;
}

HCS_EXPORT aclError aclInit(const char *configuration)
{
    REAL(aclInit);
    hcs_announce_problem();
    return real(configuration);
}

/* ---- memory behind a pointer ------------------------------------------------------------------------------------- */

HCS_EXPORT aclError aclrtFree(void *pointer)
{
    REAL(aclrtFree);
    ASCEND_FREE(pointer);
}

HCS_EXPORT aclError aclrtFreeWithDevSync(void *pointer)
{
    REAL(aclrtFreeWithDevSync);
    ASCEND_FREE(pointer);
}

HCS_EXPORT aclError aclrtMalloc(void **pointer, size_t bytes, aclrtMemMallocPolicy policy)
{
    REAL(aclrtMalloc);
    ASCEND_ALLOCATE(pointer, hcs_acl_taken(bytes, HCS_ACL_UNIT), aclrtFree, pointer, bytes, policy);
}

HCS_EXPORT aclError aclrtMallocCached(void **pointer, size_t bytes, aclrtMemMallocPolicy policy)
{
    REAL(aclrtMallocCached);
    ASCEND_ALLOCATE(pointer, hcs_acl_taken(bytes, HCS_ACL_UNIT), aclrtFree, pointer, bytes, policy);
}

HCS_EXPORT aclError aclrtMallocAlign32(void **pointer, size_t bytes, aclrtMemMallocPolicy policy)
{
    REAL(aclrtMallocAlign32);
    ASCEND_ALLOCATE(pointer, hcs_acl_taken(bytes, 0), aclrtFree, pointer, bytes, policy);
}

HCS_EXPORT aclError aclrtMallocWithCfg(void **pointer, size_t bytes, aclrtMemMallocPolicy policy, void *configuration)
{
    REAL(aclrtMallocWithCfg);
    ASCEND_ALLOCATE(pointer, hcs_acl_taken(bytes, HCS_ACL_UNIT), aclrtFree, pointer, bytes, policy, configuration);
}

HCS_EXPORT aclError aclrtMallocForTaskScheduler(void **pointer, size_t bytes, aclrtMemMallocPolicy policy,
                                                void *configuration)
{
    REAL(aclrtMallocForTaskScheduler);
    ASCEND_ALLOCATE(pointer, hcs_acl_taken(bytes, HCS_ACL_UNIT), aclrtFree, pointer, bytes, policy, configuration);
}

HCS_EXPORT aclError aclrtMemAllocManaged(void **pointer, uint64_t bytes, uint32_t flags)
{
    REAL(aclrtMemAllocManaged);
    ASCEND_ALLOCATE(pointer, hcs_acl_taken(bytes, 0), aclrtFree, pointer, bytes, flags);
}

/* Media memory is device memory. */
HCS_EXPORT aclError acldvppFree(void *pointer)
{
    REAL(acldvppFree);
    ASCEND_FREE(pointer);
}

HCS_EXPORT aclError acldvppMalloc(void **pointer, size_t bytes)
{
    REAL(acldvppMalloc);
    ASCEND_ALLOCATE(pointer, hcs_acl_taken(bytes, HCS_ACL_UNIT), acldvppFree, pointer, bytes);
}

HCS_EXPORT aclError hi_mpi_dvpp_free(void *pointer)
{
    REAL(hi_mpi_dvpp_free);
    ASCEND_FREE(pointer);
}

HCS_EXPORT aclError hi_mpi_dvpp_malloc(uint32_t device, void **pointer, uint64_t bytes)
{
    REAL(hi_mpi_dvpp_malloc);
    ASCEND_ALLOCATE(pointer, hcs_acl_taken(bytes, HCS_ACL_UNIT), hi_mpi_dvpp_free, device, pointer, bytes);
}

/* ---- physical memory --------------------------------------------------------------------------------------------- */

HCS_EXPORT aclError aclrtFreePhysical(aclrtDrvMemHandle handle)
{
    REAL(aclrtFreePhysical);
    ASCEND_RELEASE(handle);
}

HCS_EXPORT aclError aclrtMallocPhysical(aclrtDrvMemHandle *handle, size_t bytes,
                                        const aclrtPhysicalMemProp *properties, uint64_t flags)
{
    REAL(aclrtMallocPhysical);
    if (properties == NULL || properties->location.type != ACL_MEM_LOCATION_TYPE_DEVICE || !hcs_watching())
        return real(handle, bytes, properties, flags);
    ASCEND_PHYSICAL(handle, bytes, properties->location.id, aclrtFreePhysical, handle, bytes, properties, flags);
}

HCS_EXPORT aclError aclrtMapMem(void *address, size_t bytes, size_t offset, aclrtDrvMemHandle handle, uint64_t flags)
{
    REAL(aclrtMapMem);
    ASCEND_MAP(address, bytes, handle, address, bytes, offset, handle, flags);
}

HCS_EXPORT aclError aclrtUnmapMem(void *address)
{
    REAL(aclrtUnmapMem);
    ASCEND_UNMAP(address);
}

/* ---- devices and questions --------------------------------------------------------------------------------------- */

HCS_EXPORT aclError aclrtGetMemInfo(aclrtMemAttr attribute, size_t *free_bytes, size_t *total_bytes)
{
    REAL(aclrtGetMemInfo);
    if (!hcs_watching())
        return real(attribute, free_bytes, total_bytes);
    int card;
    aclError result = real(attribute, free_bytes, total_bytes);
    /* A kind of memory the card does not have reads 0 of 0 and stays so. */
    if (result == ACL_SUCCESS && ascend_current_card(&card))
        hcs_clamp(card, free_bytes, total_bytes);
    hcs_leave();
    return result;
}
