/* Emulated HIP runtime: streams, and graphs that own memory (graph_memory.h). */
#include <stdlib.h>
#include <string.h>

#include "graph_memory.h"
#include "hip.h"

enum { GRANULE = 4096 };

struct ihipGraph {
    struct hcs_graph memory;
};

struct hipGraphExec {
    struct hcs_graph_exec memory;
};

hipError_t hcs_hip_capture_allocation(hipGraph_t graph, int device, size_t bytes, void **pointer)
{
    uint64_t address;
    if (bytes == 0)
        return hipErrorInvalidValue;
    if (!hcs_graph_allocate(&graph->memory, device, bytes, GRANULE, &address))
        return hipErrorOutOfMemory;
    *pointer = (void *)(uintptr_t)address; // NOLINT
    return hipSuccess;
}

static hipError_t well(int device)
{
    const struct hcs_card *card;
    return hcs_hip_usable(device, &card);
}

/* ---- graphs ------------------------------------------------------------------------------------------------------ */

HCS_EXPORT hipError_t hipGraphCreate(hipGraph_t *graph, unsigned int flags)
{
    (void)flags;
    *graph = calloc(1, sizeof **graph);
    return *graph != NULL ? hipSuccess : hipErrorOutOfMemory;
}

HCS_EXPORT hipError_t hipGraphDestroy(hipGraph_t graph)
{
    free(graph);
    return hipSuccess;
}

HCS_EXPORT hipError_t hipGraphAddMemAllocNode(hipGraphNode_t *node, hipGraph_t graph, const hipGraphNode_t *dependencies,
                                              size_t count, hipMemAllocNodeParams *parameters)
{
    (void)dependencies, (void)count;
    int device = parameters->poolProps.location.id;
    hipError_t result = well(device);
    if (result == hipSuccess)
        result = hcs_hip_capture_allocation(graph, device, parameters->bytesize, &parameters->dptr);
    if (result == hipSuccess)
        *node = (hipGraphNode_t)(uintptr_t)graph->memory.nodes; // NOLINT
    return result;
}

HCS_EXPORT hipError_t hipGraphAddNode(hipGraphNode_t *node, hipGraph_t graph, const hipGraphNode_t *dependencies,
                                      size_t count, hipGraphNodeParams *parameters)
{
    if (parameters->type == hipGraphNodeTypeMemAlloc)
        return hipGraphAddMemAllocNode(node, graph, dependencies, count, &parameters->alloc);
    graph->memory.nodes++;
    *node = (hipGraphNode_t)(uintptr_t)graph->memory.nodes; // NOLINT
    return hipSuccess;
}

HCS_EXPORT hipError_t hipGraphInstantiateWithFlags(hipGraphExec_t *executable, hipGraph_t graph,
                                                   unsigned long long flags)
{
    (void)flags;
    *executable = calloc(1, sizeof **executable);
    if (*executable == NULL)
        return hipErrorOutOfMemory;
    (*executable)->memory = hcs_graph_executable(&graph->memory);
    return hipSuccess;
}

HCS_EXPORT hipError_t hipGraphInstantiate(hipGraphExec_t *executable, hipGraph_t graph, hipGraphNode_t *bad, char *log,
                                          size_t bytes)
{
    (void)bad, (void)log, (void)bytes;
    return hipGraphInstantiateWithFlags(executable, graph, 0);
}

HCS_EXPORT hipError_t hipGraphInstantiateWithParams(hipGraphExec_t *executable, hipGraph_t graph, void *parameters)
{
    (void)parameters;
    return hipGraphInstantiateWithFlags(executable, graph, 0);
}

HCS_EXPORT hipError_t hipGraphUpload(hipGraphExec_t executable, hipStream_t stream)
{
    (void)stream;
    hipError_t result = well(executable->memory.device);
    if (result == hipSuccess && !hcs_graph_back(&executable->memory, hcs_hip_take))
        result = hipErrorOutOfMemory;
    return result;
}

/* As in the real library one exported function calls another. */
HCS_EXPORT hipError_t hipGraphLaunch(hipGraphExec_t executable, hipStream_t stream)
{
    return hipGraphUpload(executable, stream);
}

HCS_EXPORT hipError_t hipGraphLaunch_spt(hipGraphExec_t executable, hipStream_t stream)
{
    return hipGraphLaunch(executable, stream);
}

HCS_EXPORT hipError_t hipGraphExecDestroy(hipGraphExec_t executable)
{
    hcs_graph_abandon(&executable->memory);
    free(executable);
    return hipSuccess;
}

HCS_EXPORT hipError_t hipDeviceGraphMemTrim(int device)
{
    hipError_t result = well(device);
    if (result == hipSuccess)
        hcs_graph_trim(device, hcs_hip_give_back);
    return result;
}

HCS_EXPORT hipError_t hipDeviceGetGraphMemAttribute(int device, int attribute, void *value)
{
    hipError_t result = well(device);
    if (result != hipSuccess)
        return result;
    if (attribute != hipGraphMemAttrUsedMemCurrent && attribute != hipGraphMemAttrReservedMemCurrent)
        return hipErrorInvalidValue;
    uint64_t answer = attribute == hipGraphMemAttrUsedMemCurrent ? hcs_graph_used(device) : hcs_graph_reserved(device);
    memcpy(value, &answer, sizeof answer);
    return hipSuccess;
}

/* ---- streams ----------------------------------------------------------------------------------------------------- */

HCS_EXPORT hipError_t hipStreamCreate(hipStream_t *stream)
{
    *stream = calloc(1, sizeof **stream);
    if (*stream == NULL)
        return hipErrorOutOfMemory;
    (*stream)->device = hcs_hip_current();
    return hipSuccess;
}

HCS_EXPORT hipError_t hipStreamGetDevice(hipStream_t stream, int *device)
{
    *device = stream != NULL ? stream->device : hcs_hip_current();
    return hipSuccess;
}

HCS_EXPORT hipError_t hipStreamBeginCapture(hipStream_t stream, int mode)
{
    (void)mode;
    return hipGraphCreate(&stream->capture, 0);
}

HCS_EXPORT hipError_t hipStreamEndCapture(hipStream_t stream, hipGraph_t *graph)
{
    *graph = stream->capture;
    stream->capture = NULL;
    return *graph != NULL ? hipSuccess : hipErrorInvalidValue;
}

HCS_EXPORT hipError_t hipStreamIsCapturing(hipStream_t stream, int *status)
{
    *status = stream != NULL && stream->capture != NULL;
    return hipSuccess;
}
