/* Emulated HIP runtime: state shared by its files. Not AMD's or Hygon's library and says so in the device name. */
#ifndef HCS_EMULATED_HIP_H
#define HCS_EMULATED_HIP_H

#include <stdbool.h>

#include "../common/hip_abi.h"
#include "card.h"

#define HCS_EXPORT __attribute__((visibility("default")))

struct ihipStream_t {
    int device;
    hipGraph_t capture; /* NULL unless it is being captured */
};

/* hipSuccess where the device is there and its card is well. */
hipError_t hcs_hip_usable(int device, const struct hcs_card **card);

/* The calling thread's device. */
int hcs_hip_current(void);

/* Takes bytes of a device's card for this process, or gives them back. */
bool hcs_hip_take(int device, uint64_t bytes);
void hcs_hip_give_back(int device, uint64_t bytes);

/* ---- hip_graphs.c: an allocation on a stream that is captured becomes a node. */
hipError_t hcs_hip_capture_allocation(hipGraph_t graph, int device, size_t bytes, void **pointer);

#endif
