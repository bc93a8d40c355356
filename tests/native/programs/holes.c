/* Ways round a quota that somebody might find: `holes WAY BYTES` allocates BYTES, once or twice, and prints each code of the
 * driver. Uses the public interface of the driver and of the C library alone. */
#include <dlfcn.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

typedef int (*init_function)(unsigned);
typedef int (*create_function)(void **, unsigned, int);
typedef int (*alloc_function)(unsigned long long *, size_t);
typedef void *(*dlsym_function)(void *, const char *);
typedef int (*lookup_function)(const char *, void **, int, uint64_t, int *);

static sigjmp_buf back;
static void jump(int number)
{
    (void)number;
    siglongjmp(back, 1);
}

static void *driver;

static void *symbol(const char *name)
{
    void *found = dlsym(driver, name);
    if (found == NULL) {
        printf("no %s\n", name);
        exit(9);
    }
    return found;
}

static void begin(void)
{
    void *context;
    int code = ((init_function)symbol("cuInit"))(0);
    if (code == 0)
        code = ((create_function)symbol("cuCtxCreate_v2"))(&context, 0, 0);
    if (code != 0) {
        printf("begin %d\n", code);
        exit(9);
    }
}

static void allocate(alloc_function function, size_t bytes)
{
    unsigned long long pointer = 0;
    printf("%d\n", function(&pointer, bytes));
}

static void more_files(bool allowed)
{
    struct rlimit limit;
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = allowed ? limit.rlim_max : 0;
    setrlimit(RLIMIT_NOFILE, &limit);
}

int main(int count, char **words)
{
    const char *way = count > 1 ? words[1] : "";
    size_t bytes = count > 2 ? strtoull(words[2], NULL, 10) : 0;
    if (strcmp(way, "closed") == 0) {
        close(0);
        close(1);
        close(2);
    }
    if (strcmp(way, "namespace") == 0)
        driver = dlmopen(LM_ID_NEWLM, "libcuda.so.1", RTLD_NOW);
    else if (strcmp(way, "namespace-within") == 0)
        driver = dlmopen(LM_ID_NEWLM, words[3], RTLD_NOW);
    else
        driver = dlopen("libcuda.so.1", RTLD_NOW);
    if (driver == NULL) {
        printf("refused %s\n", dlerror());
        return 0;
    }
    if (strcmp(way, "namespace-within") == 0) {
        allocate((alloc_function)dlsym(driver, "allocate_there"), bytes);
        return 0;
    }
    if (strcmp(way, "files") == 0) {
        more_files(false);
        printf("%d\n", ((init_function)symbol("cuInit"))(0));
        more_files(true);
    }
    begin();
    if (strcmp(way, "namespace") == 0 || strcmp(way, "plain") == 0) {
        allocate((alloc_function)symbol("cuMemAlloc_v2"), bytes);
    } else if (strcmp(way, "loader") == 0 || strcmp(way, "loader-version") == 0) {
        void *libc = dlopen("libc.so.6", RTLD_NOW);
        dlsym_function other = strcmp(way, "loader") == 0 ? (dlsym_function)dlsym(libc, "dlsym")
                                                          : (dlsym_function)dlvsym(libc, "dlsym", "GLIBC_2.2.5");
        if (other == NULL)
            other = (dlsym_function)dlvsym(libc, "dlsym", "GLIBC_2.34");
        allocate((alloc_function)other(driver, "cuMemAlloc_v2"), bytes);
    } else if (strcmp(way, "jump") == 0) {
        signal(SIGUSR1, jump);
        if (sigsetjmp(back, 1) == 0)
            allocate((alloc_function)symbol("cuMemAlloc_v2"), 1 << 20);
        else
            printf("jumped\n");
        allocate((alloc_function)symbol("cuMemAlloc_v2"), bytes);
    } else if (strcmp(way, "per-thread") == 0) {
        void *graph, *executable, *pointer;
        void *stream = (void *)0x2; /* CU_STREAM_PER_THREAD */
        int (*alloc)(void **, size_t, void *) = NULL;
        lookup_function look_up = (lookup_function)symbol("cuGetProcAddress_v2");
        int status, code = look_up("cuMemAllocAsync", (void **)&alloc, 12000, 2, &status);
        code = code != 0 ? code : ((int (*)(void *, int))symbol("cuStreamBeginCapture_v2"))(stream, 0);
        code = code != 0 ? code : alloc(&pointer, bytes, NULL);
        code = code != 0 ? code : ((int (*)(void *, void **))symbol("cuStreamEndCapture"))(stream, &graph);
        code = code != 0 ? code : ((int (*)(void **, void *, unsigned long long))symbol("cuGraphInstantiateWithFlags"))(&executable, graph, 0);
        code = code != 0 ? code : ((int (*)(void *, void *))symbol("cuGraphLaunch"))(executable, stream);
        printf("%d\n", code);
        allocate((alloc_function)symbol("cuMemAlloc_v2"), bytes);
    } else if (strcmp(way, "first") == 0) {
        unsigned small = 0, pitch = 0, free_bytes = 0, total = 0;
        int (*alloc)(unsigned *, unsigned) = (int (*)(unsigned *, unsigned))symbol("cuMemAlloc");
        int (*release)(unsigned) = (int (*)(unsigned))symbol("cuMemFree");
        printf("%d\n", alloc(&small, (unsigned)bytes));
        printf("%d\n", alloc(&small, (unsigned)bytes / 4));
        ((int (*)(unsigned *, unsigned *))symbol("cuMemGetInfo"))(&free_bytes, &total);
        printf("%u %u\n", free_bytes, total);
        printf("%d\n", release(small));
        ((int (*)(unsigned *, unsigned *))symbol("cuMemGetInfo"))(&free_bytes, &total);
        printf("%u %u\n", free_bytes, total);
        int (*pitched)(unsigned *, unsigned *, unsigned, unsigned, unsigned) =
            (int (*)(unsigned *, unsigned *, unsigned, unsigned, unsigned))symbol("cuMemAllocPitch");
        printf("%d\n", pitched(&small, &pitch, 1 << 12, (unsigned)(bytes >> 12), 16));
        struct { unsigned width, height; int format; unsigned channels; } flat = {1024, (unsigned)(bytes >> 12), 0x20, 1};
        struct { unsigned width, height, depth; int format; unsigned channels, flags; } deep = {1024, (unsigned)(bytes >> 12), 0, 0x20, 1, 0};
        void *array;
        printf("%d\n", ((int (*)(void **, void *))symbol("cuArrayCreate"))(&array, &flat));
        printf("%d\n", ((int (*)(void **, void *))symbol("cuArray3DCreate"))(&array, &deep));
        ((int (*)(unsigned *, int))symbol("cuDeviceTotalMem"))(&total, 0);
        printf("%u\n", total);
    } else if (strcmp(way, "files") == 0) {
        allocate((alloc_function)symbol("cuMemAlloc_v2"), bytes);
    } else if (strcmp(way, "contexts") == 0) {
        void *context;
        int code = ((create_function)symbol("cuCtxCreate"))(&context, 0, 0);
        printf("%d\n", code);
        if (code == 0)
            printf("%d\n", ((int (*)(void *))symbol("cuCtxDestroy"))(context));
        getchar();
    } else if (strcmp(way, "closed") == 0) {
        unsigned long long pointer = 0;
        return ((alloc_function)symbol("cuMemAlloc_v2"))(&pointer, bytes);
    }
    return 0;
}
