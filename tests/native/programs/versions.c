/* Asks cuGetProcAddress_v2 for names and versions, and prints code, status, and whether the address is the driver's. */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

int main(void)
{
    static const struct {
        const char *name;
        int version;
        uint64_t flags;
    } questions[] = {
        {"cuMemAlloc", 12000, 0},     {"cuMemAlloc", 1000, 0},      {"cuMemAlloc_v2", 12000, 0},
        {"cuMemAllocAsync", 11000, 0}, {"cuMemAllocAsync", 12000, 2}, {"cuInit", 12000, 0},
        {"cuGetProcAddress", 11030, 0}, {"noSuchFunction", 12000, 0}, {"cuMemAlloc", 2000, 0},
    };
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    int (*lookup)(const char *, void **, int, uint64_t, int *) =
        (int (*)(const char *, void **, int, uint64_t, int *))dlsym(driver, "cuGetProcAddress_v2");
    for (size_t index = 0; index < sizeof questions / sizeof *questions; index++) {
        void *address = NULL;
        int status = -1;
        Dl_info where = {0};
        int code = lookup(questions[index].name, &address, questions[index].version, questions[index].flags, &status);
        const char *owner = "none";
        if (address != NULL && dladdr(address, &where) != 0)
            owner = strstr(where.dli_fname, "libhcs_interceptor") != NULL ? "interceptor" : "driver";
        printf("%d %d %s %s\n", code, status, owner, where.dli_sname != NULL ? where.dli_sname : "-");
    }
}
