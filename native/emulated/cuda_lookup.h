/* Functions of the emulated CUDA driver by base name and version. */
#ifndef HCS_CUDA_LOOKUP_H
#define HCS_CUDA_LOOKUP_H

#include <stdbool.h>

/* The newest ABI of the name that is not newer than the version asked for; NULL where there is none, and *status says
 * why, in the words of cuGetProcAddress_v2. */
void *hcs_cuda_find(const char *name, int version, bool per_thread_stream, int *status);

#endif
