/* CUDA's start, its questions about memory, and road (c): functions by name and version. */
#include "cuda.h"

HCS_EXPORT CUresult CU(Init)(unsigned int flags)
{
    /* Nothing to hold here; but where nothing can be allocated, people learn why now. */
    REAL(Init);
    hcs_announce_problem();
    return real(flags);
}

HCS_EXPORT CUresult CU(MemGetInfo_v2)(size_t *free_bytes, size_t *total_bytes)
{
    REAL(MemGetInfo_v2);
    if (!hcs_watching())
        return real(free_bytes, total_bytes);
    struct hcs_place place;
    CUresult result = real(free_bytes, total_bytes);
    if (result == CUDA_SUCCESS && cuda_current_place(&place, NULL)) {
        cuda_refresh_graphs();
        hcs_clamp(place.card, free_bytes, total_bytes);
    }
    hcs_leave();
    return result;
}

HCS_EXPORT CUresult CU(DeviceTotalMem_v2)(size_t *bytes, CUdevice device)
{
    REAL(DeviceTotalMem_v2);
    if (!hcs_watching())
        return real(bytes, device);
    CUresult result = real(bytes, device);
    if (result == CUDA_SUCCESS) {
        size_t free_bytes = *bytes;
        hcs_clamp(cuda_card_of(device), &free_bytes, bytes);
    }
    hcs_leave();
    return result;
}

/* The first interface counts with 32 bits, and says the most it can where there is more. */
static unsigned int narrow(size_t bytes)
{
    return bytes < UINT32_MAX ? (unsigned int)bytes : UINT32_MAX;
}

HCS_EXPORT CUresult CU(MemGetInfo)(unsigned int *free_bytes, unsigned int *total_bytes)
{
    REAL(MemGetInfo);
    if (!hcs_watching())
        return real(free_bytes, total_bytes);
    struct hcs_place place;
    CUresult result = real(free_bytes, total_bytes);
    if (result == CUDA_SUCCESS && cuda_current_place(&place, NULL)) {
        size_t free_now = *free_bytes, total_now = *total_bytes;
        cuda_refresh_graphs();
        hcs_clamp(place.card, &free_now, &total_now);
        *free_bytes = narrow(free_now);
        *total_bytes = narrow(total_now);
    }
    hcs_leave();
    return result;
}

HCS_EXPORT CUresult CU(DeviceTotalMem)(unsigned int *bytes, CUdevice device)
{
    REAL(DeviceTotalMem);
    if (!hcs_watching())
        return real(bytes, device);
    CUresult result = real(bytes, device);
    if (result == CUDA_SUCCESS) {
        size_t free_now = *bytes, total_now = *bytes;
        hcs_clamp(cuda_card_of(device), &free_now, &total_now);
        *bytes = narrow(total_now);
    }
    hcs_leave();
    return result;
}

/* ---- road (c) ---------------------------------------------------------------------------------------------------- */

/* The driver answers with the caller's version and flags; only what it would have handed out is exchanged. So a request
 * for another ABI version, or for a name it does not have, gets the driver's own answer. */
static void exchange(CUresult result, void **function)
{
    if (result != CUDA_SUCCESS || function == NULL)
        return;
    *function = hcs_substitute(*function);
}

HCS_EXPORT CUresult CU(GetProcAddress)(const char *name, void **function, int version, uint64_t flags)
{
    REAL(GetProcAddress);
    if (!hcs_watching())
        return real(name, function, version, flags);
    CUresult result = real(name, function, version, flags);
    exchange(result, function);
    hcs_leave();
    return result;
}

HCS_EXPORT CUresult CU(GetProcAddress_v2)(const char *name, void **function, int version, uint64_t flags, int *status)
{
    REAL(GetProcAddress_v2);
    if (!hcs_watching())
        return real(name, function, version, flags, status);
    CUresult result = real(name, function, version, flags, status);
    exchange(result, function);
    hcs_leave();
    return result;
}
