/* Emulated CUDA driver: graphs that own memory (graph_memory.h), and streams that are captured into them. */
#include <stdlib.h>
#include <string.h>

#include "cuda.h"
#include "graph_memory.h"

struct CUgraph_st {
    struct hcs_graph memory;
};

struct CUgraphExec_st {
    struct hcs_graph_exec memory;
};

CUresult hcs_cuda_capture_allocation(CUgraph graph, CUdevice device, size_t bytes, CUdeviceptr *pointer)
{
    uint64_t address;
    if (bytes == 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (!hcs_graph_allocate(&graph->memory, device, bytes, HCS_CUDA_PAGE, &address))
        return CUDA_ERROR_OUT_OF_MEMORY;
    *pointer = address;
    return CUDA_SUCCESS;
}

CUresult hcs_cuda_capture_free(CUgraph graph, CUdeviceptr pointer)
{
    (void)pointer;
    graph->memory.nodes++;
    return CUDA_SUCCESS;
}

HCS_EXPORT CUresult cuGraphCreate(CUgraph *graph, unsigned int flags)
{
    (void)flags;
    CUresult result = hcs_cuda_ready();
    *graph = result == CUDA_SUCCESS ? calloc(1, sizeof **graph) : NULL;
    return result == CUDA_SUCCESS && *graph == NULL ? CUDA_ERROR_OUT_OF_MEMORY : result;
}

HCS_EXPORT CUresult cuGraphDestroy(CUgraph graph)
{
    free(graph);
    return CUDA_SUCCESS;
}

static CUgraphNode last_node(CUgraph graph)
{
    return (CUgraphNode)(uintptr_t)graph->memory.nodes; // NOLINT
}

HCS_EXPORT CUresult cuGraphAddMemAllocNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
                                           size_t count, CUDA_MEM_ALLOC_NODE_PARAMS *parameters)
{
    (void)dependencies, (void)count;
    CUdevice device = parameters->poolProps.location.id;
    CUresult result = hcs_cuda_health(device);
    if (result == CUDA_SUCCESS)
        result = hcs_cuda_capture_allocation(graph, device, parameters->bytesize, &parameters->dptr);
    if (result == CUDA_SUCCESS)
        *node = last_node(graph);
    return result;
}

HCS_EXPORT CUresult cuGraphAddMemFreeNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
                                          size_t count, CUdeviceptr pointer)
{
    (void)dependencies, (void)count;
    CUresult result = hcs_cuda_capture_free(graph, pointer);
    *node = last_node(graph);
    return result;
}

HCS_EXPORT CUresult cuGraphAddNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies, size_t count,
                                   CUgraphNodeParams *parameters)
{
    if (parameters->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC)
        return cuGraphAddMemAllocNode(node, graph, dependencies, count, &parameters->alloc);
    graph->memory.nodes++;
    *node = last_node(graph);
    return CUDA_SUCCESS;
}

HCS_EXPORT CUresult cuGraphAddNode_v2(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
                                      const void *edges, size_t count, CUgraphNodeParams *parameters)
{
    (void)edges;
    return cuGraphAddNode(node, graph, dependencies, count, parameters);
}

HCS_EXPORT CUresult cuGraphInstantiateWithFlags(CUgraphExec *executable, CUgraph graph, unsigned long long flags)
{
    (void)flags;
    *executable = calloc(1, sizeof **executable);
    if (*executable == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    (*executable)->memory = hcs_graph_executable(&graph->memory);
    return CUDA_SUCCESS;
}

HCS_EXPORT CUresult cuGraphInstantiate_v2(CUgraphExec *executable, CUgraph graph, CUgraphNode *bad, char *log,
                                          size_t bytes)
{
    (void)bad, (void)log, (void)bytes;
    return cuGraphInstantiateWithFlags(executable, graph, 0);
}

HCS_EXPORT CUresult cuGraphInstantiate(CUgraphExec *executable, CUgraph graph, CUgraphNode *bad, char *log, size_t bytes)
{
    return cuGraphInstantiate_v2(executable, graph, bad, log, bytes);
}

HCS_EXPORT CUresult cuGraphInstantiateWithParams(CUgraphExec *executable, CUgraph graph, void *parameters)
{
    (void)parameters;
    return cuGraphInstantiateWithFlags(executable, graph, 0);
}

HCS_EXPORT CUresult cuGraphInstantiateWithParams_ptsz(CUgraphExec *executable, CUgraph graph, void *parameters)
{
    return cuGraphInstantiateWithParams(executable, graph, parameters);
}

HCS_EXPORT CUresult cuGraphUpload(CUgraphExec executable, CUstream stream)
{
    CUcontext context;
    CUresult result = hcs_cuda_of_stream(stream, &context);
    if (result == CUDA_SUCCESS && !hcs_graph_back(&executable->memory, hcs_cuda_take))
        result = CUDA_ERROR_OUT_OF_MEMORY;
    return result;
}

HCS_EXPORT CUresult cuGraphLaunch(CUgraphExec executable, CUstream stream)
{
    return cuGraphUpload(executable, stream);
}

HCS_EXPORT CUresult cuGraphUpload_ptsz(CUgraphExec executable, CUstream stream)
{
    return cuGraphUpload(executable, stream);
}

HCS_EXPORT CUresult cuGraphLaunch_ptsz(CUgraphExec executable, CUstream stream)
{
    return cuGraphUpload(executable, stream);
}

HCS_EXPORT CUresult cuGraphExecDestroy(CUgraphExec executable)
{
    hcs_graph_abandon(&executable->memory);
    free(executable);
    return CUDA_SUCCESS;
}

HCS_EXPORT CUresult cuDeviceGraphMemTrim(CUdevice device)
{
    CUresult result = hcs_cuda_health(device);
    if (result == CUDA_SUCCESS)
        hcs_graph_trim(device, hcs_cuda_give_back);
    return result;
}

HCS_EXPORT CUresult cuDeviceGetGraphMemAttribute(CUdevice device, int attribute, void *value)
{
    CUresult result = hcs_cuda_health(device);
    if (result != CUDA_SUCCESS)
        return result;
    if (attribute != CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT && attribute != CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT)
        return CUDA_ERROR_INVALID_VALUE;
    uint64_t answer = attribute == CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT ? hcs_graph_used(device)
                                                                      : hcs_graph_reserved(device);
    memcpy(value, &answer, sizeof answer);
    return CUDA_SUCCESS;
}

/* ---- capture ----------------------------------------------------------------------------------------------------- */

static _Thread_local struct CUstream_st per_thread; /* CU_STREAM_PER_THREAD, which is captured like any other */

static CUstream capturable(CUstream stream)
{
    return stream == CU_STREAM_PER_THREAD ? &per_thread : (uintptr_t)stream > 1 ? stream : NULL;
}

CUgraph hcs_cuda_capture_of(CUstream stream)
{
    CUstream captured = capturable(stream);
    return captured != NULL ? captured->capture : NULL;
}

HCS_EXPORT CUresult cuStreamBeginCapture_v2(CUstream stream, int mode)
{
    (void)mode;
    CUstream captured = capturable(stream);
    return captured != NULL ? cuGraphCreate(&captured->capture, 0) : CUDA_ERROR_INVALID_VALUE;
}

HCS_EXPORT CUresult cuStreamEndCapture(CUstream stream, CUgraph *graph)
{
    CUstream captured = capturable(stream);
    *graph = captured != NULL ? captured->capture : NULL;
    if (captured != NULL)
        captured->capture = NULL;
    return *graph != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

HCS_EXPORT CUresult cuStreamIsCapturing(CUstream stream, int *status)
{
    *status = hcs_cuda_capture_of(stream) != NULL;
    return CUDA_SUCCESS;
}
