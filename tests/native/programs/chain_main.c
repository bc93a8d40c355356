/* Linked as: this program, the end of the chain, the driver; the middle library is preloaded. Prints the value through
 * the chain, and the codes of an allocation within and one beyond what is left. */
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

extern int plain_value(void);
extern int cuInit(unsigned), cuDevicePrimaryCtxRetain(void **, int), cuCtxSetCurrent(void *);
extern int cuMemAlloc_v2(unsigned long long *, size_t);
extern int traced_allocations __attribute__((weak));

int main(int count, char **arguments)
{
    (void)count;
    void *context;
    unsigned long long pointer;
    size_t bytes = strtoull(arguments[1], NULL, 10);
    int value = plain_value();
    cuInit(0);
    cuDevicePrimaryCtxRetain(&context, 0);
    cuCtxSetCurrent(context);
    int within = cuMemAlloc_v2(&pointer, bytes);
    int beyond = cuMemAlloc_v2(&pointer, 1);
    printf("%d %d %d\n", value, within, beyond);
}
