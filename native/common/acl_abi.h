/* The part of Ascend's AscendCL binary interface that we meet: types and values as in Huawei's public acl headers
 * (acl_base_rt.h, acl_rt.h, rt_error_codes.h). Written out here because nothing of a vendor is needed to build. */
#ifndef HCS_ACL_ABI_H
#define HCS_ACL_ABI_H

#include <stddef.h>
#include <stdint.h>

typedef int aclError;
typedef int aclrtMemMallocPolicy;
typedef int aclrtMemAttr;
typedef int aclrtMemcpyKind;
typedef void *aclrtDrvMemHandle;

typedef struct {
    int handleType;
    int allocationType;
    aclrtMemAttr memAttr;
    struct {
        uint32_t id;
        int type;
    } location;
    uint64_t reserve;
} aclrtPhysicalMemProp;

/* The same at the runtime level. */
typedef struct {
    uint32_t side;
    uint32_t devid;
    uint32_t module_id;
    uint32_t pg_type;
    uint32_t mem_type;
    uint64_t reserve;
} rtDrvMemProp;

enum { ACL_MEM_LOCATION_TYPE_HOST = 0, ACL_MEM_LOCATION_TYPE_DEVICE = 1 };
enum { RT_MEMORY_OF_HOST = 0, RT_MEMORY_OF_DEVICE = 1 };

enum {
    ACL_SUCCESS = 0,
    ACL_ERROR_INVALID_PARAM = 100000,
    ACL_ERROR_UNINITIALIZE = 100001,
    ACL_ERROR_REPEAT_INITIALIZE = 100002,
    ACL_ERROR_RT_PARAM_INVALID = 107000,
    ACL_ERROR_RT_INVALID_DEVICEID = 107001,
    ACL_ERROR_RT_CONTEXT_NULL = 107002,
    ACL_ERROR_RT_INVALID_MEMORY_TYPE = 107016,
    ACL_ERROR_RT_MEMORY_ALLOCATION = 207001,
    ACL_ERROR_RT_MEMORY_FREE = 207002,
    ACL_ERROR_RT_DRV_INTERNAL_ERROR = 507899,
};

enum {
    ACL_DDR_MEM = 0,
    ACL_HBM_MEM = 1,
    ACL_HBM_MEM_HUGE = 4,
    ACL_HBM_MEM_NORMAL = 5,
};

enum {
    ACL_MEMCPY_HOST_TO_HOST = 0,
    ACL_MEMCPY_HOST_TO_DEVICE = 1,
    ACL_MEMCPY_DEVICE_TO_HOST = 2,
    ACL_MEMCPY_DEVICE_TO_DEVICE = 3,
};

/* aclrtMalloc and aclrtMallocCached take the request rounded up to 32 bytes and 32 more; aclrtMallocAlign32 only
 * rounds (CANN documentation of these calls). */
#define HCS_ACL_UNIT UINT64_C(32)

static inline uint64_t hcs_acl_taken(uint64_t bytes, uint64_t extra)
{
    if (bytes > UINT64_MAX - 2 * HCS_ACL_UNIT)
        return UINT64_MAX;
    return (bytes + HCS_ACL_UNIT - 1) / HCS_ACL_UNIT * HCS_ACL_UNIT + extra;
}

#endif
