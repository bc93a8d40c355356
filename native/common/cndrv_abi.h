/* The part of Cambricon's CNDrv binary interface that we meet: types and values as in the public cn_api.h; the layout of
 * CNmemAllocationProp is not published with it and taken to be that of its CUDA model (docs/verified.md). */
#ifndef HCS_CNDRV_ABI_H
#define HCS_CNDRV_ABI_H

#include <stddef.h>
#include <stdint.h>

typedef int CNresult;
typedef int CNdev;
typedef uint64_t CNaddr;
typedef uint64_t CNmemHandle;
typedef struct CNctx_st *CNcontext;
typedef struct {
    unsigned char bytes[16];
} CNuuid;

typedef struct {
    int type;
    int requestedHandleTypes;
    struct {
        int type; /* 1 = device */
        int id;
    } location;
    void *reserved;
    unsigned char flags[8];
} CNmemAllocationProp;

enum {
    CN_SUCCESS = 0,
    CN_ERROR_NOT_INITIALIZED = 100004,
    CN_ERROR_INVALID_VALUE = 100001,
    CN_ERROR_NO_DEVICE = 100005,
    CN_ERROR_INVALID_DEVICE = 100010,
    CN_CONTEXT_ERROR_INVALID = 100050,
    CN_MEMORY_ERROR_OUT_OF_MEMORY = 100100,
    CN_ERROR_NOT_FOUND = 100011,
    CN_ERROR_UNKNOWN = 999991,
};

/* What the driver takes for a request: whole pages of 2 MiB from 1 MiB on, multiples of 64 KiB below. Not published; an
 * assumption that charges rather too much than too little. */
static inline uint64_t hcs_cndrv_taken(uint64_t bytes)
{
    uint64_t unit = bytes < (UINT64_C(1) << 20) ? UINT64_C(64) << 10 : UINT64_C(2) << 20;
    return bytes > UINT64_MAX - unit ? UINT64_MAX : (bytes + unit - 1) / unit * unit;
}

#endif
