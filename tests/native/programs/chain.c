/* A middle library of a chain: it wraps a function and asks for the next one, as tracers do. */
#include <dlfcn.h>
#include <stddef.h>

int plain_value(void)
{
    int (*next)(void) = (int (*)(void))dlsym(RTLD_NEXT, "plain_value");
    return next == plain_value ? -1 : 10 + next();
}

int traced_allocations;

int cuMemAlloc_v2(unsigned long long *pointer, size_t bytes)
{
    int (*next)(unsigned long long *, size_t) =
        (int (*)(unsigned long long *, size_t))dlsym(RTLD_NEXT, "cuMemAlloc_v2");
    if (next == cuMemAlloc_v2 || next == NULL)
        return -1;
    traced_allocations++;
    return next(pointer, bytes);
}
