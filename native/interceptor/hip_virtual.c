/* HIP's physical memory: charged on the device its properties name, until it is released and mapped nowhere. */
#include "hip.h"

HCS_EXPORT hipError_t hipMemCreate(hipMemHandle *handle, size_t bytes, const hipMemAllocationProp *properties,
                                   unsigned long long flags)
{
    REAL(hipMemCreate);
    if (properties == NULL || properties->location.type != hipMemLocationTypeDevice || !hcs_watching())
        return real(handle, bytes, properties, flags);
    int card = hip_card_of(properties->location.id);
    hipError_t result = hipErrorOutOfMemory;
    if (hcs_charge(card, bytes)) {
        result = real(handle, bytes, properties, flags);
        bool ok = result == hipSuccess;
        if (!hcs_physical_settle(ok, HCS_RUNTIME_HIP, ok ? hip_number(*handle) : 0, bytes, card)) {
            hip_release(HCS_SYM_hipMemRelease, *handle);
            result = hipErrorOutOfMemory;
        }
    }
    hcs_leave();
    return result;
}

HCS_EXPORT hipError_t hipMemRelease(hipMemHandle handle)
{
    REAL(hipMemRelease);
    if (!hcs_watching())
        return real(handle);
    struct hcs_releasing releasing;
    hcs_physical_begin_release(HCS_RUNTIME_HIP, hip_number(handle), &releasing);
    hipError_t result = real(handle);
    hcs_physical_end_release(HCS_RUNTIME_HIP, result == hipSuccess, &releasing);
    hcs_leave();
    return result;
}

HCS_EXPORT hipError_t hipMemRetainAllocationHandle(hipMemHandle *handle, void *address)
{
    REAL(hipMemRetainAllocationHandle);
    if (!hcs_watching())
        return real(handle, address);
    hipError_t result = real(handle, address);
    if (result == hipSuccess)
        hcs_physical_retained(HCS_RUNTIME_HIP, hip_number(*handle), hip_number(address));
    hcs_leave();
    return result;
}

HCS_EXPORT hipError_t hipMemMap(void *address, size_t bytes, size_t offset, hipMemHandle handle,
                                unsigned long long flags)
{
    REAL(hipMemMap);
    if (!hcs_watching())
        return real(address, bytes, offset, handle, flags);
    uint64_t memory = hcs_physical_begin_map(HCS_RUNTIME_HIP, hip_number(handle));
    hipError_t result = real(address, bytes, offset, handle, flags);
    hcs_physical_end_map(HCS_RUNTIME_HIP, result == hipSuccess, memory, hip_number(address), bytes);
    hcs_leave();
    return result;
}

HCS_EXPORT hipError_t hipMemUnmap(void *address, size_t bytes)
{
    REAL(hipMemUnmap);
    if (!hcs_watching())
        return real(address, bytes);
    hipError_t result = real(address, bytes);
    if (result == hipSuccess)
        hcs_physical_unmapped(HCS_RUNTIME_HIP, hip_number(address), bytes);
    hcs_leave();
    return result;
}

