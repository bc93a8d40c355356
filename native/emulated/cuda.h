/* Emulated CUDA driver: state shared by its files. Not NVIDIA's driver and says so in the device name. Compiled a second
 * time with the letters "mu" for "cu", it is the emulated MUSA driver (CMakeLists.txt). */
#ifndef HCS_EMULATED_CUDA_H
#define HCS_EMULATED_CUDA_H

#include <stdbool.h>

#include "../common/cuda_abi.h"
#include "card.h"

#define HCS_EXPORT __attribute__((visibility("default")))

#ifdef HCS_MUSA
#define HCS_EMULATED_VENDOR "mthreads"
#define HCS_EMULATED_NODES "emulated-mthreads"
#define HCS_EMULATED_VISIBLE "MUSA_VISIBLE_DEVICES"
#else
#define HCS_EMULATED_VENDOR "nvidia"
#define HCS_EMULATED_NODES "nvidia"
#define HCS_EMULATED_VISIBLE "CUDA_VISIBLE_DEVICES"
#endif

enum { HCS_EMULATED_CUDA_VERSION = 12080 };

/* Returns from the function where a fault was ordered for it. */
#define HCS_FAULT()                                                                                                    \
    do {                                                                                                               \
        CUresult ordered = hcs_fault_injected(__func__);                                                               \
        if (ordered != CUDA_SUCCESS)                                                                                   \
            return ordered;                                                                                            \
    } while (0)

struct CUctx_st {
    CUdevice device;
    int references; /* of a primary context; explicit ones have 1 */
    bool primary;
    uint64_t charged; /* its own overhead */
    uint64_t heap;    /* the heap of its kernels, as cuCtxSetLimit last said */
};

struct CUstream_st {
    CUcontext context;
    CUgraph capture; /* NULL unless it is being captured */
};

/* CUDA_SUCCESS after a successful cuInit in this very process. CUDA does not survive fork(). */
CUresult hcs_cuda_ready(void);

/* The card of a device ordinal, or NULL. */
const struct hcs_card *hcs_cuda_card(CUdevice device, uint32_t *index);

/* Takes bytes of a card for this process, or gives them back. */
bool hcs_cuda_take(CUdevice device, uint64_t bytes);
void hcs_cuda_give_back(CUdevice device, uint64_t bytes);

/* CUDA_ERROR_UNKNOWN (999) when the card has a fault: what programs see of a GPU that has fallen off the bus. */
CUresult hcs_cuda_health(CUdevice device);

/* The calling thread's context, checked: ready, present, healthy. */
CUresult hcs_cuda_current(CUcontext *context);

/* The context of a stream, checked as well; default streams belong to the current one. */
CUresult hcs_cuda_of_stream(CUstream stream, CUcontext *context);

/* Frees everything a context owns: memory, arrays, modules. */
void hcs_cuda_free_owned(CUcontext context);
void hcs_cuda_free_objects(CUcontext context);

/* ---- cuda_pools.c: true where the pointer was in a pool. `now`: the free also waits, so memory may go back. */
bool hcs_cuda_pool_free(CUdeviceptr pointer, bool now);
/* Work is done: pools give back what nobody uses, above their threshold. */
void hcs_cuda_pools_synchronised(void);

/* ---- cuda_virtual.c: whether all the bytes are mapped there. */
bool hcs_cuda_mapped(CUdeviceptr address, size_t bytes);

/* ---- cuda_graphs.c: an allocation on a stream that is captured becomes a node. */
CUresult hcs_cuda_capture_allocation(CUgraph graph, CUdevice device, size_t bytes, CUdeviceptr *pointer);
CUresult hcs_cuda_capture_free(CUgraph graph, CUdeviceptr pointer);
/* The graph that a stream is being captured into; NULL where it is not. */
CUgraph hcs_cuda_capture_of(CUstream stream);

#endif
