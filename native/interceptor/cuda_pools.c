/* CUDA's stream-ordered allocator: any pool, charged by what it has reserved (pools.h). */
#include <stdatomic.h>

#include "cuda.h"
#include "pools.h"

typedef CUresult (*pool_attribute_function)(CUmemoryPool, int, void *);
typedef CUresult (*device_pool_function)(CUmemoryPool *, CUdevice);
typedef CUresult (*trim_function)(CUmemoryPool, size_t);
typedef CUresult (*capturing_function)(CUstream, int *);
typedef CUresult (*alloc_async_function)(CUdeviceptr *, size_t, CUstream);
typedef CUresult (*alloc_from_pool_function)(CUdeviceptr *, size_t, CUmemoryPool, CUstream);
typedef CUresult (*free_async_function)(CUdeviceptr, CUstream);

static CUmemoryPool as_pool(uint64_t handle)
{
    return (CUmemoryPool)(uintptr_t)handle; // NOLINT
}

static bool ask_reserved(uint64_t pool, uint64_t *bytes)
{
    ASK(pool_attribute_function, get, MemPoolGetAttribute);
    return get != NULL && get(as_pool(pool), CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, bytes) == CUDA_SUCCESS;
}

static void trim(uint64_t pool)
{
    trim_function real = (trim_function)hcs_real(CU_SYMBOL(MemPoolTrimTo));
    if (real != NULL)
        real(as_pool(pool), 0);
}

static const struct hcs_pool_driver pool_driver = {ask_reserved, trim, HCS_CUDA_PAGE};

/* ---- allocation -------------------------------------------------------------------------------------------------- */

static bool is_capturing(CUstream stream)
{
    ASK(capturing_function, ask, StreamIsCapturing);
    int status = 0;
    return ask != NULL && ask(stream, &status) == CUDA_SUCCESS && status != 0;
}

struct request {
    alloc_async_function from_current; /* one of the two */
    alloc_from_pool_function from_pool;
    CUmemoryPool pool;
    CUstream stream;
    bool threads_own; /* where there is no stream: the thread's own is meant */
};

static CUresult ask_driver(const struct request *request, CUdeviceptr *pointer, size_t bytes)
{
    return request->from_pool != NULL ? request->from_pool(pointer, bytes, request->pool, request->stream)
                                      : request->from_current(pointer, bytes, request->stream);
}

/* The pool that will serve the request; NULL where it is in host memory or cannot be told. */
static struct hcs_pool *pool_of(const struct request *request, const struct hcs_place *place, CUdevice device)
{
    CUmemoryPool pool = request->pool;
    ASK(device_pool_function, get_pool, DeviceGetMemPool);
    if (request->from_pool == NULL && (get_pool == NULL || get_pool(&pool, device) != CUDA_SUCCESS))
        return NULL;
    struct hcs_pool *found = hcs_pool_of(HCS_DRIVER_RUNTIME, cuda_number(pool), place->card, &pool_driver);
    return found;
}

enum { HOST_POOL = -2 }; /* in the place of a card: a pool of host memory is free of charge */

HCS_EXPORT CUresult CU(MemFreeAsync)(CUdeviceptr pointer, CUstream stream);

/* For all streams of the context: any of them may hold what was freed. */
static void wait_for_streams(void)
{
    typedef CUresult (*function)(void);
    ASK(function, real, CtxSynchronize);
    if (real != NULL)
        real();
}

static CUresult allocate_from(struct hcs_pool *pool, const struct request *request, CUdeviceptr *pointer, size_t bytes,
                              uint64_t taken)
{
    enum hcs_pool_answer answer = hcs_pool_begin(pool, taken);
    if (answer == HCS_POOL_REFUSE)
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = ask_driver(request, pointer, bytes);
    bool fits = hcs_pool_end(pool, answer, taken);
    if (fits && (result != CUDA_SUCCESS || hcs_pool_book(pool, *pointer, taken)))
        return result;
    if (result == CUDA_SUCCESS) {
        CU(MemFreeAsync)(*pointer, request->stream); /* inside a hook: straight to the driver */
        wait_for_streams();
    }
    if (!fits)
        hcs_pool_give_up(pool);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult allocate(const struct request *request, CUdeviceptr *pointer, size_t bytes)
{
    struct hcs_place place;
    CUdevice device;
    if (!cuda_place_of_stream(request->stream, &place, &device))
        return ask_driver(request, pointer, bytes);
    if (is_capturing(request->threads_own && request->stream == NULL ? CU_STREAM_PER_THREAD : request->stream)) { /* this becomes a node of a graph, and the graph's memory when it runs */
        cuda_mark_graph_memory(device);
        return ask_driver(request, pointer, bytes);
    }
    struct hcs_pool *pool = pool_of(request, &place, device);
    if (pool != NULL && pool->card == HOST_POOL)
        return ask_driver(request, pointer, bytes);
    uint64_t taken = pool != NULL ? hcs_rounded(bytes, HCS_CUDA_SMALL_UNIT) : hcs_cuda_taken(bytes);
    if (pool == NULL) { /* a driver without pool questions, or more pools than places: charge the request */
        if (!hcs_charge(place.card, taken))
            return CUDA_ERROR_OUT_OF_MEMORY;
        CUresult result = ask_driver(request, pointer, bytes);
        bool ok = result == CUDA_SUCCESS;
        if (hcs_settle(ok, KIND(POINTER), ok ? *pointer : 0, taken, &place))
            return result;
        CU(MemFreeAsync)(*pointer, request->stream);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    /* What was freed in stream order comes back when the stream is waited for: do so before refusing. */
    CUresult result = allocate_from(pool, request, pointer, bytes, taken);
    if (result == CUDA_ERROR_OUT_OF_MEMORY) {
        wait_for_streams();
        hcs_pool_shrink(pool);
        result = allocate_from(pool, request, pointer, bytes, taken);
    }
    return result;
}

static CUresult watched(const struct request *request, CUdeviceptr *pointer, size_t bytes)
{
    if (!hcs_watching())
        return ask_driver(request, pointer, bytes);
    CUresult result = allocate(request, pointer, bytes);
    hcs_leave();
    return result;
}

HCS_EXPORT CUresult CU(MemAllocAsync)(CUdeviceptr *pointer, size_t bytes, CUstream stream)
{
    REAL(MemAllocAsync);
    return watched(&(struct request){.from_current = real, .stream = stream}, pointer, bytes);
}

HCS_EXPORT CUresult CU(MemAllocAsync_ptsz)(CUdeviceptr *pointer, size_t bytes, CUstream stream)
{
    REAL(MemAllocAsync_ptsz);
    return watched(&(struct request){.from_current = real, .stream = stream, .threads_own = true}, pointer, bytes);
}

HCS_EXPORT CUresult CU(MemAllocFromPoolAsync)(CUdeviceptr *pointer, size_t bytes, CUmemoryPool pool, CUstream stream)
{
    REAL(MemAllocFromPoolAsync);
    return watched(&(struct request){.from_pool = real, .pool = pool, .stream = stream}, pointer, bytes);
}

HCS_EXPORT CUresult CU(MemAllocFromPoolAsync_ptsz)(CUdeviceptr *pointer, size_t bytes, CUmemoryPool pool,
                                                   CUstream stream)
{
    REAL(MemAllocFromPoolAsync_ptsz);
    struct request request = {.from_pool = real, .pool = pool, .stream = stream, .threads_own = true};
    return watched(&request, pointer, bytes);
}

/* ---- release ----------------------------------------------------------------------------------------------------- */

static CUresult free_async(free_async_function real, CUdeviceptr pointer, CUstream stream)
{
    if (!hcs_watching())
        return real(pointer, stream);
    struct hcs_entry entry;
    bool pooled = hcs_pool_unbook(HCS_DRIVER_RUNTIME, pointer, &entry);
    bool known = !pooled && hcs_unbook(KIND(POINTER), pointer, &entry);
    CUresult result = real(pointer, stream);
    if (pooled)
        hcs_pool_freed(result == CUDA_SUCCESS, &entry);
    hcs_settle_free(result == CUDA_SUCCESS, known, &entry);
    hcs_leave();
    return result;
}

HCS_EXPORT CUresult CU(MemFreeAsync)(CUdeviceptr pointer, CUstream stream)
{
    REAL(MemFreeAsync);
    return free_async(real, pointer, stream);
}

HCS_EXPORT CUresult CU(MemFreeAsync_ptsz)(CUdeviceptr pointer, CUstream stream)
{
    REAL(MemFreeAsync_ptsz);
    return free_async(real, pointer, stream);
}

/* ---- pools ------------------------------------------------------------------------------------------------------- */

HCS_EXPORT CUresult CU(MemPoolCreate)(CUmemoryPool *pool, const CUmemPoolProps *properties)
{
    REAL(MemPoolCreate);
    if (properties == NULL || !hcs_watching())
        return real(pool, properties);
    CUresult result = real(pool, properties);
    bool on_device = properties->location.type == CU_MEM_LOCATION_TYPE_DEVICE;
    if (result == CUDA_SUCCESS)
        hcs_pool_of(HCS_DRIVER_RUNTIME, cuda_number(*pool), on_device ? cuda_card_of(properties->location.id) : HOST_POOL,
                    &pool_driver);
    hcs_leave();
    return result;
}

HCS_EXPORT CUresult CU(MemPoolDestroy)(CUmemoryPool handle)
{
    REAL(MemPoolDestroy);
    if (!hcs_watching())
        return real(handle);
    struct hcs_pool *pool = hcs_pool_known(HCS_DRIVER_RUNTIME, cuda_number(handle));
    if (pool != NULL)
        hcs_pool_begin_destroy(pool);
    CUresult result = real(handle);
    if (pool != NULL)
        hcs_pool_end_destroy(pool, result == CUDA_SUCCESS);
    hcs_leave();
    return result;
}

HCS_EXPORT CUresult CU(MemPoolTrimTo)(CUmemoryPool handle, size_t keep)
{
    REAL(MemPoolTrimTo);
    if (!hcs_watching())
        return real(handle, keep);
    CUresult result = real(handle, keep);
    hcs_pools_refresh();
    hcs_leave();
    return result;
}

/* ---- synchronisation: where pools return what was freed into them. One load where nothing was. -------------------- */

static CUresult synchronised(CUresult result)
{
    if (hcs_watching()) {
        hcs_pools_refresh_if_dirty();
        hcs_leave();
    }
    return result;
}

HCS_EXPORT CUresult CU(CtxSynchronize)(void)
{
    REAL(CtxSynchronize);
    return synchronised(real());
}

HCS_EXPORT CUresult CU(CtxSynchronize_v2)(CUcontext context)
{
    REAL(CtxSynchronize_v2);
    return synchronised(real(context));
}

HCS_EXPORT CUresult CU(StreamSynchronize)(CUstream stream)
{
    REAL(StreamSynchronize);
    return synchronised(real(stream));
}

HCS_EXPORT CUresult CU(StreamSynchronize_ptsz)(CUstream stream)
{
    REAL(StreamSynchronize_ptsz);
    return synchronised(real(stream));
}

HCS_EXPORT CUresult CU(EventSynchronize)(CUevent event)
{
    REAL(EventSynchronize);
    return synchronised(real(event));
}
