/* A plug-in that a program opens with RTLD_DEEPBIND and that finds the driver by itself. */
#include <dlfcn.h>
#include <stddef.h>

int plugin_allocate(size_t bytes)
{
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    void *context;
    unsigned long long pointer;
    ((int (*)(unsigned))dlsym(driver, "cuInit"))(0);
    ((int (*)(void **, int))dlsym(driver, "cuDevicePrimaryCtxRetain"))(&context, 0);
    ((int (*)(void *))dlsym(driver, "cuCtxSetCurrent"))(context);
    return ((int (*)(unsigned long long *, size_t))dlsym(driver, "cuMemAlloc_v2"))(&pointer, bytes);
}
