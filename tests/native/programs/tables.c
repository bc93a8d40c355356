/* Road (d): prints whether the driver's export table is the driver's own, function by function, and allocates by it. */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

int main(void)
{
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    const void *const *table = NULL;
    char id[16] = {1};
    void *context;
    unsigned long long pointer;
    Dl_info where = {0};
    ((int (*)(unsigned))dlsym(driver, "cuInit"))(0);
    ((int (*)(void **, int))dlsym(driver, "cuDevicePrimaryCtxRetain"))(&context, 0);
    ((int (*)(void *))dlsym(driver, "cuCtxSetCurrent"))(context);
    int code = ((int (*)(const void **, const char *))dlsym(driver, "cuGetExportTable"))((const void **)&table, id);
    dladdr(table[1], &where);
    int allocated = ((int (*)(unsigned long long *, size_t))(uintptr_t)table[1])(&pointer, 4 << 20);
    printf("%d %s %d\n", code, strstr(where.dli_fname, "libcuda") != NULL ? "driver" : "other", allocated);
}
