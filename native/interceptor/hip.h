/* What the files of HIP (AMD, Hygon DTK) share. They make the audit library: functions that the loader binds in the place
 * of HIP's own, between libraries only, so that HIP's calls of itself never come here. Signatures as in AMD's public
 * hip_runtime_api.h. HIP has no context of its own: what dies with a device reset is kept under the device. */
#ifndef HCS_HIP_H
#define HCS_HIP_H

#include "../common/hip_abi.h"
#include "books.h"
#include "interceptor.h"

#define REAL(name)                                                                                                     \
    __typeof__(&name) real = (__typeof__(&name))hcs_real(HCS_SYM_##name);                                              \
    if (real == NULL)                                                                                                  \
    return hipErrorNotInitialized

#define ASK(type, variable, name) type variable = (type)hcs_real(HCS_SYM_##name)

#define HIP_KIND(kind) HCS_KIND(HCS_RUNTIME_HIP, HCS_KIND_##kind)

/* The card behind a device number. */
int hip_card_of(int device);

struct hcs_place hip_place_of(int device);

/* The calling thread's device; false where HIP may say so itself. */
bool hip_current_device(int *device);

/* Frees by one of HIP's own functions. */
hipError_t hip_release(enum hcs_symbol symbol, void *handle);

static inline uint64_t hip_number(const void *handle)
{
    return (uint64_t)(uintptr_t)handle;
}

/* ---- hip_graphs.c: from now on graphs of this device may own memory; and the ledger set to what they have reserved. */
void hip_mark_graph_memory(int device);
void hip_refresh_graphs(void);

#endif
