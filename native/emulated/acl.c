/* Emulated AscendCL (libascendcl.so): the upper level, which ends in the runtime below it, call by call, through the
 * loader. Not Huawei's library and says so in the SoC name. */
#include "ascend.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>

static _Atomic bool initialised;

static aclError started(void)
{
    return atomic_load(&initialised) ? ACL_SUCCESS
                                     : rtEmulatedFailed(ACL_ERROR_UNINITIALIZE, "aclInit has not been called");
}

HCS_EXPORT aclError aclInit(const char *configuration)
{
    (void)configuration;
    if (atomic_exchange(&initialised, true))
        return rtEmulatedFailed(ACL_ERROR_REPEAT_INITIALIZE, "aclInit was called before");
    return rtEmulatedStart();
}

HCS_EXPORT aclError aclFinalize(void)
{
    /* The cards stay mapped: memory that the program still holds stays charged until it ends. */
    return atomic_exchange(&initialised, false) ? ACL_SUCCESS : ACL_ERROR_UNINITIALIZE;
}

HCS_EXPORT const char *aclGetRecentErrMsg(void)
{
    return rtEmulatedRecentError();
}

HCS_EXPORT const char *aclrtGetSocName(void)
{
    static char name[96];
    return rtGetSocVersion(name, sizeof name) == ACL_SUCCESS ? name : NULL;
}

/* ---- devices ----------------------------------------------------------------------------------------------------- */

HCS_EXPORT aclError aclrtGetDeviceCount(uint32_t *count)
{
    int32_t found;
    aclError result = started();
    if (result == ACL_SUCCESS)
        result = rtGetDeviceCount(&found);
    if (result == ACL_SUCCESS)
        *count = (uint32_t)found;
    return result;
}

HCS_EXPORT aclError aclrtSetDevice(int32_t device)
{
    aclError result = started();
    return result == ACL_SUCCESS ? rtSetDevice(device) : result;
}

HCS_EXPORT aclError aclrtGetDevice(int32_t *device)
{
    return rtGetDevice(device);
}

HCS_EXPORT aclError aclrtResetDevice(int32_t device)
{
    return rtDeviceReset(device);
}

HCS_EXPORT aclError aclrtGetPhyDevIdByUserDevId(int32_t device, int32_t *physical_id)
{
    uint32_t found;
    aclError result = rtGetDevicePhyIdByIndex((uint32_t)device, &found);
    if (result == ACL_SUCCESS)
        *physical_id = (int32_t)found;
    return result;
}

HCS_EXPORT aclError aclrtGetPhyDevIdByLogicDevId(int32_t device, int32_t *physical_id)
{
    return aclrtGetPhyDevIdByUserDevId(device, physical_id);
}

HCS_EXPORT aclError aclrtSynchronizeDevice(void)
{
    return rtDeviceSynchronize();
}

/* ---- memory ------------------------------------------------------------------------------------------------------ */

enum { THIS_LIBRARY = 48 /* who asks, for the runtime's own books */ };

static aclError take(void **pointer, size_t bytes, uint64_t extra)
{
    aclError result = started();
    if (result == ACL_SUCCESS && (pointer == NULL || bytes == 0))
        result = rtEmulatedFailed(ACL_ERROR_RT_PARAM_INVALID, "nothing to allocate");
    return result == ACL_SUCCESS ? rtMalloc(pointer, hcs_acl_taken(bytes, extra), 0, THIS_LIBRARY) : result;
}

HCS_EXPORT aclError aclrtMalloc(void **pointer, size_t bytes, aclrtMemMallocPolicy policy)
{
    (void)policy;
    return take(pointer, bytes, HCS_ACL_UNIT);
}

HCS_EXPORT aclError aclrtMallocCached(void **pointer, size_t bytes, aclrtMemMallocPolicy policy)
{
    (void)policy;
    return take(pointer, bytes, HCS_ACL_UNIT);
}

HCS_EXPORT aclError aclrtMallocAlign32(void **pointer, size_t bytes, aclrtMemMallocPolicy policy)
{
    (void)policy;
    return take(pointer, bytes, 0);
}

HCS_EXPORT aclError aclrtMallocWithCfg(void **pointer, size_t bytes, aclrtMemMallocPolicy policy, void *configuration)
{
    (void)policy, (void)configuration;
    return take(pointer, bytes, HCS_ACL_UNIT);
}

HCS_EXPORT aclError aclrtMallocForTaskScheduler(void **pointer, size_t bytes, aclrtMemMallocPolicy policy,
                                                void *configuration)
{
    (void)policy, (void)configuration;
    return take(pointer, bytes, HCS_ACL_UNIT);
}

HCS_EXPORT aclError aclrtMemAllocManaged(void **pointer, uint64_t bytes, uint32_t flags)
{
    return rtMemAllocManaged(pointer, bytes, flags, THIS_LIBRARY);
}

HCS_EXPORT aclError aclrtFree(void *pointer)
{
    aclError result = started();
    return result == ACL_SUCCESS ? rtFree(pointer) : result;
}

HCS_EXPORT aclError aclrtFreeWithDevSync(void *pointer)
{
    return aclrtFree(pointer);
}

HCS_EXPORT aclError acldvppMalloc(void **pointer, size_t bytes)
{
    return rtDvppMalloc(pointer, hcs_acl_taken(bytes, HCS_ACL_UNIT), THIS_LIBRARY);
}

HCS_EXPORT aclError acldvppFree(void *pointer)
{
    return rtDvppFree(pointer);
}

HCS_EXPORT aclError hi_mpi_dvpp_malloc(uint32_t device, void **pointer, uint64_t bytes)
{
    (void)device;
    return acldvppMalloc(pointer, bytes);
}

HCS_EXPORT aclError hi_mpi_dvpp_free(void *pointer)
{
    return rtDvppFree(pointer);
}

HCS_EXPORT aclError aclrtMallocHost(void **pointer, size_t bytes)
{
    static char host[4096];
    *pointer = host; /* one page for everybody: nobody here writes to it */
    return bytes <= sizeof host ? ACL_SUCCESS : ACL_ERROR_RT_MEMORY_ALLOCATION;
}

HCS_EXPORT aclError aclrtMallocPhysical(aclrtDrvMemHandle *handle, size_t bytes, const aclrtPhysicalMemProp *properties,
                                        uint64_t flags)
{
    rtDrvMemProp lower = {.side = properties->location.type == ACL_MEM_LOCATION_TYPE_DEVICE ? RT_MEMORY_OF_DEVICE
                                                                                           : RT_MEMORY_OF_HOST,
                          .devid = properties->location.id};
    return rtMallocPhysical(handle, bytes, &lower, flags);
}

HCS_EXPORT aclError aclrtFreePhysical(aclrtDrvMemHandle handle)
{
    return rtFreePhysical(handle);
}

HCS_EXPORT aclError aclrtReserveMemAddress(void **address, size_t bytes, size_t alignment, void *wanted, uint64_t flags)
{
    return rtReserveMemAddress(address, bytes, alignment, wanted, flags);
}

HCS_EXPORT aclError aclrtReleaseMemAddress(void *address)
{
    return rtReleaseMemAddress(address);
}

HCS_EXPORT aclError aclrtMapMem(void *address, size_t bytes, size_t offset, aclrtDrvMemHandle handle, uint64_t flags)
{
    return rtMapMem(address, bytes, offset, handle, flags);
}

HCS_EXPORT aclError aclrtUnmapMem(void *address)
{
    return rtUnmapMem(address);
}

HCS_EXPORT aclError aclrtGetMemInfo(aclrtMemAttr attribute, size_t *free_bytes, size_t *total_bytes)
{
    aclError result = started();
    return result == ACL_SUCCESS ? rtMemGetInfoEx((uint32_t)attribute, free_bytes, total_bytes) : result;
}

HCS_EXPORT aclError aclrtMemcpy(void *destination, size_t room, const void *source, size_t bytes, aclrtMemcpyKind kind)
{
    aclError result = started();
    return result == ACL_SUCCESS ? rtMemcpy(destination, room, source, bytes, kind) : result;
}

HCS_EXPORT aclError aclrtMemset(void *address, size_t room, int32_t value, size_t count)
{
    aclError result = started();
    return result == ACL_SUCCESS ? rtMemset(address, room, (uint32_t)value, count) : result;
}
