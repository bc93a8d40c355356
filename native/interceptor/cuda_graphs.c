/* Memory that CUDA graphs own (graphs.h), by cuDeviceGetGraphMemAttribute. */
#include "cuda.h"
#include "graphs.h"

typedef CUresult (*launch_function)(CUgraphExec, CUstream);

static bool ask_graph_memory(int ordinal, uint64_t *bytes)
{
    typedef CUresult (*function)(CUdevice, int, void *);
    ASK(function, get, DeviceGetGraphMemAttribute);
    return get != NULL && get(ordinal, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT, bytes) == CUDA_SUCCESS;
}

static const struct hcs_graph_driver graph_driver = {HCS_DRIVER_RUNTIME, ask_graph_memory, cuda_card_of};

void cuda_mark_graph_memory(CUdevice device)
{
    hcs_graphs_mark(&graph_driver, device);
}

void cuda_refresh_graphs(void)
{
    hcs_graphs_refresh(&graph_driver);
}

/* ---- nodes that allocate ------------------------------------------------------------------------------------------ */

static void mark_location(const CUDA_MEM_ALLOC_NODE_PARAMS *parameters)
{
    if (parameters != NULL && parameters->poolProps.location.type == CU_MEM_LOCATION_TYPE_DEVICE)
        cuda_mark_graph_memory(parameters->poolProps.location.id);
}

HCS_EXPORT CUresult CU(GraphAddMemAllocNode)(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
                                             size_t count, CUDA_MEM_ALLOC_NODE_PARAMS *parameters)
{
    REAL(GraphAddMemAllocNode);
    mark_location(parameters);
    return real(node, graph, dependencies, count, parameters);
}

static void mark_node(const CUgraphNodeParams *parameters)
{
    if (parameters != NULL && parameters->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC)
        mark_location(&parameters->alloc);
}

HCS_EXPORT CUresult CU(GraphAddNode)(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies, size_t count,
                                     CUgraphNodeParams *parameters)
{
    REAL(GraphAddNode);
    mark_node(parameters);
    return real(node, graph, dependencies, count, parameters);
}

HCS_EXPORT CUresult CU(GraphAddNode_v2)(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
                                        const void *edges, size_t count, CUgraphNodeParams *parameters)
{
    REAL(GraphAddNode_v2);
    mark_node(parameters);
    return real(node, graph, dependencies, edges, count, parameters);
}

/* ---- executable graphs -------------------------------------------------------------------------------------------- */

/* INSTANTIATE(arguments...): the body of a hook that makes a graph executable. */
#define INSTANTIATE(...)                                                                                               \
    if (!hcs_graphs_own_memory(&graph_driver) || !hcs_watching())                                                      \
        return real(__VA_ARGS__);                                                                                      \
    CUresult result = CUDA_ERROR_OUT_OF_MEMORY;                                                                        \
    if (!hcs_graphs_refused(&graph_driver)) {                                                                          \
        result = real(__VA_ARGS__);                                                                                    \
        if (result == CUDA_SUCCESS)                                                                                    \
            hcs_graph_made(&graph_driver, cuda_number(*executable));                                                   \
        cuda_refresh_graphs();                                                                                         \
    }                                                                                                                  \
    hcs_leave();                                                                                                       \
    return result

HCS_EXPORT CUresult CU(GraphInstantiate)(CUgraphExec *executable, CUgraph graph, CUgraphNode *bad, char *log,
                                         size_t bytes)
{
    REAL(GraphInstantiate);
    INSTANTIATE(executable, graph, bad, log, bytes);
}

HCS_EXPORT CUresult CU(GraphInstantiate_v2)(CUgraphExec *executable, CUgraph graph, CUgraphNode *bad, char *log,
                                            size_t bytes)
{
    REAL(GraphInstantiate_v2);
    INSTANTIATE(executable, graph, bad, log, bytes);
}

HCS_EXPORT CUresult CU(GraphInstantiateWithFlags)(CUgraphExec *executable, CUgraph graph, unsigned long long flags)
{
    REAL(GraphInstantiateWithFlags);
    INSTANTIATE(executable, graph, flags);
}

HCS_EXPORT CUresult CU(GraphInstantiateWithParams)(CUgraphExec *executable, CUgraph graph, void *parameters)
{
    REAL(GraphInstantiateWithParams);
    INSTANTIATE(executable, graph, parameters);
}

HCS_EXPORT CUresult CU(GraphInstantiateWithParams_ptsz)(CUgraphExec *executable, CUgraph graph, void *parameters)
{
    REAL(GraphInstantiateWithParams_ptsz);
    INSTANTIATE(executable, graph, parameters);
}

static CUresult run(launch_function real, CUgraphExec executable, CUstream stream)
{
    if (!hcs_graphs_own_memory(&graph_driver) || !hcs_watching())
        return real(executable, stream);
    struct hcs_graph_run run = hcs_graph_begin_run(&graph_driver, cuda_number(executable));
    CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
    if (run.allowed) {
        result = real(executable, stream);
        hcs_graph_end_run(&graph_driver, cuda_number(executable), &run, result == CUDA_SUCCESS);
    }
    hcs_leave();
    return result;
}

HCS_EXPORT CUresult CU(GraphUpload)(CUgraphExec executable, CUstream stream)
{
    REAL(GraphUpload);
    return run(real, executable, stream);
}

HCS_EXPORT CUresult CU(GraphUpload_ptsz)(CUgraphExec executable, CUstream stream)
{
    REAL(GraphUpload_ptsz);
    return run(real, executable, stream);
}

HCS_EXPORT CUresult CU(GraphLaunch)(CUgraphExec executable, CUstream stream)
{
    REAL(GraphLaunch);
    return run(real, executable, stream);
}

HCS_EXPORT CUresult CU(GraphLaunch_ptsz)(CUgraphExec executable, CUstream stream)
{
    REAL(GraphLaunch_ptsz);
    return run(real, executable, stream);
}

HCS_EXPORT CUresult CU(GraphExecDestroy)(CUgraphExec executable)
{
    REAL(GraphExecDestroy);
    if (!hcs_graphs_own_memory(&graph_driver) || !hcs_watching())
        return real(executable);
    struct hcs_entry entry;
    bool known = hcs_graph_begin_destroy(&graph_driver, cuda_number(executable), &entry);
    CUresult result = real(executable);
    hcs_graph_end_destroy(&graph_driver, result == CUDA_SUCCESS, known, &entry);
    hcs_leave();
    return result;
}

HCS_EXPORT CUresult CU(DeviceGraphMemTrim)(CUdevice device)
{
    REAL(DeviceGraphMemTrim);
    if (!hcs_watching())
        return real(device);
    CUresult result = real(device);
    cuda_refresh_graphs();
    hcs_leave();
    return result;
}
