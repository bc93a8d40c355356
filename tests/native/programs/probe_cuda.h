/* The probe speaks the CUDA driver API. With every "cu" turned into "mu" it speaks MUSA's. */
#ifndef COMMANDS
#define DRIVER "libcuda.so.1"
struct prop {
    int type, handle_types, location_type, location_id;
    void *meta;
    unsigned char flags[8];
};
struct pool_props {
    int type, handle_types, location_type, location_id;
    void *security;
    size_t most;
    unsigned char reserved[56];
};
struct array_description {
    size_t width, height, depth;
    int format;
    unsigned channels, flags;
};
struct alloc_node {
    struct pool_props pool;
    const void *access;
    size_t access_count, bytes;
    address where;
};
struct node {
    int type, reserved[3];
    struct alloc_node alloc;
    unsigned char rest[256];
};
struct ipc {
    char bytes[64];
};
#define FUNCTIONS                                                                                                      \
    F(cuInit, (unsigned))                                                                                              \
    F(cuDevicePrimaryCtxRetain, (void **, int))                                                                        \
    F(cuDevicePrimaryCtxRelease_v2, (int))                                                                             \
    F(cuDevicePrimaryCtxReset_v2, (int))                                                                               \
    F(cuCtxCreate_v2, (void **, unsigned, int))                                                                        \
    F(cuCtxDestroy_v2, (void *))                                                                                       \
    F(cuCtxSetCurrent, (void *))                                                                                       \
    F(cuCtxSetLimit, (int, size_t))                                                                                    \
    F(cuCtxSynchronize, (void))                                                                                        \
    F(cuStreamCreate, (void **, unsigned))                                                                             \
    F(cuStreamSynchronize, (void *))                                                                                   \
    F(cuStreamBeginCapture_v2, (void *, int))                                                                          \
    F(cuStreamEndCapture, (void *, void **))                                                                           \
    F(cuEventCreate, (void **, unsigned))                                                                              \
    F(cuEventSynchronize, (void *))                                                                                    \
    F(cuDeviceGetName, (char *, int, int))                                                                             \
    F(cuDeviceGetCount, (int *))                                                                                       \
    F(cuDeviceTotalMem_v2, (size_t *, int))                                                                            \
    F(cuMemAlloc_v2, (address *, size_t))                                                                              \
    F(cuMemAllocManaged, (address *, size_t, unsigned))                                                                \
    F(cuMemAllocPitch_v2, (address *, size_t *, size_t, size_t, unsigned))                                             \
    F(cuMemAllocHost_v2, (void **, size_t))                                                                            \
    F(cuMemHostAlloc, (void **, size_t, unsigned))                                                                     \
    F(cuMemAllocAsync, (address *, size_t, void *))                                                                    \
    F(cuMemAllocFromPoolAsync, (address *, size_t, void *, void *))                                                    \
    F(cuMemFreeAsync, (address, void *))                                                                               \
    F(cuMemFree_v2, (address))                                                                                         \
    F(cuMemPoolCreate, (void **, const struct pool_props *))                                                           \
    F(cuMemPoolDestroy, (void *))                                                                                      \
    F(cuMemPoolTrimTo, (void *, size_t))                                                                               \
    F(cuMemPoolSetAttribute, (void *, int, void *))                                                                    \
    F(cuDeviceGetDefaultMemPool, (void **, int))                                                                       \
    F(cuDeviceSetMemPool, (int, void *))                                                                               \
    F(cuMemCreate, (address *, size_t, const struct prop *, unsigned long long))                                       \
    F(cuMemRelease, (address))                                                                                         \
    F(cuMemRetainAllocationHandle, (address *, void *))                                                                \
    F(cuMemAddressReserve, (address *, size_t, size_t, address, unsigned long long))                                   \
    F(cuMemMap, (address, size_t, size_t, address, unsigned long long))                                                \
    F(cuMemUnmap, (address, size_t))                                                                                   \
    F(cuMemExportToShareableHandle, (void *, address, int, unsigned long long))                                        \
    F(cuMemImportFromShareableHandle, (address *, void *, int))                                                        \
    F(cuIpcGetMemHandle, (struct ipc *, address))                                                                      \
    F(cuIpcOpenMemHandle_v2, (address *, struct ipc, unsigned))                                                        \
    F(cuIpcCloseMemHandle, (address))                                                                                  \
    F(cuArrayCreate_v2, (void **, const void *))                                                                       \
    F(cuArray3DCreate_v2, (void **, const struct array_description *))                                                 \
    F(cuArrayDestroy, (void *))                                                                                        \
    F(cuMipmappedArrayCreate, (void **, const struct array_description *, unsigned))                                   \
    F(cuMipmappedArrayDestroy, (void *))                                                                               \
    F(cuModuleLoad, (void **, const char *))                                                                           \
    F(cuModuleLoadData, (void **, const void *))                                                                       \
    F(cuModuleLoadDataEx, (void **, const void *, unsigned, int *, void **))                                           \
    F(cuModuleLoadFatBinary, (void **, const void *))                                                                  \
    F(cuModuleUnload, (void *))                                                                                        \
    F(cuLibraryLoadData, (void **, const void *, int *, void **, unsigned, int *, void **, unsigned))                  \
    F(cuLibraryUnload, (void *))                                                                                       \
    F(cuGraphCreate, (void **, unsigned))                                                                              \
    F(cuGraphAddMemAllocNode, (void **, void *, void *const *, size_t, struct alloc_node *))                           \
    F(cuGraphAddNode, (void **, void *, void *const *, size_t, struct node *))                                         \
    F(cuGraphInstantiateWithFlags, (void **, void *, unsigned long long))                                              \
    F(cuGraphLaunch, (void *, void *))                                                                                 \
    F(cuGraphExecDestroy, (void *))                                                                                    \
    F(cuDeviceGraphMemTrim, (int))                                                                                     \
    F(cuMemGetInfo_v2, (size_t *, size_t *))
#define WAYS "alloc", "managed", "async", "frompool", "onstream", "host", "hostalloc"
static inline void *begin_lookup(void *driver)
{
    int (*first)(const char *, void **, int, uint64_t) =
        (int (*)(const char *, void **, int, uint64_t))dlsym(driver, "cuGetProcAddress");
    void *found = NULL;
    /* As the CUDA runtime does: ask the one for the other. */
    first("cuGetProcAddress", &found, 12000, 0);
    return found;
}
static inline void *look_up(void *lookup, const char *name)
{
    char base[64];
    void *found = NULL;
    int status;
    snprintf(base, sizeof base, "%s", name);
    char *suffix = strstr(base, "_v2");
    if (suffix != NULL)
        *suffix = '\0';
    /* The version whose ABI this program was written for. */
    int version = strcmp(base, "cuCtxCreate") == 0 ? 11000 : strcmp(base, "cuGraphAddNode") == 0 ? 12020 : 12000;
    ((int (*)(const char *, void **, int, uint64_t, int *))lookup)(base, &found, version, 0, &status);
    return found;
}
#else
static void *contexts[16];
static void *stream;
static void *pools[8];
static void *executables[64];
static int executable_count;
static struct ipc handle;

static int allocate(const char *how, size_t bytes, address *where)
{
    void *host = NULL;
    if (strcmp(how, "managed") == 0)
        return p_cuMemAllocManaged(where, bytes, 1);
    if (strcmp(how, "async") == 0)
        return p_cuMemAllocAsync(where, bytes, NULL);
    if (strcmp(how, "onstream") == 0)
        return p_cuMemAllocAsync(where, bytes, stream);
    if (strcmp(how, "frompool") == 0)
        return p_cuMemAllocFromPoolAsync(where, bytes, pools[0], NULL);
    if (strcmp(how, "host") == 0)
        return p_cuMemAllocHost_v2(&host, bytes);
    if (strcmp(how, "hostalloc") == 0)
        return p_cuMemHostAlloc(&host, bytes, 0);
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

static void *as_pointer(address where)
{
    return (void *)(uintptr_t)where;
}

static int make_executable(void *graph)
{
    int code = p_cuGraphInstantiateWithFlags(&executables[executable_count], graph, 0);
    executable_count += code == 0;
    return code;
}

static int add_node(void *graph, unsigned long long bytes, bool generic)
{
    void *added;
    struct alloc_node alloc = {.pool = {.type = 1, .location_type = 1}, .bytes = bytes};
    if (!generic)
        return p_cuGraphAddMemAllocNode(&added, graph, NULL, 0, &alloc);
    struct node any = {.type = 10, .alloc = alloc};
    return p_cuGraphAddNode(&added, graph, NULL, 0, &any);
}

static bool memory(const char *command, unsigned long long first, unsigned long long second, int given)
{
    address where = 0;
    size_t pitch;
    int code = 0;
    if (strcmp(command, "freeasync") == 0) {
        printf("%d\n", p_cuMemFreeAsync(held[first], NULL));
    } else if (strcmp(command, "pitch") == 0) {
        code = p_cuMemAllocPitch_v2(&where, &pitch, first, second, 4);
        answer_allocation(code, where);
    } else if (strcmp(command, "create") == 0 || strcmp(command, "createhost") == 0) {
        struct prop prop = {.type = 1, .location_type = strcmp(command, "create") == 0 ? 1 : 2};
        prop.location_id = given > 1 ? (int)second : 0;
        code = p_cuMemCreate(&where, first, &prop, 0);
        answer_allocation(code, where);
    } else if (strcmp(command, "releasehandle") == 0) {
        printf("%d\n", p_cuMemRelease(held[first]));
    } else if (strcmp(command, "reserve") == 0) {
        code = p_cuMemAddressReserve(&where, first, 0, 0, 0);
        answer_allocation(code, where);
    } else if (strcmp(command, "map") == 0) { /* map ADDRESS HANDLE */
        printf("%d\n", p_cuMemMap(held[first], 2 << 20, 0, held[second], 0));
    } else if (strcmp(command, "mapsecond") == 0) { /* the page behind it */
        printf("%d\n", p_cuMemMap(held[first] + (2 << 20), 2 << 20, 0, held[second], 0));
    } else if (strcmp(command, "unmap") == 0) { /* unmap ADDRESS BYTES */
        printf("%d\n", p_cuMemUnmap(held[first], second));
    } else if (strcmp(command, "retain") == 0) {
        code = p_cuMemRetainAllocationHandle(&where, as_pointer(held[first]));
        answer_allocation(code, where);
    } else if (strcmp(command, "export") == 0) {
        int file = -1;
        code = p_cuMemExportToShareableHandle(&file, held[first], 1, 0);
        printf("%d %d\n", code, file);
    } else if (strcmp(command, "import") == 0) {
        code = p_cuMemImportFromShareableHandle(&where, as_pointer(first), 1);
        answer_allocation(code, where);
    } else if (strcmp(command, "ipcget") == 0) {
        printf("%d\n", p_cuIpcGetMemHandle(&handle, held[first]));
    } else if (strcmp(command, "ipcopen") == 0) {
        code = p_cuIpcOpenMemHandle_v2(&where, handle, 1);
        answer_allocation(code, where);
    } else if (strcmp(command, "ipcclose") == 0) {
        printf("%d\n", p_cuIpcCloseMemHandle(held[first]));
    } else {
        return false;
    }
    return true;
}

static bool pool_commands(const char *command, unsigned long long first, unsigned long long second)
{
    uint64_t threshold = second;
    if (strcmp(command, "poolcreate") == 0 || strcmp(command, "hostpool") == 0) { /* PLACE CARD */
        struct pool_props wanted = {
            .type = 1, .location_type = command[0] == 'p' ? 1 : 2, .location_id = (int)second};
        printf("%d\n", p_cuMemPoolCreate(&pools[first], &wanted));
    } else if (strcmp(command, "pooldefault") == 0) {
        printf("%d\n", p_cuDeviceGetDefaultMemPool(&pools[first], (int)second));
    } else if (strcmp(command, "pooldestroy") == 0) {
        printf("%d\n", p_cuMemPoolDestroy(pools[first]));
    } else if (strcmp(command, "poolset") == 0) {
        printf("%d\n", p_cuDeviceSetMemPool(0, pools[first]));
    } else if (strcmp(command, "threshold") == 0) {
        printf("%d\n", p_cuMemPoolSetAttribute(pools[first], 4, &threshold));
    } else if (strcmp(command, "trim") == 0) {
        printf("%d\n", p_cuMemPoolTrimTo(pools[first], second));
    } else if (strcmp(command, "sync") == 0) {
        printf("%d\n", p_cuCtxSynchronize());
    } else if (strcmp(command, "syncstream") == 0) {
        printf("%d\n", p_cuStreamSynchronize(NULL));
    } else if (strcmp(command, "syncevent") == 0) {
        void *event;
        int code = p_cuEventCreate(&event, 0);
        printf("%d\n", code != 0 ? code : p_cuEventSynchronize(event));
    } else {
        return false;
    }
    return true;
}

static bool objects(const char *command, unsigned long long first, unsigned long long second, unsigned long long third)
{
    void *object = NULL, *graph;
    char image[64];
    int code = 0;
    struct array_description wanted = {.width = first, .height = second, .format = 0x20, .channels = 1};
    snprintf(image, sizeof image, "emulated module %llu", first);
    if (strcmp(command, "array") == 0) {
        struct {
            size_t width, height;
            int format;
            unsigned channels;
        } flat = {first, second, 0x20, 1};
        code = p_cuArrayCreate_v2(&object, &flat);
    } else if (strcmp(command, "array3d") == 0 || strcmp(command, "sparse") == 0) {
        wanted.depth = third;
        wanted.flags = command[0] == 's' ? 0x40 : 0;
        code = p_cuArray3DCreate_v2(&object, &wanted);
    } else if (strcmp(command, "mipmap") == 0) {
        code = p_cuMipmappedArrayCreate(&object, &wanted, (unsigned)third);
    } else if (strcmp(command, "module") == 0) {
        code = p_cuModuleLoadData(&object, image);
    } else if (strcmp(command, "moduleex") == 0) {
        code = p_cuModuleLoadDataEx(&object, image, 0, NULL, NULL);
    } else if (strcmp(command, "fatbinary") == 0) {
        code = p_cuModuleLoadFatBinary(&object, image);
    } else if (strcmp(command, "library") == 0) {
        code = p_cuLibraryLoadData(&object, image, NULL, NULL, 0, NULL, NULL, 0);
    } else if (strcmp(command, "graph") == 0 || strcmp(command, "graphnode") == 0) {
        code = p_cuGraphCreate(&graph, 0);
        code = code != 0 ? code : add_node(graph, first, command[5] != '\0');
        printf("%d\n", code != 0 ? code : make_executable(graph));
        return true;
    } else if (strcmp(command, "capture") == 0) {
        address where;
        code = p_cuStreamBeginCapture_v2(stream, 0);
        code = code != 0 ? code : p_cuMemAllocAsync(&where, first, stream);
        int ended = p_cuStreamEndCapture(stream, &graph);
        code = code != 0 ? code : ended;
        printf("%d\n", code != 0 ? code : make_executable(graph));
        return true;
    } else {
        static const char *const endings[] = {"freearray", "freemipmap", "unload", "unloadlibrary", "launch",
                                              "destroygraph", "graphtrim"};
        int which = 0;
        while (which < 7 && strcmp(command, endings[which]) != 0)
            which++;
        switch (which) {
        case 0:
            printf("%d\n", p_cuArrayDestroy(as_pointer(held[first])));
            return true;
        case 1:
            printf("%d\n", p_cuMipmappedArrayDestroy(as_pointer(held[first])));
            return true;
        case 2:
            printf("%d\n", p_cuModuleUnload(as_pointer(held[first])));
            return true;
        case 3:
            printf("%d\n", p_cuLibraryUnload(as_pointer(held[first])));
            return true;
        case 4:
            printf("%d\n", p_cuGraphLaunch(executables[first], NULL));
            return true;
        case 5:
            printf("%d\n", p_cuGraphExecDestroy(executables[first]));
            return true;
        case 6:
            printf("%d\n", p_cuDeviceGraphMemTrim((int)first));
            return true;
        default:
            return false;
        }
    }
    answer_allocation(code, (address)(uintptr_t)object);
    return true;
}

static bool special(const char *command, const char *arguments)
{
    unsigned long long first = 0, second = 0, third = 1;
    int given = sscanf(arguments, "%llu %llu %llu", &first, &second, &third);
    size_t bytes = 0;
    if (strcmp(command, "init") == 0) {
        printf("%d\n", p_cuInit(0));
    } else if (strcmp(command, "device") == 0) {
        int code = p_cuDevicePrimaryCtxRetain(&contexts[first], (int)first);
        printf("%d\n", code != 0 ? code : p_cuCtxSetCurrent(contexts[first]));
    } else if (strcmp(command, "releasedevice") == 0) {
        printf("%d\n", p_cuDevicePrimaryCtxRelease_v2((int)first));
    } else if (strcmp(command, "reset") == 0) {
        printf("%d\n", p_cuDevicePrimaryCtxReset_v2((int)first));
    } else if (strcmp(command, "newcontext") == 0) { /* newcontext CARD [PLACE] */
        printf("%d\n", p_cuCtxCreate_v2(&contexts[8 + (given > 1 ? second : first)], 0, (int)first));
    } else if (strcmp(command, "destroycontext") == 0) {
        printf("%d\n", p_cuCtxDestroy_v2(contexts[8 + first]));
    } else if (strcmp(command, "heap") == 0) {
        printf("%d\n", p_cuCtxSetLimit(2, first));
    } else if (strcmp(command, "stream") == 0) {
        printf("%d\n", p_cuStreamCreate(&stream, 0));
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
        return memory(command, first, second, given) || pool_commands(command, first, second) ||
               objects(command, first, second, third);
    }
    return true;
}
#endif
