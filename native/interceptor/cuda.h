/* What the files of the CUDA driver API share. The same files, compiled once more under MUSA's names (musa.c), serve Moore
 * Threads' driver, which has the same functions with the letters "mu" in the place of "cu". Signatures as in NVIDIA's
 * public cuda.h. */
#ifndef HCS_CUDA_H
#define HCS_CUDA_H

#include "../common/cuda_abi.h"
#include "books.h"
#include "interceptor.h"

#ifdef HCS_MUSA
#define CU(name) mu##name
#define HCS_DRIVER_RUNTIME HCS_RUNTIME_MUSA
#define HCS_DRIVER_VENDOR "mthreads"
#define HCS_DRIVER_PREFIXES "GPU- MTGPU-"
#define CU_SYMBOL(name) HCS_SYM_mu##name
#define cuda_card_of musa_card_of
#define cuda_current_place musa_current_place
#define cuda_place_of_stream musa_place_of_stream
#define cuda_state musa_state
#define cuda_free_memory musa_free_memory
#define cuda_begin_measure musa_begin_measure
#define cuda_end_measure musa_end_measure
#define cuda_mark_graph_memory musa_mark_graph_memory
#define cuda_refresh_graphs musa_refresh_graphs
#else
#define CU(name) cu##name
#define HCS_DRIVER_RUNTIME HCS_RUNTIME_CUDA
#define HCS_DRIVER_VENDOR "nvidia"
#define HCS_DRIVER_PREFIXES "GPU- MIG-"
#define CU_SYMBOL(name) HCS_SYM_cu##name
#endif

/* REAL(name): the driver's own function, typed like ours, as the variable `real`. */
#define REAL(name)                                                                                                     \
    __typeof__(&CU(name)) real = (__typeof__(&CU(name)))hcs_real(CU_SYMBOL(name));                                     \
    if (real == NULL)                                                                                                  \
    return CUDA_ERROR_NOT_INITIALIZED

/* A function of the driver that may be missing, as a variable of that type. */
#define ASK(type, variable, name) type variable = (type)hcs_real(CU_SYMBOL(name))

#define KIND(kind) HCS_KIND(HCS_DRIVER_RUNTIME, HCS_KIND_##kind)

static inline uint64_t cuda_number(const void *handle)
{
    return (uint64_t)(uintptr_t)handle;
}

typedef CUresult (*get_context_function)(CUcontext *);
typedef CUresult (*get_device_function)(CUdevice *);
typedef CUresult (*push_function)(CUcontext);

/* ---- cuda_places.c ----------------------------------------------------------------------------------------------- */

/* The card behind an ordinal. */
int cuda_card_of(CUdevice device);

/* The current context and its card; false when there is none, and the driver may say so itself. */
bool cuda_current_place(struct hcs_place *place, CUdevice *device);

/* The place of a stream, which need not belong to the current context. */
bool cuda_place_of_stream(CUstream stream, struct hcs_place *place, CUdevice *device);

/* State of this process; NULL when no memory can be mapped. */
struct hcs_driver_state *cuda_state(void);

/* ---- cuda_contexts.c: what can only be measured afterwards -------------------------------------------------------- */

/* One measurement at a time in a process: end must follow begin. Threads that allocate meanwhile are subtracted by
 * what the ledger saw of them; what a neighbour on the card does meanwhile is not told apart. */
struct cuda_measure {
    int card;
    bool known;
    uint64_t free_before;
    uint64_t used_before;
};
void cuda_begin_measure(struct cuda_measure *measure, int card, bool known, uint64_t free_before);
/* Bytes that free memory has shrunk by; 0 where it grew or cannot be known. */
uint64_t cuda_end_measure(const struct cuda_measure *measure, bool known, uint64_t free_after);
/* Free memory of the current context's card, from the driver; false where it cannot be asked. */
bool cuda_free_memory(uint64_t *bytes);

/* ---- cuda_graphs.c ------------------------------------------------------------------------------------------------ */

/* From now on graphs of this ordinal may own memory. */
void cuda_mark_graph_memory(CUdevice device);
/* Sets the ledger to what graphs have reserved. */
void cuda_refresh_graphs(void);

#endif
