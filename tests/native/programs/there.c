/* A library that needs the driver, for a namespace of its own: whoever loads it there gets a driver of its own too. */
#include <stddef.h>

extern int cuInit(unsigned);
extern int cuCtxCreate_v2(void **, unsigned, int);
extern int cuMemAlloc_v2(unsigned long long *, size_t);

int allocate_there(unsigned long long *pointer, size_t bytes)
{
    void *context;
    int code = cuInit(0);
    code = code != 0 ? code : cuCtxCreate_v2(&context, 0, 0);
    return code != 0 ? code : cuMemAlloc_v2(pointer, bytes);
}
