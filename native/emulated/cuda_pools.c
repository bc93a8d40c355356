/* Emulated CUDA driver: stream-ordered memory. A pool takes chunks of whole 2 MiB pages of the card, gives pieces of 512
 * bytes out of them, keeps what is freed, and gives empty chunks back when the program waits for work, as far as its
 * threshold allows, or trims it. What was freed since the last wait cannot be given back yet, only given out again. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "cuda.h"
#include "memory.h"

struct piece {
    uint64_t offset, bytes;
    bool used;
    struct piece *next;
};

struct chunk {
    uint64_t address, bytes;
    bool pending; /* something in it was freed since the last wait */
    struct piece *pieces;
    struct chunk *next;
};

struct CUmemPoolHandle_st {
    CUdevice device;
    bool host, destroyed;
    uint64_t threshold, reserved, used;
    struct chunk *chunks;
    struct CUmemPoolHandle_st *next;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static CUmemoryPool pools;
static CUmemoryPool defaults[HCS_MAX_CARDS];
static CUmemoryPool chosen[HCS_MAX_CARDS];

static CUmemoryPool new_pool(CUdevice device, bool host)
{
    CUmemoryPool pool = calloc(1, sizeof *pool);
    if (pool != NULL) {
        pool->device = device;
        pool->host = host;
        pool->next = pools;
        pools = pool;
    }
    return pool;
}

static CUmemoryPool default_pool(CUdevice device)
{
    if (defaults[device] == NULL)
        defaults[device] = new_pool(device, false);
    return defaults[device];
}

static bool is_empty(const struct chunk *chunk)
{
    return chunk->pieces != NULL && chunk->pieces->next == NULL && !chunk->pieces->used;
}

static void drop_chunk(CUmemoryPool pool, struct chunk *chunk)
{
    struct hcs_allocation freed;
    hcs_memory_free(chunk->address, &freed);
    if (!pool->host)
        hcs_cuda_give_back(pool->device, chunk->bytes);
    pool->reserved -= chunk->bytes;
    free(chunk->pieces);
    free(chunk);
}

/* Gives empty chunks back until no more than `keep` is reserved. */
static void shrink(CUmemoryPool pool, uint64_t keep)
{
    struct chunk **at = &pool->chunks;
    while (*at != NULL && pool->reserved > keep) {
        struct chunk *chunk = *at;
        if (is_empty(chunk) && !chunk->pending) {
            *at = chunk->next;
            drop_chunk(pool, chunk);
        } else {
            at = &chunk->next;
        }
    }
}

static struct chunk *grow(CUmemoryPool pool, uint64_t bytes)
{
    uint64_t wanted = hcs_rounded(bytes, HCS_CUDA_PAGE);
    uint32_t index = 0;
    struct chunk *chunk = calloc(1, sizeof *chunk);
    struct piece *piece = calloc(1, sizeof *piece);
    hcs_cuda_card(pool->device, &index);
    bool taken = chunk != NULL && piece != NULL && (pool->host || hcs_cuda_take(pool->device, wanted));
    if (!taken || !hcs_memory_allocate(wanted, wanted, index, NULL, &chunk->address)) {
        if (taken && !pool->host)
            hcs_cuda_give_back(pool->device, wanted);
        free(chunk);
        free(piece);
        return NULL;
    }
    piece->bytes = chunk->bytes = wanted;
    chunk->pieces = piece;
    chunk->next = pool->chunks;
    pool->chunks = chunk;
    pool->reserved += wanted;
    return chunk;
}

static bool carve(CUmemoryPool pool, struct chunk *chunk, uint64_t bytes, CUdeviceptr *pointer)
{
    for (struct piece *piece = chunk->pieces; piece != NULL; piece = piece->next) {
        if (piece->used || piece->bytes < bytes)
            continue;
        if (piece->bytes > bytes) {
            struct piece *rest = calloc(1, sizeof *rest);
            if (rest == NULL)
                return false;
            *rest = (struct piece){
                .offset = piece->offset + bytes, .bytes = piece->bytes - bytes, .next = piece->next};
            piece->bytes = bytes;
            piece->next = rest;
        }
        piece->used = true;
        pool->used += bytes;
        *pointer = chunk->address + piece->offset;
        return true;
    }
    return false;
}

static CUresult allocate(CUmemoryPool pool, size_t size, CUdeviceptr *pointer)
{
    uint64_t bytes = hcs_rounded(size, HCS_CUDA_SMALL_UNIT);
    if (size == 0 || bytes == UINT64_MAX)
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&lock);
    bool done = false;
    for (struct chunk *chunk = pool->chunks; chunk != NULL && !done; chunk = chunk->next)
        done = carve(pool, chunk, bytes, pointer);
    struct chunk *fresh = done ? NULL : grow(pool, bytes);
    if (fresh != NULL)
        done = carve(pool, fresh, bytes, pointer);
    pthread_mutex_unlock(&lock);
    return done ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static void merge(struct chunk *chunk)
{
    for (struct piece *piece = chunk->pieces; piece != NULL; piece = piece->next)
        while (!piece->used && piece->next != NULL && !piece->next->used) {
            struct piece *next = piece->next;
            piece->bytes += next->bytes;
            piece->next = next->next;
            free(next);
        }
}

/* A destroyed pool goes when its last pointer is freed. */
static void bury(CUmemoryPool pool)
{
    if (!pool->destroyed || pool->used != 0)
        return;
    for (struct chunk *chunk = pool->chunks; chunk != NULL; chunk = chunk->next)
        chunk->pending = false;
    shrink(pool, 0);
    CUmemoryPool *at = &pools;
    while (*at != pool)
        at = &(*at)->next;
    *at = pool->next;
    free(pool);
}

bool hcs_cuda_pool_free(CUdeviceptr pointer, bool now)
{
    pthread_mutex_lock(&lock);
    bool found = false;
    for (CUmemoryPool pool = pools; pool != NULL && !found; pool = pool->next)
        for (struct chunk *chunk = pool->chunks; chunk != NULL && !found; chunk = chunk->next) {
            if (pointer < chunk->address || pointer - chunk->address >= chunk->bytes)
                continue;
            for (struct piece *piece = chunk->pieces; piece != NULL && !found; piece = piece->next) {
                found = piece->used && chunk->address + piece->offset == pointer;
                if (!found)
                    continue;
                piece->used = false;
                pool->used -= piece->bytes;
                chunk->pending = !now;
            }
            if (found) {
                merge(chunk);
                if (now)
                    shrink(pool, pool->threshold);
                bury(pool);
                break;
            }
            break;
        }
    pthread_mutex_unlock(&lock);
    return found;
}

void hcs_cuda_pools_synchronised(void)
{
    pthread_mutex_lock(&lock);
    for (CUmemoryPool pool = pools; pool != NULL; pool = pool->next) {
        for (struct chunk *chunk = pool->chunks; chunk != NULL; chunk = chunk->next)
            chunk->pending = false;
        shrink(pool, pool->threshold);
    }
    pthread_mutex_unlock(&lock);
}

/* ---- the driver's functions --------------------------------------------------------------------------------------- */

static bool is_known(CUmemoryPool wanted)
{
    bool found = false;
    pthread_mutex_lock(&lock);
    for (CUmemoryPool pool = pools; pool != NULL && !found; pool = pool->next)
        found = pool == wanted && !pool->destroyed;
    pthread_mutex_unlock(&lock);
    return found;
}

HCS_EXPORT CUresult cuMemAllocFromPoolAsync(CUdeviceptr *pointer, size_t bytes, CUmemoryPool pool, CUstream stream)
{
    CUcontext context;
    CUresult result = hcs_cuda_of_stream(stream, &context);
    HCS_FAULT();
    if (result != CUDA_SUCCESS)
        return result;
    if (!is_known(pool))
        return CUDA_ERROR_INVALID_VALUE;
    if (hcs_cuda_capture_of(stream) != NULL)
        return hcs_cuda_capture_allocation(hcs_cuda_capture_of(stream), context->device, bytes, pointer);
    return allocate(pool, bytes, pointer);
}

HCS_EXPORT CUresult cuMemAllocAsync(CUdeviceptr *pointer, size_t bytes, CUstream stream)
{
    CUcontext context;
    CUresult result = hcs_cuda_of_stream(stream, &context);
    HCS_FAULT();
    if (result != CUDA_SUCCESS)
        return result;
    if (hcs_cuda_capture_of(stream) != NULL)
        return hcs_cuda_capture_allocation(hcs_cuda_capture_of(stream), context->device, bytes, pointer);
    pthread_mutex_lock(&lock);
    CUmemoryPool pool = chosen[context->device] != NULL ? chosen[context->device] : default_pool(context->device);
    pthread_mutex_unlock(&lock);
    return pool != NULL ? allocate(pool, bytes, pointer) : CUDA_ERROR_OUT_OF_MEMORY;
}

HCS_EXPORT CUresult cuMemFree_v2(CUdeviceptr pointer);

HCS_EXPORT CUresult cuMemFreeAsync(CUdeviceptr pointer, CUstream stream)
{
    CUcontext context;
    CUresult result = hcs_cuda_of_stream(stream, &context);
    HCS_FAULT();
    if (result != CUDA_SUCCESS)
        return result;
    if (hcs_cuda_capture_of(stream) != NULL)
        return hcs_cuda_capture_free(hcs_cuda_capture_of(stream), pointer);
    return hcs_cuda_pool_free(pointer, false) ? CUDA_SUCCESS : cuMemFree_v2(pointer);
}

/* For these functions no stream means the thread's own. */
static CUstream threads_own(CUstream stream)
{
    return stream == NULL ? CU_STREAM_PER_THREAD : stream;
}

HCS_EXPORT CUresult cuMemAllocAsync_ptsz(CUdeviceptr *pointer, size_t bytes, CUstream stream)
{
    return cuMemAllocAsync(pointer, bytes, threads_own(stream));
}

HCS_EXPORT CUresult cuMemAllocFromPoolAsync_ptsz(CUdeviceptr *pointer, size_t bytes, CUmemoryPool pool, CUstream stream)
{
    return cuMemAllocFromPoolAsync(pointer, bytes, pool, threads_own(stream));
}

HCS_EXPORT CUresult cuMemFreeAsync_ptsz(CUdeviceptr pointer, CUstream stream)
{
    return cuMemFreeAsync(pointer, threads_own(stream));
}

HCS_EXPORT CUresult cuMemPoolCreate(CUmemoryPool *pool, const CUmemPoolProps *properties)
{
    CUresult result = hcs_cuda_ready();
    if (result != CUDA_SUCCESS)
        return result;
    bool host = properties->location.type != CU_MEM_LOCATION_TYPE_DEVICE;
    if (!host && (result = hcs_cuda_health(properties->location.id)) != CUDA_SUCCESS)
        return result;
    pthread_mutex_lock(&lock);
    *pool = new_pool(host ? 0 : properties->location.id, host);
    pthread_mutex_unlock(&lock);
    return *pool != NULL ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

HCS_EXPORT CUresult cuMemPoolDestroy(CUmemoryPool pool)
{
    if (!is_known(pool))
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&lock);
    for (CUdevice device = 0; device < HCS_MAX_CARDS; device++)
        if (chosen[device] == pool)
            chosen[device] = NULL;
    bool ours = true;
    for (CUdevice device = 0; device < HCS_MAX_CARDS; device++)
        ours &= defaults[device] != pool;
    if (ours) {
        pool->destroyed = true;
        for (struct chunk *chunk = pool->chunks; chunk != NULL; chunk = chunk->next)
            chunk->pending = false;
        shrink(pool, 0);
        bury(pool);
    }
    pthread_mutex_unlock(&lock);
    return ours ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

HCS_EXPORT CUresult cuMemPoolTrimTo(CUmemoryPool pool, size_t keep)
{
    if (!is_known(pool))
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&lock);
    shrink(pool, keep);
    pthread_mutex_unlock(&lock);
    return CUDA_SUCCESS;
}

HCS_EXPORT CUresult cuMemPoolGetAttribute(CUmemoryPool pool, int attribute, void *value)
{
    if (!is_known(pool))
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&lock);
    uint64_t answer = attribute == CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT ? pool->reserved
                      : attribute == CU_MEMPOOL_ATTR_USED_MEM_CURRENT   ? pool->used
                                                                        : pool->threshold;
    pthread_mutex_unlock(&lock);
    if (attribute != CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT && attribute != CU_MEMPOOL_ATTR_USED_MEM_CURRENT &&
        attribute != CU_MEMPOOL_ATTR_RELEASE_THRESHOLD)
        return CUDA_ERROR_INVALID_VALUE;
    memcpy(value, &answer, sizeof answer);
    return CUDA_SUCCESS;
}

HCS_EXPORT CUresult cuMemPoolSetAttribute(CUmemoryPool pool, int attribute, void *value)
{
    if (!is_known(pool) || attribute != CU_MEMPOOL_ATTR_RELEASE_THRESHOLD)
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&lock);
    memcpy(&pool->threshold, value, sizeof pool->threshold);
    pthread_mutex_unlock(&lock);
    return CUDA_SUCCESS;
}

HCS_EXPORT CUresult cuDeviceGetDefaultMemPool(CUmemoryPool *pool, CUdevice device)
{
    CUresult result = hcs_cuda_health(device);
    if (result != CUDA_SUCCESS)
        return result;
    pthread_mutex_lock(&lock);
    *pool = default_pool(device);
    pthread_mutex_unlock(&lock);
    return CUDA_SUCCESS;
}

HCS_EXPORT CUresult cuDeviceGetMemPool(CUmemoryPool *pool, CUdevice device)
{
    CUresult result = cuDeviceGetDefaultMemPool(pool, device);
    if (result == CUDA_SUCCESS && chosen[device] != NULL)
        *pool = chosen[device];
    return result;
}

HCS_EXPORT CUresult cuDeviceSetMemPool(CUdevice device, CUmemoryPool pool)
{
    CUresult result = hcs_cuda_health(device);
    if (result == CUDA_SUCCESS && (!is_known(pool) || pool->device != device))
        result = CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS)
        chosen[device] = pool;
    return result;
}
