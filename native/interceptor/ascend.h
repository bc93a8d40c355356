/* What the two levels of Ascend's runtime share: acl.c above, ascend_runtime.c below.
 *
 * Programs enter at both (frameworks at AscendCL, graph engine and collectives below it), and on some releases the upper
 * level ends in the lower one. So both are hooked, and a call is charged where it came in: what it leads to inside the
 * runtime is the same memory. One table of addresses serves both, for memory may be freed at the other level.
 */
#ifndef HCS_ASCEND_H
#define HCS_ASCEND_H

#include "../common/acl_abi.h"
#include "books.h"
#include "interceptor.h"

/* REAL(name): the runtime's own function, typed like ours, as the variable `real`. */
#define REAL(name)                                                                                                     \
    __typeof__(&name) real = (__typeof__(&name))hcs_real(HCS_SYM_##name);                                              \
    if (real == NULL)                                                                                                  \
    return ACL_ERROR_UNINITIALIZE

/* The card behind a device id. */
int ascend_card_of(int32_t device);
/* The card of the calling thread's device; false when it has none, and the runtime may say so itself. */
bool ascend_current_card(int *card);

/* ASCEND_ALLOCATE(pointer, taken, release, arguments...): the body of a hook that allocates. `release` frees at the same
 * level what cannot be booked. */
#define ASCEND_ALLOCATE(pointer, taken, release, ...)                                                                  \
    if (!hcs_watching())                                                                                               \
        return real(__VA_ARGS__);                                                                                      \
    struct hcs_place place = {.owner = 0};                                                                             \
    aclError result = ACL_ERROR_RT_MEMORY_ALLOCATION;                                                                  \
    if (!ascend_current_card(&place.card)) {                                                                           \
        result = real(__VA_ARGS__);                                                                                    \
    } else if (hcs_charge(place.card, taken)) {                                                                        \
        result = real(__VA_ARGS__);                                                                                    \
        bool ok = result == ACL_SUCCESS;                                                                               \
        if (!hcs_settle(ok, ASCEND_POINTER, ok ? (uint64_t)(uintptr_t)*(pointer) : 0, taken, &place)) {                \
            release(*(pointer));                                                                                       \
            result = ACL_ERROR_RT_MEMORY_ALLOCATION;                                                                   \
        }                                                                                                              \
    }                                                                                                                  \
    hcs_leave();                                                                                                       \
    return result

#define ASCEND_POINTER HCS_KIND(HCS_RUNTIME_ASCEND, HCS_KIND_POINTER)

/* ASCEND_FREE(pointer): the body of a hook that frees; unknown pointers too: the runtime knows better. */
#define ASCEND_FREE(pointer)                                                                                           \
    if (!hcs_watching())                                                                                               \
        return real(pointer);                                                                                          \
    struct hcs_entry entry;                                                                                            \
    bool known = hcs_unbook(ASCEND_POINTER, (uint64_t)(uintptr_t)(pointer), &entry);                                   \
    aclError result = real(pointer);                                                                                   \
    hcs_settle_free(result == ACL_SUCCESS, known, &entry);                                                             \
    hcs_leave();                                                                                                       \
    return result

/* Physical memory by handle, on the device with this id. */
#define ASCEND_PHYSICAL(handle, bytes, device, release, ...)                                                           \
    int card = ascend_card_of((int32_t)(device));                                                                      \
    aclError result = ACL_ERROR_RT_MEMORY_ALLOCATION;                                                                  \
    if (hcs_charge(card, bytes)) {                                                                                     \
        result = real(__VA_ARGS__);                                                                                    \
        bool ok = result == ACL_SUCCESS;                                                                               \
        if (!hcs_physical_settle(ok, HCS_RUNTIME_ASCEND, ok ? (uint64_t)(uintptr_t)*(handle) : 0, bytes, card)) {      \
            release(*(handle));                                                                                        \
            result = ACL_ERROR_RT_MEMORY_ALLOCATION;                                                                   \
        }                                                                                                              \
    }                                                                                                                  \
    hcs_leave();                                                                                                       \
    return result

#define ASCEND_RELEASE(handle)                                                                                         \
    if (!hcs_watching())                                                                                               \
        return real(handle);                                                                                           \
    struct hcs_releasing releasing;                                                                                    \
    hcs_physical_begin_release(HCS_RUNTIME_ASCEND, (uint64_t)(uintptr_t)(handle), &releasing);                         \
    aclError result = real(handle);                                                                                    \
    hcs_physical_end_release(HCS_RUNTIME_ASCEND, result == ACL_SUCCESS, &releasing);                                   \
    hcs_leave();                                                                                                       \
    return result

#define ASCEND_MAP(address, bytes, handle, ...)                                                                        \
    if (!hcs_watching())                                                                                               \
        return real(__VA_ARGS__);                                                                                      \
    uint64_t memory = hcs_physical_begin_map(HCS_RUNTIME_ASCEND, (uint64_t)(uintptr_t)(handle));                       \
    aclError result = real(__VA_ARGS__);                                                                               \
    hcs_physical_end_map(HCS_RUNTIME_ASCEND, result == ACL_SUCCESS, memory, (uint64_t)(uintptr_t)(address), bytes);    \
    hcs_leave();                                                                                                       \
    return result

#define ASCEND_UNMAP(address)                                                                                          \
    if (!hcs_watching())                                                                                               \
        return real(address);                                                                                          \
    aclError result = real(address);                                                                                   \
    if (result == ACL_SUCCESS)                                                                                         \
        hcs_physical_unmapped(HCS_RUNTIME_ASCEND, (uint64_t)(uintptr_t)(address), 0);                                  \
    hcs_leave();                                                                                                       \
    return result

#endif
