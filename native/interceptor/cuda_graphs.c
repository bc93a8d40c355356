/* Memory that CUDA graphs own. It appears when a graph is made executable or runs, no call tells how much beforehand, and
 * the driver keeps it per device: so the ledger follows cuDeviceGetGraphMemAttribute. Programs whose graphs own no memory
 * (no allocation node was ever added or captured) pay one load per graph launch. */
#include <sched.h>
#include <stdatomic.h>

#include "cuda.h"

typedef CUresult (*graph_attribute_function)(CUdevice, int, void *);
typedef CUresult (*launch_function)(CUgraphExec, CUstream);

void cuda_mark_graph_memory(CUdevice device)
{
    struct hcs_driver_state *state = cuda_state();
    if (state != NULL && device >= 0 && device < HCS_MAX_ORDINALS)
        atomic_fetch_or(&state->graph_ordinals, UINT64_C(1) << device);
}

static uint64_t marked_ordinals(void)
{
    struct hcs_driver_state *state = cuda_state();
    return state != NULL ? atomic_load_explicit(&state->graph_ordinals, memory_order_relaxed) : 0;
}

void cuda_refresh_graphs(void)
{
    struct hcs_driver_state *state = cuda_state();
    ASK(graph_attribute_function, get, DeviceGetGraphMemAttribute);
    uint64_t ordinals = marked_ordinals();
    if (ordinals == 0 || get == NULL)
        return;
    uint32_t open = 0;
    while (!atomic_compare_exchange_weak(&state->measuring, &open, 1)) {
        open = 0;
        sched_yield();
    }
    for (CUdevice device = 0; device < HCS_MAX_ORDINALS; device++) {
        uint64_t reserved;
        if (!(ordinals >> device & 1) || get(device, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT, &reserved) != CUDA_SUCCESS)
            continue;
        uint64_t charged = state->graph_charged[device];
        state->graph_charged[device] = reserved;
        if (reserved > charged)
            hcs_charge_measured(cuda_card_of(device), reserved - charged);
        else
            hcs_uncharge(cuda_card_of(device), charged - reserved);
    }
    atomic_store(&state->measuring, 0);
}

/* True where something that may take more memory must not begin: more is held than the quota allows. */
static bool refused(void)
{
    uint64_t ordinals = marked_ordinals();
    for (CUdevice device = 0; device < HCS_MAX_ORDINALS && ordinals >> device != 0; device++)
        if ((ordinals >> device & 1) && hcs_refuses_measured(cuda_card_of(device)))
            return true;
    return false;
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
    if (marked_ordinals() == 0 || !hcs_watching())                                                                     \
        return real(__VA_ARGS__);                                                                                      \
    CUresult result = CUDA_ERROR_OUT_OF_MEMORY;                                                                        \
    if (!refused()) {                                                                                                  \
        result = real(__VA_ARGS__);                                                                                    \
        if (result == CUDA_SUCCESS)                                                                                    \
            hcs_book(KIND(GRAPH), (uint64_t)(uintptr_t)*executable, 0, &(struct hcs_place){0});                        \
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

/* A graph that ran before has its memory; one that never did may take more. */
static CUresult run(launch_function real, CUgraphExec executable, CUstream stream)
{
    if (marked_ordinals() == 0 || !hcs_watching())
        return real(executable, stream);
    struct hcs_local *local = hcs_local();
    struct hcs_entry entry = {.refs = 0};
    uint64_t key = (uint64_t)(uintptr_t)executable;
    bool known = hcs_addresses_get(&local->addresses, KIND(GRAPH), key, &entry);
    CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
    if ((known && entry.refs != 0) || !refused()) {
        result = real(executable, stream);
        if (result == CUDA_SUCCESS && known && entry.refs == 0)
            hcs_addresses_count(&local->addresses, KIND(GRAPH), key, 1, 0, false, &entry);
        cuda_refresh_graphs();
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
    if (marked_ordinals() == 0 || !hcs_watching())
        return real(executable);
    struct hcs_entry entry;
    bool known = hcs_unbook(KIND(GRAPH), (uint64_t)(uintptr_t)executable, &entry);
    CUresult result = real(executable);
    hcs_settle_free(result == CUDA_SUCCESS, known, &entry);
    cuda_refresh_graphs();
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
