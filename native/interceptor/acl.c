/* Ascend's AscendCL runtime. The card is known by the physical id that the runtime itself names for a device id;
 * there is no UUID at this level. Signatures as in Huawei's acl_rt.h. */
#include "../common/acl_abi.h"

#include <stdatomic.h>

#include "interceptor.h"

/* REAL(name): the runtime's own function, typed like ours, as the variable `real`. */
#define REAL(name)                                                                                                     \
    __typeof__(&name) real = (__typeof__(&name))hcs_real(HCS_SYM_##name);                                              \
    if (real == NULL)                                                                                                  \
    return ACL_ERROR_UNINITIALIZE

typedef aclError (*get_device_function)(int32_t *);
typedef aclError (*physical_id_function)(int32_t, int32_t *);
typedef aclError (*allocate_function)(void **, size_t, aclrtMemMallocPolicy);

static bool watching(void)
{
    return hcs_mode() != HCS_MODE_PASS_THROUGH && hcs_enter();
}

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

/* The card of the calling thread's device; false when it has none, and the runtime may say so itself. */
static bool current_card(int *card)
{
    get_device_function get_device = (get_device_function)hcs_real(HCS_SYM_aclrtGetDevice);
    struct hcs_local *local = hcs_local();
    int32_t device;
    if (get_device == NULL || get_device(&device) != ACL_SUCCESS)
        return false;
    if (local == NULL || device < 0 || device >= HCS_MAX_ORDINALS) {
        *card = ask_card_of(device);
        return true;
    }
    int known = atomic_load_explicit(&local->ascend_cards[device], memory_order_relaxed);
    if (known == 0) {
        known = ask_card_of(device) + 2;
        atomic_store(&local->ascend_cards[device], known);
    }
    *card = known - 2;
    return true;
}

HCS_EXPORT aclError aclrtFree(void *pointer);

static aclError allocate(allocate_function real, void **pointer, size_t bytes, aclrtMemMallocPolicy policy,
                         uint64_t extra)
{
    if (!watching())
        return real(pointer, bytes, policy);
    uint64_t taken = hcs_acl_taken(bytes, extra);
    int card;
    aclError result;
    if (!current_card(&card)) {
        result = real(pointer, bytes, policy);
    } else if (!hcs_charge(card, taken)) {
        result = ACL_ERROR_RT_MEMORY_ALLOCATION;
    } else {
        result = real(pointer, bytes, policy);
        struct hcs_local *local = hcs_local();
        struct hcs_entry entry = {.bytes = taken, .card = (uint32_t)card, .kind = HCS_KIND_POINTER};
        bool booked = false;
        if (result == ACL_SUCCESS) {
            entry.key = (uint64_t)(uintptr_t)*pointer;
            booked = local != NULL && hcs_addresses_put(&local->addresses, &entry);
            if (!booked) {
                aclrtFree(*pointer); /* inside a hook: goes straight to the runtime */
                result = ACL_ERROR_RT_MEMORY_ALLOCATION;
            }
        }
        if (!booked)
            hcs_uncharge(card, taken);
    }
    hcs_leave();
    return result;
}

HCS_EXPORT aclError aclrtMalloc(void **pointer, size_t bytes, aclrtMemMallocPolicy policy)
{
    REAL(aclrtMalloc);
    return allocate(real, pointer, bytes, policy, HCS_ACL_UNIT);
}

HCS_EXPORT aclError aclrtMallocCached(void **pointer, size_t bytes, aclrtMemMallocPolicy policy)
{
    REAL(aclrtMallocCached);
    return allocate(real, pointer, bytes, policy, HCS_ACL_UNIT);
}

HCS_EXPORT aclError aclrtMallocAlign32(void **pointer, size_t bytes, aclrtMemMallocPolicy policy)
{
    REAL(aclrtMallocAlign32);
    return allocate(real, pointer, bytes, policy, 0);
}

HCS_EXPORT aclError aclrtFree(void *pointer)
{
    REAL(aclrtFree);
    if (!watching())
        return real(pointer);
    struct hcs_local *local = hcs_local();
    struct hcs_entry entry;
    uint64_t key = (uint64_t)(uintptr_t)pointer;
    bool known = local != NULL && hcs_addresses_take(&local->addresses, HCS_KIND_POINTER, key, &entry);
    aclError result = real(pointer); /* unknown pointers too: the runtime knows better */
    if (known && result == ACL_SUCCESS)
        hcs_uncharge((int)entry.card, entry.bytes);
    else if (known)
        hcs_addresses_put(&local->addresses, &entry);
    hcs_leave();
    return result;
}

HCS_EXPORT aclError aclrtGetMemInfo(aclrtMemAttr attribute, size_t *free_bytes, size_t *total_bytes)
{
    REAL(aclrtGetMemInfo);
    if (!watching())
        return real(attribute, free_bytes, total_bytes);
    int card;
    aclError result = real(attribute, free_bytes, total_bytes);
    /* A kind of memory the card does not have reads 0 of 0 and stays so. */
    if (result == ACL_SUCCESS && current_card(&card))
        hcs_clamp(card, free_bytes, total_bytes);
    hcs_leave();
    return result;
}
