/* A program that does with a driver what it is told, line by line, and answers each line with one line: the driver's code
 * first. Compiled once per road: ROAD 'a' links the driver, 'b' finds it by dlopen and dlsym, 'c' by cuGetProcAddress;
 * with RUNTIME_ACL it speaks AscendCL. Knows nothing of the interceptor. */
#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <fcntl.h>
#include <unistd.h>

typedef unsigned long long address;

#ifdef RUNTIME_ACL
#define DRIVER "libascendcl.so"
#define FUNCTIONS                                                                                                      \
    F(aclInit, (const char *))                                                                                         \
    F(aclrtSetDevice, (int32_t))                                                                                       \
    F(aclrtMalloc, (void **, size_t, int))                                                                             \
    F(aclrtMallocAlign32, (void **, size_t, int))                                                                      \
    F(aclrtMallocCached, (void **, size_t, int))                                                                       \
    F(aclrtFree, (void *))                                                                                             \
    F(aclrtGetMemInfo, (int, size_t *, size_t *))
#else
#define DRIVER "libcuda.so.1"
struct prop {
    int type, handle_types, location_type, location_id;
    void *meta;
    unsigned char flags[8];
};
#define FUNCTIONS                                                                                                      \
    F(cuInit, (unsigned))                                                                                              \
    F(cuDevicePrimaryCtxRetain, (void **, int))                                                                        \
    F(cuDevicePrimaryCtxRelease_v2, (int))                                                                             \
    F(cuDevicePrimaryCtxReset_v2, (int))                                                                               \
    F(cuCtxCreate_v2, (void **, unsigned, int))                                                                        \
    F(cuCtxDestroy_v2, (void *))                                                                                       \
    F(cuCtxSetCurrent, (void *))                                                                                       \
    F(cuStreamCreate, (void **, unsigned))                                                                             \
    F(cuDeviceGetName, (char *, int, int))                                                                             \
    F(cuDeviceGetCount, (int *))                                                                                       \
    F(cuDeviceTotalMem_v2, (size_t *, int))                                                                            \
    F(cuMemAlloc_v2, (address *, size_t))                                                                              \
    F(cuMemAllocManaged, (address *, size_t, unsigned))                                                                \
    F(cuMemAllocPitch_v2, (address *, size_t *, size_t, size_t, unsigned))                                             \
    F(cuMemAllocAsync, (address *, size_t, void *))                                                                    \
    F(cuMemFreeAsync, (address, void *))                                                                               \
    F(cuMemFree_v2, (address))                                                                                         \
    F(cuMemCreate, (address *, size_t, const struct prop *, unsigned long long))                                       \
    F(cuMemRelease, (address))                                                                                         \
    F(cuMemGetInfo_v2, (size_t *, size_t *))
#endif

#ifndef ROAD
#error "compile with -DROAD='a', 'b' or 'c'"
#endif

#define F(name, parameters) static int(*p_##name) parameters;
FUNCTIONS
#undef F

#define F(name, parameters) extern int name parameters;
#if ROAD == 'a'
FUNCTIONS
#endif
#undef F

static void find_functions(void)
{
#if ROAD == 'a'
#define F(name, parameters) p_##name = name;
    FUNCTIONS
#undef F
#else
    void *driver = dlopen(DRIVER, RTLD_NOW | RTLD_LOCAL);
    if (driver == NULL) {
        fprintf(stderr, "%s\n", dlerror());
        exit(9);
    }
#if ROAD == 'b'
#define F(name, parameters) p_##name = (int(*) parameters)dlsym(driver, #name);
    FUNCTIONS
#undef F
#else
    typedef int (*lookup_function)(const char *, void **, int, uint64_t, int *);
    int (*first)(const char *, void **, int, uint64_t) =
        (int (*)(const char *, void **, int, uint64_t))dlsym(driver, "cuGetProcAddress");
    void *found = NULL;
    /* As the CUDA runtime does: ask the one for the other. */
    first("cuGetProcAddress", &found, 12000, 0);
    lookup_function lookup = (lookup_function)found;
    int status;
#define F(name, parameters)                                                                                            \
    {                                                                                                                  \
        char base[64];                                                                                                 \
        snprintf(base, sizeof base, "%s", #name);                                                                      \
        char *suffix = strstr(base, "_v2");                                                                            \
        if (suffix != NULL)                                                                                            \
            *suffix = '\0';                                                                                            \
        found = NULL;                                                                                                  \
        lookup(base, &found, 12000, 0, &status);                                                                       \
        p_##name = (int(*) parameters)found;                                                                           \
    }
    FUNCTIONS
#undef F
#endif
#endif
}

enum { MOST = 65536 };
static address held[MOST];
static int holding;

static void answer_allocation(int code, address where)
{
    if (code == 0)
        held[holding++] = where;
    printf("%d\n", code);
}

#ifdef RUNTIME_ACL
static int allocate(const char *how, size_t bytes, address *where)
{
    void *pointer = NULL;
    int code = strcmp(how, "alloc32") == 0  ? p_aclrtMallocAlign32(&pointer, bytes, 0)
               : strcmp(how, "cached") == 0 ? p_aclrtMallocCached(&pointer, bytes, 0)
                                            : p_aclrtMalloc(&pointer, bytes, 0);
    *where = (address)(uintptr_t)pointer;
    return code;
}

static int release(address where)
{
    return p_aclrtFree((void *)(uintptr_t)where);
}

static int information(size_t *free_bytes, size_t *total)
{
    return p_aclrtGetMemInfo(1, free_bytes, total);
}

static bool special(const char *command, const char *arguments)
{
    if (strcmp(command, "device") == 0)
        printf("%d\n", p_aclrtSetDevice(atoi(arguments)));
    else if (strcmp(command, "init") == 0)
        printf("%d\n", p_aclInit(NULL));
    else
        return false;
    return true;
}
#else
static int allocate(const char *how, size_t bytes, address *where)
{
    if (strcmp(how, "managed") == 0)
        return p_cuMemAllocManaged(where, bytes, 1);
    if (strcmp(how, "async") == 0)
        return p_cuMemAllocAsync(where, bytes, NULL);
    return p_cuMemAlloc_v2(where, bytes);
}

static int release(address where)
{
    return p_cuMemFree_v2(where);
}

static int information(size_t *free_bytes, size_t *total)
{
    return p_cuMemGetInfo_v2(free_bytes, total);
}

static void *contexts[16];
static void *stream;

static bool special(const char *command, const char *arguments)
{
    unsigned long long first = 0, second = 0;
    int given = sscanf(arguments, "%llu %llu", &first, &second);
    address where;
    size_t pitch, bytes = 0;
    if (strcmp(command, "init") == 0) {
        printf("%d\n", p_cuInit(0));
    } else if (strcmp(command, "device") == 0) {
        int code = p_cuDevicePrimaryCtxRetain(&contexts[first], (int)first);
        printf("%d\n", code != 0 ? code : p_cuCtxSetCurrent(contexts[first]));
    } else if (strcmp(command, "releasedevice") == 0) {
        printf("%d\n", p_cuDevicePrimaryCtxRelease_v2((int)first));
    } else if (strcmp(command, "reset") == 0) {
        printf("%d\n", p_cuDevicePrimaryCtxReset_v2((int)first));
    } else if (strcmp(command, "newcontext") == 0) {
        printf("%d\n", p_cuCtxCreate_v2(&contexts[8 + first], 0, (int)first));
    } else if (strcmp(command, "destroycontext") == 0) {
        printf("%d\n", p_cuCtxDestroy_v2(contexts[8 + first]));
    } else if (strcmp(command, "stream") == 0) {
        printf("%d\n", p_cuStreamCreate(&stream, 0));
    } else if (strcmp(command, "onstream") == 0) {
        int code = p_cuMemAllocAsync(&where, first, stream);
        answer_allocation(code, where);
    } else if (strcmp(command, "freeasync") == 0) {
        printf("%d\n", p_cuMemFreeAsync(held[first], NULL));
    } else if (strcmp(command, "pitch") == 0) {
        int code = p_cuMemAllocPitch_v2(&where, &pitch, first, second, 4);
        answer_allocation(code, where);
    } else if (strcmp(command, "create") == 0 || strcmp(command, "createhost") == 0) {
        struct prop prop = {.type = 1, .location_type = strcmp(command, "create") == 0 ? 1 : 2};
        prop.location_id = given > 1 ? (int)second : 0;
        int code = p_cuMemCreate(&where, first, &prop, 0);
        answer_allocation(code, where);
    } else if (strcmp(command, "releasehandle") == 0) {
        printf("%d\n", p_cuMemRelease(held[first]));
    } else if (strcmp(command, "totalmem") == 0) {
        int code = p_cuDeviceTotalMem_v2(&bytes, (int)first);
        printf("%d %zu\n", code, bytes);
    } else if (strcmp(command, "name") == 0) {
        char name[128] = "";
        int code = p_cuDeviceGetName(name, sizeof name, (int)first);
        printf("%d %s\n", code, name);
    } else if (strcmp(command, "count") == 0) {
        int count = 0, code = p_cuDeviceGetCount(&count);
        printf("%d %d\n", code, count);
    } else {
        return false;
    }
    return true;
}
#endif

/* race FILE ROUNDS BYTES: allocate and free again and again; FILE holds two counters, of those who hold memory at this
 * moment and the most there ever were. */
static void race(const char *arguments)
{
    char path[512];
    int rounds, won = 0;
    unsigned long long bytes;
    sscanf(arguments, "%511s %d %llu", path, &rounds, &bytes);
    int file = open(path, O_RDWR);
    _Atomic int *shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    for (int round = 0; round < rounds; round++) {
        address where;
        if (allocate("alloc", bytes, &where) != 0) {
            sched_yield();
            continue;
        }
        won++;
        int now = atomic_fetch_add(&shared[0], 1) + 1;
        int most = atomic_load(&shared[1]);
        while (now > most && !atomic_compare_exchange_weak(&shared[1], &most, now)) {
        }
        sched_yield();
        atomic_fetch_sub(&shared[0], 1);
        release(where);
    }
    printf("0 %d\n", won);
}

static void *serve(void *unused)
{
    (void)unused;
    char line[1024];
    while (fgets(line, sizeof line, stdin) != NULL) {
        char command[64] = "";
        int used = 0;
        sscanf(line, "%63s %n", command, &used);
        const char *arguments = line + used;
        unsigned long long number = strtoull(arguments, NULL, 10);
        address where = 0;
        size_t free_bytes = 0, total = 0;
        if (strcmp(command, "alloc") == 0 || strcmp(command, "alloc32") == 0 || strcmp(command, "cached") == 0 ||
            strcmp(command, "managed") == 0 || strcmp(command, "async") == 0) {
            int code = allocate(command, number, &where);
            answer_allocation(code, where);
        } else if (strcmp(command, "many") == 0) {
            int code = 0, made = 0;
            for (; (unsigned long long)made < number && (code = allocate("alloc", 512, &where)) == 0; made++)
                held[holding++] = where;
            printf("%d %d\n", code, made);
        } else if (strcmp(command, "freeall") == 0) {
            int code = 0;
            while (holding > 0)
                code |= release(held[--holding]);
            printf("%d\n", code);
        } else if (strcmp(command, "free") == 0) {
            printf("%d\n", release(held[number]));
        } else if (strcmp(command, "freeraw") == 0) {
            printf("%d\n", release(number));
        } else if (strcmp(command, "info") == 0) {
            int code = information(&free_bytes, &total);
            printf("%d %zu %zu\n", code, free_bytes, total);
        } else if (strcmp(command, "race") == 0) {
            race(arguments);
        } else if (strcmp(command, "rename") == 0) {
            line[strcspn(line, "\n")] = '\0';
            printf("%d\n", prctl(PR_SET_NAME, arguments));
        } else if (strcmp(command, "childalloc") == 0) {
            fflush(stdout);
            pid_t child = fork();
            if (child == 0) {
                _exit(allocate("alloc", number, &where) == 0 ? 0 : 1);
            }
            int status;
            waitpid(child, &status, 0);
            printf("%d\n", WEXITSTATUS(status));
        } else if (!special(command, arguments)) {
            printf("what is %s?\n", command);
        }
        fflush(stdout);
    }
    exit(0);
}

int main(int count, char **arguments)
{
    find_functions();
    if (count > 1 && strcmp(arguments[1], "--leader-leaves") == 0) {
        pthread_t thread;
        pthread_create(&thread, NULL, serve, NULL);
        pthread_exit(NULL);
    }
    serve(NULL);
}
