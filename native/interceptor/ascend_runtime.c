/* Ascend's runtime level, below AscendCL. Sizes are charged as they are asked for: here nothing is added to them.
 * Older releases lack the last parameter (who asks); it is handed on as it came. Signatures as in the public headers of
 * CANN's runtime. */
#include "ascend.h"

HCS_EXPORT aclError rtFree(void *pointer)
{
    REAL(rtFree);
    ASCEND_FREE(pointer);
}

HCS_EXPORT aclError rtFreeWithDevSync(void *pointer)
{
    REAL(rtFreeWithDevSync);
    ASCEND_FREE(pointer);
}

HCS_EXPORT aclError rtMalloc(void **pointer, uint64_t bytes, uint32_t type, uint16_t module)
{
    REAL(rtMalloc);
    ASCEND_ALLOCATE(pointer, hcs_acl_taken(bytes, 0), rtFree, pointer, bytes, type, module);
}

HCS_EXPORT aclError rtMallocCached(void **pointer, uint64_t bytes, uint32_t type, uint16_t module)
{
    REAL(rtMallocCached);
    ASCEND_ALLOCATE(pointer, hcs_acl_taken(bytes, 0), rtFree, pointer, bytes, type, module);
}

HCS_EXPORT aclError rtMemAlloc(void **pointer, uint64_t bytes, uint32_t type, uint16_t module)
{
    REAL(rtMemAlloc);
    ASCEND_ALLOCATE(pointer, hcs_acl_taken(bytes, 0), rtFree, pointer, bytes, type, module);
}

HCS_EXPORT aclError rtMemFreeManaged(void *pointer)
{
    REAL(rtMemFreeManaged);
    ASCEND_FREE(pointer);
}

HCS_EXPORT aclError rtMemAllocManaged(void **pointer, uint64_t bytes, uint32_t flags, uint16_t module)
{
    REAL(rtMemAllocManaged);
    ASCEND_ALLOCATE(pointer, hcs_acl_taken(bytes, 0), rtMemFreeManaged, pointer, bytes, flags, module);
}

HCS_EXPORT aclError rtDvppFree(void *pointer)
{
    REAL(rtDvppFree);
    ASCEND_FREE(pointer);
}

HCS_EXPORT aclError rtDvppMalloc(void **pointer, uint64_t bytes, uint16_t module)
{
    REAL(rtDvppMalloc);
    ASCEND_ALLOCATE(pointer, hcs_acl_taken(bytes, 0), rtDvppFree, pointer, bytes, module);
}

HCS_EXPORT aclError rtDvppMallocWithFlag(void **pointer, uint64_t bytes, uint32_t flags, uint16_t module)
{
    REAL(rtDvppMallocWithFlag);
    ASCEND_ALLOCATE(pointer, hcs_acl_taken(bytes, 0), rtDvppFree, pointer, bytes, flags, module);
}

HCS_EXPORT aclError rtFreePhysical(aclrtDrvMemHandle handle)
{
    REAL(rtFreePhysical);
    ASCEND_RELEASE(handle);
}

HCS_EXPORT aclError rtMallocPhysical(aclrtDrvMemHandle *handle, size_t bytes, rtDrvMemProp *properties,
                                     uint64_t flags)
{
    REAL(rtMallocPhysical);
    if (properties == NULL || properties->side != RT_MEMORY_OF_DEVICE || !hcs_watching())
        return real(handle, bytes, properties, flags);
    ASCEND_PHYSICAL(handle, bytes, properties->devid, rtFreePhysical, handle, bytes, properties, flags);
}

HCS_EXPORT aclError rtMapMem(void *address, size_t bytes, size_t offset, aclrtDrvMemHandle handle, uint64_t flags)
{
    REAL(rtMapMem);
    ASCEND_MAP(address, bytes, handle, address, bytes, offset, handle, flags);
}

HCS_EXPORT aclError rtUnmapMem(void *address)
{
    REAL(rtUnmapMem);
    ASCEND_UNMAP(address);
}

/* ANSWER(arguments...): the body of a hook that tells free and total memory. */
#define ANSWER(...)                                                                                                    \
    if (!hcs_watching())                                                                                               \
        return real(__VA_ARGS__);                                                                                      \
    int card;                                                                                                          \
    aclError result = real(__VA_ARGS__);                                                                               \
    if (result == ACL_SUCCESS && ascend_current_card(&card))                                                           \
        hcs_clamp(card, free_bytes, total_bytes);                                                                      \
    hcs_leave();                                                                                                       \
    return result

HCS_EXPORT aclError rtMemGetInfo(size_t *free_bytes, size_t *total_bytes)
{
    REAL(rtMemGetInfo);
    ANSWER(free_bytes, total_bytes);
}

HCS_EXPORT aclError rtMemGetInfoEx(uint32_t kind, size_t *free_bytes, size_t *total_bytes)
{
    REAL(rtMemGetInfoEx);
    ANSWER(kind, free_bytes, total_bytes);
}
