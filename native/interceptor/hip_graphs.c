/* Memory that HIP's graphs own (graphs.h), by hipDeviceGetGraphMemAttribute. Functions, their parameters and the numbers
 * of attributes and node types as in AMD's public hip_runtime_api.h; a release that has no such question charges nothing,
 * for then there is no such memory. */
#include "graphs.h"
#include "hip.h"

typedef hipError_t (*launch_function)(hipGraphExec_t, hipStream_t);

static bool ask_reserved(int ordinal, uint64_t *bytes)
{
    typedef hipError_t (*function)(int, int, void *);
    ASK(function, get, hipDeviceGetGraphMemAttribute);
    return get != NULL && get(ordinal, hipGraphMemAttrReservedMemCurrent, bytes) == hipSuccess;
}

static const struct hcs_graph_driver graph_driver = {HCS_RUNTIME_HIP, ask_reserved, hip_card_of};

void hip_mark_graph_memory(int device)
{
    hcs_graphs_mark(&graph_driver, device);
}

void hip_refresh_graphs(void)
{
    hcs_graphs_refresh(&graph_driver);
}

/* ---- nodes that allocate ------------------------------------------------------------------------------------------ */

static void mark_location(const hipMemAllocNodeParams *parameters)
{
    if (parameters != NULL && parameters->poolProps.location.type == hipMemLocationTypeDevice)
        hip_mark_graph_memory(parameters->poolProps.location.id);
}

HCS_EXPORT hipError_t hipGraphAddMemAllocNode(hipGraphNode_t *node, hipGraph_t graph, const hipGraphNode_t *dependencies,
                                              size_t count, hipMemAllocNodeParams *parameters)
{
    REAL(hipGraphAddMemAllocNode);
    mark_location(parameters);
    return real(node, graph, dependencies, count, parameters);
}

HCS_EXPORT hipError_t hipGraphAddNode(hipGraphNode_t *node, hipGraph_t graph, const hipGraphNode_t *dependencies,
                                      size_t count, hipGraphNodeParams *parameters)
{
    REAL(hipGraphAddNode);
    if (parameters != NULL && parameters->type == hipGraphNodeTypeMemAlloc)
        mark_location(&parameters->alloc);
    return real(node, graph, dependencies, count, parameters);
}

/* ---- executable graphs -------------------------------------------------------------------------------------------- */

/* INSTANTIATE(arguments...): the body of a hook that makes a graph executable. */
#define INSTANTIATE(...)                                                                                               \
    if (!hcs_graphs_own_memory(&graph_driver) || !hcs_watching())                                                      \
        return real(__VA_ARGS__);                                                                                      \
    hipError_t result = hipErrorOutOfMemory;                                                                           \
    if (!hcs_graphs_refused(&graph_driver)) {                                                                          \
        result = real(__VA_ARGS__);                                                                                    \
        if (result == hipSuccess)                                                                                      \
            hcs_graph_made(&graph_driver, hip_number(*executable));                                                    \
        hip_refresh_graphs();                                                                                          \
    }                                                                                                                  \
    hcs_leave();                                                                                                       \
    return result

HCS_EXPORT hipError_t hipGraphInstantiate(hipGraphExec_t *executable, hipGraph_t graph, hipGraphNode_t *bad, char *log,
                                          size_t bytes)
{
    REAL(hipGraphInstantiate);
    INSTANTIATE(executable, graph, bad, log, bytes);
}

HCS_EXPORT hipError_t hipGraphInstantiateWithFlags(hipGraphExec_t *executable, hipGraph_t graph,
                                                   unsigned long long flags)
{
    REAL(hipGraphInstantiateWithFlags);
    INSTANTIATE(executable, graph, flags);
}

HCS_EXPORT hipError_t hipGraphInstantiateWithParams(hipGraphExec_t *executable, hipGraph_t graph, void *parameters)
{
    REAL(hipGraphInstantiateWithParams);
    INSTANTIATE(executable, graph, parameters);
}

static hipError_t run(launch_function real, hipGraphExec_t executable, hipStream_t stream)
{
    if (!hcs_graphs_own_memory(&graph_driver) || !hcs_watching())
        return real(executable, stream);
    struct hcs_graph_run run = hcs_graph_begin_run(&graph_driver, hip_number(executable));
    hipError_t result = hipErrorOutOfMemory;
    if (run.allowed) {
        result = real(executable, stream);
        hcs_graph_end_run(&graph_driver, hip_number(executable), &run, result == hipSuccess);
    }
    hcs_leave();
    return result;
}

HCS_EXPORT hipError_t hipGraphUpload(hipGraphExec_t executable, hipStream_t stream)
{
    REAL(hipGraphUpload);
    return run(real, executable, stream);
}

HCS_EXPORT hipError_t hipGraphLaunch(hipGraphExec_t executable, hipStream_t stream)
{
    REAL(hipGraphLaunch);
    return run(real, executable, stream);
}

HCS_EXPORT hipError_t hipGraphLaunch_spt(hipGraphExec_t executable, hipStream_t stream)
{
    REAL(hipGraphLaunch_spt);
    return run(real, executable, stream);
}

HCS_EXPORT hipError_t hipGraphExecDestroy(hipGraphExec_t executable)
{
    REAL(hipGraphExecDestroy);
    if (!hcs_graphs_own_memory(&graph_driver) || !hcs_watching())
        return real(executable);
    struct hcs_entry entry;
    bool known = hcs_graph_begin_destroy(&graph_driver, hip_number(executable), &entry);
    hipError_t result = real(executable);
    hcs_graph_end_destroy(&graph_driver, result == hipSuccess, known, &entry);
    hcs_leave();
    return result;
}

HCS_EXPORT hipError_t hipDeviceGraphMemTrim(int device)
{
    REAL(hipDeviceGraphMemTrim);
    if (!hcs_watching())
        return real(device);
    hipError_t result = real(device);
    hip_refresh_graphs();
    hcs_leave();
    return result;
}
