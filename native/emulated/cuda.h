/* Emulated CUDA driver: state shared by its files. Not NVIDIA's driver and says so in the device name. */
#ifndef HCS_EMULATED_CUDA_H
#define HCS_EMULATED_CUDA_H

#include <stdbool.h>

#include "../common/cuda_abi.h"
#include "card.h"

#define HCS_EXPORT __attribute__((visibility("default")))

enum { HCS_EMULATED_CUDA_VERSION = 12040 };

struct CUctx_st {
    CUdevice device;
    int references; /* of a primary context; explicit ones have 1 */
    bool primary;
};

struct CUstream_st {
    CUcontext context;
};

/* CUDA_SUCCESS after a successful cuInit in this very process. CUDA does not survive fork(). */
CUresult hcs_cuda_ready(void);

/* The card of a device ordinal, or NULL. */
const struct hcs_card *hcs_cuda_card(CUdevice device, uint32_t *index);

/* CUDA_ERROR_UNKNOWN (999) when the card has a fault: what programs see of a GPU that has fallen off the bus. */
CUresult hcs_cuda_health(CUdevice device);

/* The calling thread's context, checked: ready, present, healthy. */
CUresult hcs_cuda_current(CUcontext *context);

/* Frees everything a context owns. */
void hcs_cuda_free_owned(CUcontext context);

#endif
