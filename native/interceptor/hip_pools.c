/* HIP's stream-ordered allocator: any pool, charged by what it has reserved (pools.h). */
#include "hip.h"
#include "pools.h"

static hipMemPool_t as_pool(uint64_t handle)
{
    return (hipMemPool_t)(uintptr_t)handle; // NOLINT
}

static bool ask_reserved(uint64_t pool, uint64_t *bytes)
{
    typedef hipError_t (*function)(hipMemPool_t, int, void *);
    ASK(function, get, hipMemPoolGetAttribute);
    return get != NULL && get(as_pool(pool), hipMemPoolAttrReservedMemCurrent, bytes) == hipSuccess;
}

static void trim(uint64_t pool)
{
    typedef hipError_t (*function)(hipMemPool_t, size_t);
    ASK(function, real, hipMemPoolTrimTo);
    if (real != NULL)
        real(as_pool(pool), 0);
}

static const struct hcs_pool_driver pool_driver = {ask_reserved, trim, 4096};

enum { HOST_POOL = -2 }; /* in the place of a card: a pool of host memory is free of charge */

typedef hipError_t (*alloc_async_function)(void **, size_t, hipStream_t);
typedef hipError_t (*alloc_from_pool_function)(void **, size_t, hipMemPool_t, hipStream_t);

struct request {
    alloc_async_function from_current; /* one of the two */
    alloc_from_pool_function from_pool;
    hipMemPool_t pool;
    hipStream_t stream;
};

static hipError_t ask_driver(const struct request *request, void **pointer, size_t bytes)
{
    return request->from_pool != NULL ? request->from_pool(pointer, bytes, request->pool, request->stream)
                                      : request->from_current(pointer, bytes, request->stream);
}

static bool device_of_stream(hipStream_t stream, int *device)
{
    typedef hipError_t (*function)(hipStream_t, int *);
    ASK(function, get, hipStreamGetDevice);
    return (stream != NULL && get != NULL && get(stream, device) == hipSuccess) || hip_current_device(device);
}

static hipError_t allocate(const struct request *request, void **pointer, size_t bytes)
{
    typedef hipError_t (*capturing_function)(hipStream_t, int *);
    typedef hipError_t (*device_pool_function)(hipMemPool_t *, int);
    ASK(capturing_function, is_capturing, hipStreamIsCapturing);
    ASK(device_pool_function, get_pool, hipDeviceGetMemPool);
    int device, status = 0;
    hipMemPool_t handle = request->pool;
    if (!device_of_stream(request->stream, &device))
        return ask_driver(request, pointer, bytes);
    if (is_capturing != NULL && is_capturing(request->stream, &status) == hipSuccess && status != 0) {
        hip_mark_graph_memory(device); /* this becomes a node of a graph, and the graph's memory when it runs */
        return ask_driver(request, pointer, bytes);
    }
    if (request->from_pool == NULL && (get_pool == NULL || get_pool(&handle, device) != hipSuccess))
        return ask_driver(request, pointer, bytes);
    struct hcs_pool *pool = hcs_pool_of(HCS_RUNTIME_HIP, hip_number(handle), hip_card_of(device), &pool_driver);
    if (pool != NULL && pool->card == HOST_POOL)
        return ask_driver(request, pointer, bytes);
    uint64_t taken = hcs_hip_taken(bytes);
    enum hcs_pool_answer answer = pool != NULL ? hcs_pool_begin(pool, taken) : HCS_POOL_REFUSE;
    if (answer == HCS_POOL_REFUSE)
        return hipErrorOutOfMemory;
    hipError_t result = ask_driver(request, pointer, bytes);
    bool fits = hcs_pool_end(pool, answer, taken);
    if (fits && (result != hipSuccess || hcs_pool_book(pool, hip_number(*pointer), taken)))
        return result;
    if (result == hipSuccess)
        hip_release(HCS_SYM_hipFree, *pointer);
    if (!fits)
        hcs_pool_give_up(pool);
    return hipErrorOutOfMemory;
}

static hipError_t watched(const struct request *request, void **pointer, size_t bytes)
{
    if (!hcs_watching())
        return ask_driver(request, pointer, bytes);
    hipError_t result = allocate(request, pointer, bytes);
    hcs_leave();
    return result;
}

HCS_EXPORT hipError_t hipMallocAsync(void **pointer, size_t bytes, hipStream_t stream)
{
    REAL(hipMallocAsync);
    return watched(&(struct request){.from_current = real, .stream = stream}, pointer, bytes);
}

HCS_EXPORT hipError_t hipMallocFromPoolAsync(void **pointer, size_t bytes, hipMemPool_t pool, hipStream_t stream)
{
    REAL(hipMallocFromPoolAsync);
    return watched(&(struct request){.from_pool = real, .pool = pool, .stream = stream}, pointer, bytes);
}

HCS_EXPORT hipError_t hipFreeAsync(void *pointer, hipStream_t stream)
{
    REAL(hipFreeAsync);
    if (!hcs_watching())
        return real(pointer, stream);
    struct hcs_entry entry;
    bool pooled = hcs_pool_unbook(HCS_RUNTIME_HIP, hip_number(pointer), &entry);
    bool known = !pooled && hcs_unbook(HIP_KIND(POINTER), hip_number(pointer), &entry);
    hipError_t result = real(pointer, stream);
    if (pooled)
        hcs_pool_freed(result == hipSuccess, &entry);
    hcs_settle_free(result == hipSuccess, known, &entry);
    hcs_leave();
    return result;
}

HCS_EXPORT hipError_t hipMemPoolCreate(hipMemPool_t *pool, const hipMemPoolProps *properties)
{
    REAL(hipMemPoolCreate);
    if (properties == NULL || !hcs_watching())
        return real(pool, properties);
    hipError_t result = real(pool, properties);
    bool on_device = properties->location.type == hipMemLocationTypeDevice;
    if (result == hipSuccess)
        hcs_pool_of(HCS_RUNTIME_HIP, hip_number(*pool), on_device ? hip_card_of(properties->location.id) : HOST_POOL,
                    &pool_driver);
    hcs_leave();
    return result;
}

HCS_EXPORT hipError_t hipMemPoolDestroy(hipMemPool_t handle)
{
    REAL(hipMemPoolDestroy);
    if (!hcs_watching())
        return real(handle);
    struct hcs_pool *pool = hcs_pool_known(HCS_RUNTIME_HIP, hip_number(handle));
    if (pool != NULL)
        hcs_pool_begin_destroy(pool);
    hipError_t result = real(handle);
    if (pool != NULL)
        hcs_pool_end_destroy(pool, result == hipSuccess);
    hcs_leave();
    return result;
}

HCS_EXPORT hipError_t hipMemPoolTrimTo(hipMemPool_t handle, size_t keep)
{
    REAL(hipMemPoolTrimTo);
    if (!hcs_watching())
        return real(handle, keep);
    hipError_t result = real(handle, keep);
    hcs_pools_refresh();
    hcs_leave();
    return result;
}

static hipError_t synchronised(hipError_t result)
{
    if (hcs_watching()) {
        hcs_pools_refresh_if_dirty();
        hcs_leave();
    }
    return result;
}

HCS_EXPORT hipError_t hipDeviceSynchronize(void)
{
    REAL(hipDeviceSynchronize);
    return synchronised(real());
}

HCS_EXPORT hipError_t hipStreamSynchronize(hipStream_t stream)
{
    REAL(hipStreamSynchronize);
    return synchronised(real(stream));
}


HCS_EXPORT hipError_t hipStreamSynchronize_spt(hipStream_t stream)
{
    REAL(hipStreamSynchronize_spt);
    return synchronised(real(stream));
}

HCS_EXPORT hipError_t hipEventSynchronize(hipEvent_t event)
{
    REAL(hipEventSynchronize);
    return synchronised(real(event));
}
