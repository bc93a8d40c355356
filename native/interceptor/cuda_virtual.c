/* CUDA's virtual memory management: physical memory is charged on the card its properties name, from cuMemCreate until
 * its last handle is released and it is mapped nowhere. Reserving addresses costs nothing; imported handles are a peer's. */
#include "cuda.h"

HCS_EXPORT CUresult CU(MemRelease)(CUmemGenericAllocationHandle handle);

HCS_EXPORT CUresult CU(MemCreate)(CUmemGenericAllocationHandle *handle, size_t bytes,
                                  const CUmemAllocationProp *properties, unsigned long long flags)
{
    REAL(MemCreate);
    /* Whatever context is current; memory of the host is free of charge. */
    if (properties == NULL || properties->location.type != CU_MEM_LOCATION_TYPE_DEVICE || !hcs_watching())
        return real(handle, bytes, properties, flags);
    int card = cuda_card_of(properties->location.id);
    CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
    if (hcs_charge(card, bytes)) {
        result = real(handle, bytes, properties, flags);
        bool ok = result == CUDA_SUCCESS;
        if (!hcs_physical_settle(ok, HCS_DRIVER_RUNTIME, ok ? *handle : 0, bytes, card)) {
            CU(MemRelease)(*handle); /* inside a hook: straight to the driver */
            result = CUDA_ERROR_OUT_OF_MEMORY;
        }
    }
    hcs_leave();
    return result;
}

HCS_EXPORT CUresult CU(MemRelease)(CUmemGenericAllocationHandle handle)
{
    REAL(MemRelease);
    if (!hcs_watching())
        return real(handle);
    struct hcs_releasing releasing;
    hcs_physical_begin_release(HCS_DRIVER_RUNTIME, handle, &releasing);
    CUresult result = real(handle);
    hcs_physical_end_release(HCS_DRIVER_RUNTIME, result == CUDA_SUCCESS, &releasing);
    hcs_leave();
    return result;
}

HCS_EXPORT CUresult CU(MemRetainAllocationHandle)(CUmemGenericAllocationHandle *handle, void *address)
{
    REAL(MemRetainAllocationHandle);
    if (!hcs_watching())
        return real(handle, address);
    CUresult result = real(handle, address);
    if (result == CUDA_SUCCESS)
        hcs_physical_retained(HCS_DRIVER_RUNTIME, *handle, (uint64_t)(uintptr_t)address);
    hcs_leave();
    return result;
}

HCS_EXPORT CUresult CU(MemMap)(CUdeviceptr address, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle,
                               unsigned long long flags)
{
    REAL(MemMap);
    if (!hcs_watching())
        return real(address, bytes, offset, handle, flags);
    uint64_t memory = hcs_physical_begin_map(HCS_DRIVER_RUNTIME, handle);
    CUresult result = real(address, bytes, offset, handle, flags);
    hcs_physical_end_map(HCS_DRIVER_RUNTIME, result == CUDA_SUCCESS, memory, address, bytes);
    hcs_leave();
    return result;
}

HCS_EXPORT CUresult CU(MemUnmap)(CUdeviceptr address, size_t bytes)
{
    REAL(MemUnmap);
    if (!hcs_watching())
        return real(address, bytes);
    CUresult result = real(address, bytes);
    if (result == CUDA_SUCCESS)
        hcs_physical_unmapped(HCS_DRIVER_RUNTIME, address, bytes);
    hcs_leave();
    return result;
}
