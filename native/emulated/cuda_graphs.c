/* Emulated CUDA driver: graphs that own memory. An executable graph takes its memory when it is first uploaded or
 * launched; when it is destroyed the memory stays with the device until that is trimmed. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "cuda.h"

struct CUgraph_st {
    CUdevice device;
    uint64_t bytes; /* of its allocation nodes */
    uint32_t nodes;
};

struct CUgraphExec_st {
    CUdevice device;
    uint64_t bytes;
    bool backed;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static uint64_t reserved[HCS_MAX_CARDS];
static uint64_t unused[HCS_MAX_CARDS];

CUresult hcs_cuda_capture_allocation(CUgraph graph, CUdevice device, size_t bytes, CUdeviceptr *pointer)
{
    uint64_t taken = hcs_rounded(bytes, HCS_CUDA_PAGE);
    if (bytes == 0)
        return CUDA_ERROR_INVALID_VALUE;
    void *memory = mmap(NULL, taken, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED)
        return CUDA_ERROR_OUT_OF_MEMORY;
    graph->device = device;
    graph->bytes += taken;
    graph->nodes++;
    *pointer = (CUdeviceptr)(uintptr_t)memory;
    return CUDA_SUCCESS;
}

CUresult hcs_cuda_capture_free(CUgraph graph, CUdeviceptr pointer)
{
    (void)pointer;
    graph->nodes++;
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
    return (CUgraphNode)(uintptr_t)graph->nodes; // NOLINT
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
    graph->nodes++;
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
    **executable = (struct CUgraphExec_st){.device = graph->device, .bytes = graph->bytes};
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
    if (result != CUDA_SUCCESS || executable->backed || executable->bytes == 0)
        return result;
    pthread_mutex_lock(&lock);
    uint64_t *spare = &unused[executable->device];
    uint64_t fresh = executable->bytes > *spare ? executable->bytes - *spare : 0;
    if (hcs_cuda_take(executable->device, fresh)) {
        reserved[executable->device] += fresh;
        *spare -= executable->bytes - fresh;
        executable->backed = true;
    } else {
        result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    pthread_mutex_unlock(&lock);
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
    pthread_mutex_lock(&lock);
    if (executable->backed)
        unused[executable->device] += executable->bytes;
    pthread_mutex_unlock(&lock);
    free(executable);
    return CUDA_SUCCESS;
}

HCS_EXPORT CUresult cuDeviceGraphMemTrim(CUdevice device)
{
    CUresult result = hcs_cuda_health(device);
    if (result != CUDA_SUCCESS)
        return result;
    pthread_mutex_lock(&lock);
    hcs_cuda_give_back(device, unused[device]);
    reserved[device] -= unused[device];
    unused[device] = 0;
    pthread_mutex_unlock(&lock);
    return CUDA_SUCCESS;
}

HCS_EXPORT CUresult cuDeviceGetGraphMemAttribute(CUdevice device, int attribute, void *value)
{
    CUresult result = hcs_cuda_health(device);
    if (result != CUDA_SUCCESS)
        return result;
    pthread_mutex_lock(&lock);
    uint64_t answer = reserved[device] - (attribute == CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT ? unused[device] : 0);
    pthread_mutex_unlock(&lock);
    if (attribute != CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT && attribute != CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT)
        return CUDA_ERROR_INVALID_VALUE;
    memcpy(value, &answer, sizeof answer);
    return CUDA_SUCCESS;
}

/* ---- capture ----------------------------------------------------------------------------------------------------- */

HCS_EXPORT CUresult cuStreamBeginCapture_v2(CUstream stream, int mode)
{
    (void)mode;
    return cuGraphCreate(&stream->capture, 0);
}

HCS_EXPORT CUresult cuStreamEndCapture(CUstream stream, CUgraph *graph)
{
    *graph = stream->capture;
    stream->capture = NULL;
    return *graph != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

HCS_EXPORT CUresult cuStreamIsCapturing(CUstream stream, int *status)
{
    enum { LAST_DEFAULT_STREAM = 2 };
    *status = (uintptr_t)stream > LAST_DEFAULT_STREAM && stream->capture != NULL;
    return CUDA_SUCCESS;
}
