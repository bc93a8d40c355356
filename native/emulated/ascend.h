/* The emulated Ascend runtime: what its lower library (libruntime.so) offers to the upper one (libascendcl.so). */
#ifndef HCS_EMULATED_ASCEND_H
#define HCS_EMULATED_ASCEND_H

#include "../common/acl_abi.h"

#define HCS_EXPORT __attribute__((visibility("default")))

/* ---- as in CANN ---- */
aclError rtSetDevice(int32_t device);
aclError rtGetDevice(int32_t *device);
aclError rtDeviceReset(int32_t device);
aclError rtGetDeviceCount(int32_t *count);
aclError rtGetDevicePhyIdByIndex(uint32_t device, uint32_t *physical_id);
aclError rtGetSocVersion(char *name, uint32_t length);
aclError rtDeviceSynchronize(void);
aclError rtMalloc(void **pointer, uint64_t bytes, uint32_t type, uint16_t module);
aclError rtMallocCached(void **pointer, uint64_t bytes, uint32_t type, uint16_t module);
aclError rtMemAllocManaged(void **pointer, uint64_t bytes, uint32_t flags, uint16_t module);
aclError rtDvppMalloc(void **pointer, uint64_t bytes, uint16_t module);
aclError rtFree(void *pointer);
aclError rtDvppFree(void *pointer);
aclError rtMallocPhysical(aclrtDrvMemHandle *handle, size_t bytes, rtDrvMemProp *properties, uint64_t flags);
aclError rtFreePhysical(aclrtDrvMemHandle handle);
aclError rtReserveMemAddress(void **address, size_t bytes, size_t alignment, void *wanted, uint64_t flags);
aclError rtReleaseMemAddress(void *address);
aclError rtMapMem(void *address, size_t bytes, size_t offset, aclrtDrvMemHandle handle, uint64_t flags);
aclError rtUnmapMem(void *address);
aclError rtMemGetInfoEx(uint32_t kind, size_t *free_bytes, size_t *total_bytes);
aclError rtMemcpy(void *destination, uint64_t room, const void *source, uint64_t bytes, int kind);
aclError rtMemset(void *address, uint64_t room, uint32_t value, uint64_t count);

/* ---- ours ---- */
aclError rtEmulatedStart(void);
aclError rtEmulatedFailed(aclError code, const char *why);
const char *rtEmulatedRecentError(void);

#endif
