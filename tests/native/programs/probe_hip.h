/* The probe speaks HIP. */
#ifndef COMMANDS
#define DRIVER "libamdhip64.so"
struct extent {
    size_t width, height, depth;
};
struct pitched {
    void *pointer;
    size_t pitch, width, height;
};
struct channels {
    int x, y, z, w, f;
};
struct description {
    size_t width, height;
    int format;
    unsigned channels;
};
struct prop {
    int type, handle_types, location_type, location_id;
    void *meta;
    unsigned char flags[8];
};
struct alloc_node {
    int alloc_type, handle_types, location_type, location_id;
    void *attributes;
    size_t most;
    unsigned char reserved[56];
    const void *access;
    size_t access_count, bytes;
    void *pointer;
};
struct any_node {
    int type, reserved[3];
    struct alloc_node alloc;
};
#define FUNCTIONS                                                                                                      \
    F(hipInit, (unsigned))                                                                                             \
    F(hipSetDevice, (int))                                                                                             \
    F(hipMalloc, (void **, size_t))                                                                                    \
    F(hipExtMallocWithFlags, (void **, size_t, unsigned))                                                              \
    F(hipMallocManaged, (void **, size_t, unsigned))                                                                   \
    F(hipMallocPitch, (void **, size_t *, size_t, size_t))                                                             \
    F(hipMalloc3D, (struct pitched *, struct extent))                                                                  \
    F(hipMallocArray, (void **, const struct channels *, size_t, size_t, unsigned))                                    \
    F(hipMalloc3DArray, (void **, const struct channels *, struct extent, unsigned))                                   \
    F(hipArrayCreate, (void **, const struct description *))                                                           \
    F(hipMallocMipmappedArray, (void **, const struct channels *, struct extent, unsigned, unsigned))                  \
    F(hipMallocAsync, (void **, size_t, void *))                                                                       \
    F(hipFreeAsync, (void *, void *))                                                                                  \
    F(hipFree, (void *))                                                                                               \
    F(hipFreeArray, (void *))                                                                                          \
    F(hipMemCreate, (void **, size_t, const struct prop *, unsigned long long))                                        \
    F(hipMemRelease, (void *))                                                                                         \
    F(hipMemAddressReserve, (void **, size_t, size_t, void *, unsigned long long))                                     \
    F(hipMemMap, (void *, size_t, size_t, void *, unsigned long long))                                                 \
    F(hipMemUnmap, (void *, size_t))                                                                                   \
    F(hipDeviceSynchronize, (void))                                                                                    \
    F(hipDeviceReset, (void))                                                                                          \
    F(hipHostMalloc, (void **, size_t, unsigned))                                                                      \
    F(hipStreamCreate, (void **))                                                                                      \
    F(hipStreamBeginCapture, (void *, int))                                                                            \
    F(hipStreamEndCapture, (void *, void **))                                                                          \
    F(hipGraphCreate, (void **, unsigned))                                                                             \
    F(hipGraphAddMemAllocNode, (void **, void *, const void *, size_t, struct alloc_node *))                           \
    F(hipGraphAddNode, (void **, void *, const void *, size_t, struct any_node *))                                     \
    F(hipGraphInstantiate, (void **, void *, void **, char *, size_t))                                                 \
    F(hipGraphInstantiateWithFlags, (void **, void *, unsigned long long))                                             \
    F(hipGraphUpload, (void *, void *))                                                                                \
    F(hipGraphLaunch, (void *, void *))                                                                                \
    F(hipGraphLaunch_spt, (void *, void *))                                                                            \
    F(hipGraphExecDestroy, (void *))                                                                                   \
    F(hipDeviceGraphMemTrim, (int))                                                                                    \
    F(hipMemGetInfo, (size_t *, size_t *))                                                                             \
    F(hipDeviceTotalMem, (size_t *, int))
#define WAYS "alloc", "flags", "managed", "async", "host"
static void *driver_itself;
static inline void *begin_lookup(void *driver)
{
    driver_itself = driver;
    return dlsym(driver, "hipGetProcAddress");
}
static inline void *look_up(void *lookup, const char *name)
{
    void *found = NULL;
    int status, code = ((int (*)(const char *, void **, int, uint64_t, int *))lookup)(name, &found, 60000000, 0, &status);
    return code == 0 ? found : dlsym(driver_itself, name);
}
#else
static int allocate(const char *how, size_t bytes, address *where)
{
    void *pointer = NULL;
    int code = strcmp(how, "flags") == 0     ? p_hipExtMallocWithFlags(&pointer, bytes, 1)
               : strcmp(how, "managed") == 0 ? p_hipMallocManaged(&pointer, bytes, 1)
               : strcmp(how, "async") == 0   ? p_hipMallocAsync(&pointer, bytes, NULL)
               : strcmp(how, "host") == 0    ? p_hipHostMalloc(&pointer, bytes, 0)
                                             : p_hipMalloc(&pointer, bytes);
    *where = (address)(uintptr_t)pointer;
    return code;
}

static int release(address where)
{
    return p_hipFree((void *)(uintptr_t)where);
}

static int information(size_t *free_bytes, size_t *total)
{
    return p_hipMemGetInfo(free_bytes, total);
}

static void *executables[64];
static int executable_count;

static int make_executable(void *graph, bool plainly)
{
    void **made = &executables[executable_count];
    int code = plainly ? p_hipGraphInstantiate(made, graph, NULL, NULL, 0) : p_hipGraphInstantiateWithFlags(made, graph, 0);
    executable_count += code == 0;
    return code;
}

static int add_node(void *graph, unsigned long long bytes, bool generic)
{
    void *added;
    struct any_node any = {.type = 10, .alloc = {.alloc_type = 1, .location_type = 1, .bytes = bytes}};
    return generic ? p_hipGraphAddNode(&added, graph, NULL, 0, &any)
                   : p_hipGraphAddMemAllocNode(&added, graph, NULL, 0, &any.alloc);
}

static bool graphs(const char *command, unsigned long long first)
{
    void *graph = NULL, *stream = NULL, *pointer;
    if (strcmp(command, "graph") == 0 || strcmp(command, "graphnode") == 0) {
        int code = p_hipGraphCreate(&graph, 0);
        code = code != 0 ? code : add_node(graph, first, command[5] != '\0');
        printf("%d\n", code != 0 ? code : make_executable(graph, command[5] != '\0'));
    } else if (strcmp(command, "capture") == 0) {
        int code = p_hipStreamCreate(&stream);
        code = code != 0 ? code : p_hipStreamBeginCapture(stream, 0);
        code = code != 0 ? code : p_hipMallocAsync(&pointer, first, stream);
        int ended = p_hipStreamEndCapture(stream, &graph);
        code = code != 0 ? code : ended;
        printf("%d\n", code != 0 ? code : make_executable(graph, false));
    } else if (strcmp(command, "upload") == 0) {
        printf("%d\n", p_hipGraphUpload(executables[first], NULL));
    } else if (strcmp(command, "launch") == 0) {
        printf("%d\n", p_hipGraphLaunch(executables[first], NULL));
    } else if (strcmp(command, "launchspt") == 0) {
        printf("%d\n", p_hipGraphLaunch_spt(executables[first], NULL));
    } else if (strcmp(command, "destroygraph") == 0) {
        printf("%d\n", p_hipGraphExecDestroy(executables[first]));
    } else if (strcmp(command, "graphtrim") == 0) {
        printf("%d\n", p_hipDeviceGraphMemTrim((int)first));
    } else {
        return false;
    }
    return true;
}

static bool special(const char *command, const char *arguments)
{
    unsigned long long first = 0, second = 0, third = 1;
    void *pointer = NULL;
    size_t bytes = 0, pitch;
    const struct channels floats = {.x = 32};
    sscanf(arguments, "%llu %llu %llu", &first, &second, &third);
    if (strcmp(command, "init") == 0) {
        printf("%d\n", p_hipInit(0));
    } else if (strcmp(command, "device") == 0) {
        printf("%d\n", p_hipSetDevice((int)first));
    } else if (strcmp(command, "reset") == 0) {
        printf("%d\n", p_hipDeviceReset());
    } else if (strcmp(command, "totalmem") == 0) {
        int code = p_hipDeviceTotalMem(&bytes, (int)first);
        printf("%d %zu\n", code, bytes);
    } else if (strcmp(command, "pitch") == 0) {
        int code = p_hipMallocPitch(&pointer, &pitch, first, second);
        answer_allocation(code, (address)(uintptr_t)pointer);
    } else if (strcmp(command, "pitch3d") == 0) {
        struct pitched got;
        int code = p_hipMalloc3D(&got, (struct extent){first, second, third});
        answer_allocation(code, (address)(uintptr_t)got.pointer);
    } else if (strcmp(command, "array") == 0) {
        int code = p_hipMallocArray(&pointer, &floats, first, second, 0);
        answer_allocation(code, (address)(uintptr_t)pointer);
    } else if (strcmp(command, "array3d") == 0) {
        int code = p_hipMalloc3DArray(&pointer, &floats, (struct extent){first, second, third}, 0);
        answer_allocation(code, (address)(uintptr_t)pointer);
    } else if (strcmp(command, "arraycreate") == 0) {
        struct description wanted = {.width = first, .height = second, .format = 0x20, .channels = 1};
        int code = p_hipArrayCreate(&pointer, &wanted);
        answer_allocation(code, (address)(uintptr_t)pointer);
    } else if (strcmp(command, "mipmap") == 0) {
        int code = p_hipMallocMipmappedArray(&pointer, &floats, (struct extent){first, second, 0}, (unsigned)third, 0);
        answer_allocation(code, (address)(uintptr_t)pointer);
    } else if (strcmp(command, "freearray") == 0) {
        printf("%d\n", p_hipFreeArray((void *)(uintptr_t)held[first]));
    } else if (strcmp(command, "freeasync") == 0) {
        int code = p_hipFreeAsync((void *)(uintptr_t)held[first], NULL);
        printf("%d\n", code != 0 ? code : p_hipDeviceSynchronize());
    } else if (strcmp(command, "create") == 0) {
        struct prop prop = {.type = 1, .location_type = 1, .location_id = (int)second};
        int code = p_hipMemCreate(&pointer, first, &prop, 0);
        answer_allocation(code, (address)(uintptr_t)pointer);
    } else if (strcmp(command, "releasehandle") == 0) {
        printf("%d\n", p_hipMemRelease((void *)(uintptr_t)held[first]));
    } else if (strcmp(command, "reserve") == 0) {
        int code = p_hipMemAddressReserve(&pointer, first, 0, NULL, 0);
        answer_allocation(code, (address)(uintptr_t)pointer);
    } else if (strcmp(command, "map") == 0) {
        printf("%d\n", p_hipMemMap((void *)(uintptr_t)held[first], 2 << 20, 0, (void *)(uintptr_t)held[second], 0));
    } else if (strcmp(command, "unmap") == 0) {
        printf("%d\n", p_hipMemUnmap((void *)(uintptr_t)held[first], 2 << 20));
    } else {
        return graphs(command, first);
    }
    return true;
}
#endif
