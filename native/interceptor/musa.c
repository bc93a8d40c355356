/* Moore Threads' MUSA driver mirrors the CUDA driver function by function, with "mu" for "cu": so the CUDA files are
 * compiled here once more under its names, and what holds for one holds for the other. A function that a release of the
 * driver does not have is simply never called. Unlike CUDA there is no management library to measure a context with before
 * there is one: its overhead is what the quota file says. */
#define HCS_MUSA

#include "cuda_arrays.c"
#include "cuda_contexts.c"
#include "cuda_graphs.c"
#include "cuda_memory.c"
#include "cuda_places.c"
#include "cuda_pools.c"
#include "cuda_queries.c"
#include "cuda_virtual.c"
