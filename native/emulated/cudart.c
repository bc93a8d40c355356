/* Emulated CUDA runtime (libcudart.so): a thin layer that, like NVIDIA's, opens the driver by name and asks it for every
 * function by cuGetProcAddress, and nothing else. Not NVIDIA's library; the device names say "emulated". */
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <string.h>

#include "cuda.h"

typedef CUresult (*lookup_function)(const char *, void **, int, uint64_t, int *);

static lookup_function lookup;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static CUresult started = CUDA_ERROR_NOT_INITIALIZED;
static _Thread_local int device;
static _Thread_local CUresult last_error;

static void *find(const char *name)
{
    void *found = NULL;
    int status;
    return lookup != NULL && lookup(name, &found, 12000, 0, &status) == CUDA_SUCCESS ? found : NULL;
}

/* CALL(prototype, name, arguments...): a driver function through the lookup. */
#define CALL(parameters, name, ...)                                                                                    \
    __extension__({                                                                                                    \
        CUresult(*function) parameters = (CUresult(*) parameters)find(name);                                           \
        function != NULL ? function(__VA_ARGS__) : CUDA_ERROR_NOT_FOUND;                                               \
    })

static void start(void)
{
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    void *first = driver != NULL ? dlsym(driver, "cuGetProcAddress") : NULL;
    void *second = NULL;
    if (first == NULL ||
        ((CUresult(*)(const char *, void **, int, uint64_t))first)("cuGetProcAddress", &second, 12000, 0) != CUDA_SUCCESS)
        return;
    lookup = (lookup_function)second;
    started = CALL((unsigned int), "cuInit", 0);
}

static CUresult remember(CUresult result)
{
    if (result != CUDA_SUCCESS)
        last_error = result;
    return result;
}

/* Makes the device's primary context current, as every runtime call does. */
static CUresult ready(void)
{
    pthread_once(&once, start);
    CUcontext context = NULL;
    if (started != CUDA_SUCCESS)
        return remember(started);
    CUresult result = CALL((CUcontext *), "cuCtxGetCurrent", &context);
    CUdevice current = -1;
    if (result == CUDA_SUCCESS && context != NULL)
        result = CALL((CUdevice *), "cuCtxGetDevice", &current);
    if (result == CUDA_SUCCESS && current != device) {
        result = CALL((CUcontext *, CUdevice), "cuDevicePrimaryCtxRetain", &context, device);
        if (result == CUDA_SUCCESS)
            result = CALL((CUcontext), "cuCtxSetCurrent", context);
    }
    return remember(result);
}

#define RUN(parameters, name, ...)                                                                                     \
    do {                                                                                                               \
        CUresult result = ready();                                                                                     \
        return result == CUDA_SUCCESS ? remember(CALL(parameters, name, __VA_ARGS__)) : result;                        \
    } while (0)

HCS_EXPORT CUresult cudaGetDeviceCount(int *count)
{
    pthread_once(&once, start);
    return started == CUDA_SUCCESS ? remember(CALL((int *), "cuDeviceGetCount", count)) : remember(started);
}

HCS_EXPORT CUresult cudaSetDevice(int wanted)
{
    device = wanted;
    return ready();
}

HCS_EXPORT CUresult cudaGetDevice(int *current)
{
    *current = device;
    return CUDA_SUCCESS;
}

HCS_EXPORT CUresult cudaMalloc(void **pointer, size_t bytes)
{
    RUN((CUdeviceptr *, size_t), "cuMemAlloc", (CUdeviceptr *)(void *)pointer, bytes);
}

HCS_EXPORT CUresult cudaMallocManaged(void **pointer, size_t bytes, unsigned int flags)
{
    RUN((CUdeviceptr *, size_t, unsigned int), "cuMemAllocManaged", (CUdeviceptr *)(void *)pointer, bytes, flags);
}

HCS_EXPORT CUresult cudaMallocPitch(void **pointer, size_t *pitch, size_t width, size_t height)
{
    RUN((CUdeviceptr *, size_t *, size_t, size_t, unsigned int), "cuMemAllocPitch", (CUdeviceptr *)(void *)pointer,
        pitch, width, height, 16);
}

HCS_EXPORT CUresult cudaMallocAsync(void **pointer, size_t bytes, CUstream stream)
{
    RUN((CUdeviceptr *, size_t, CUstream), "cuMemAllocAsync", (CUdeviceptr *)(void *)pointer, bytes, stream);
}

HCS_EXPORT CUresult cudaFreeAsync(void *pointer, CUstream stream)
{
    RUN((CUdeviceptr, CUstream), "cuMemFreeAsync", (CUdeviceptr)(uintptr_t)pointer, stream);
}

HCS_EXPORT CUresult cudaFree(void *pointer)
{
    RUN((CUdeviceptr), "cuMemFree", (CUdeviceptr)(uintptr_t)pointer);
}

HCS_EXPORT CUresult cudaMemGetInfo(size_t *free_bytes, size_t *total_bytes)
{
    RUN((size_t *, size_t *), "cuMemGetInfo", free_bytes, total_bytes);
}

HCS_EXPORT CUresult cudaDeviceSynchronize(void)
{
    CUresult result = ready();
    CUresult (*function)(void) = result == CUDA_SUCCESS ? (CUresult(*)(void))find("cuCtxSynchronize") : NULL;
    return function != NULL ? remember(function()) : result;
}

HCS_EXPORT CUresult cudaDeviceReset(void)
{
    RUN((CUdevice), "cuDevicePrimaryCtxReset", device);
}

HCS_EXPORT CUresult cudaMemcpy(void *destination, const void *source, size_t bytes, int kind)
{
    enum { HOST_TO_DEVICE = 1, DEVICE_TO_HOST = 2 };
    if (kind == HOST_TO_DEVICE)
        RUN((CUdeviceptr, const void *, size_t), "cuMemcpyHtoD", (CUdeviceptr)(uintptr_t)destination, source, bytes);
    if (kind == DEVICE_TO_HOST)
        RUN((void *, CUdeviceptr, size_t), "cuMemcpyDtoH", destination, (CUdeviceptr)(uintptr_t)source, bytes);
    RUN((CUdeviceptr, CUdeviceptr, size_t), "cuMemcpyDtoD", (CUdeviceptr)(uintptr_t)destination,
        (CUdeviceptr)(uintptr_t)source, bytes);
}

HCS_EXPORT CUresult cudaGetLastError(void)
{
    CUresult result = last_error;
    last_error = CUDA_SUCCESS;
    return result;
}

HCS_EXPORT const char *cudaGetErrorString(CUresult code)
{
    const char *text = NULL;
    CALL((CUresult, const char **), "cuGetErrorString", code, &text);
    return text != NULL ? text : "unknown error of the emulated runtime";
}

HCS_EXPORT CUresult cudaRuntimeGetVersion(int *version)
{
    *version = HCS_EMULATED_CUDA_VERSION;
    return CUDA_SUCCESS;
}
