/* The probe speaks Cambricon's CNDrv. */
#ifndef COMMANDS
#define DRIVER "libcndrv.so"
struct prop {
    int type, handle_types, location_type, location_id;
    void *meta;
    unsigned char flags[8];
};
#define FUNCTIONS                                                                                                      \
    F(cnInit, (unsigned))                                                                                              \
    F(cnSharedContextAcquire, (void **, int))                                                                          \
    F(cnSharedContextReset, (int))                                                                                     \
    F(cnCtxSetCurrent, (void *))                                                                                       \
    F(cnMalloc, (address *, uint64_t))                                                                                 \
    F(cnZmalloc, (address *, uint64_t))                                                                                \
    F(cnMallocSecurity, (address *, uint64_t))                                                                         \
    F(cnMallocConstant, (address *, uint64_t))                                                                         \
    F(cnMallocPeerAble, (address *, uint64_t))                                                                         \
    F(cnMallocNode, (address *, uint64_t, int))                                                                        \
    F(cnZmallocNode, (address *, uint64_t, int))                                                                       \
    F(cnMallocNodeConstant, (address *, uint64_t, int))                                                                \
    F(cnMallocFrameBuffer, (address *, uint64_t, int))                                                                 \
    F(cnFree, (address))                                                                                               \
    F(cnMemCreate, (address *, size_t, const struct prop *, unsigned long long))                                       \
    F(cnMemRelease, (address))                                                                                         \
    F(cnMemAddressReserve, (address *, size_t, size_t, address, unsigned long long))                                   \
    F(cnMemMap, (address, size_t, size_t, address, unsigned long long))                                                \
    F(cnMemUnmap, (address, size_t))                                                                                   \
    F(cnMemGetInfo, (uint64_t *, uint64_t *))                                                                          \
    F(cnMemGetNodeInfo, (uint64_t *, uint64_t *, int))                                                                 \
    F(cnDeviceTotalMem, (uint64_t *, int))
#define WAYS "alloc", "zero", "security", "constant", "peer", "node", "zeronode", "nodeconstant", "framebuffer"
static void *driver_itself;
static inline void *begin_lookup(void *driver)
{
    driver_itself = driver;
    return dlsym(driver, "cnGetExportFunction");
}
static inline void *look_up(void *lookup, const char *name)
{
    const void *found = NULL;
    int code = ((int (*)(const char *, const void **))lookup)(name, &found);
    return code == 0 ? (void *)(uintptr_t)found : dlsym(driver_itself, name);
}
#else
static int allocate(const char *how, size_t bytes, address *where)
{
    return strcmp(how, "zero") == 0           ? p_cnZmalloc(where, bytes)
           : strcmp(how, "security") == 0     ? p_cnMallocSecurity(where, bytes)
           : strcmp(how, "constant") == 0     ? p_cnMallocConstant(where, bytes)
           : strcmp(how, "peer") == 0         ? p_cnMallocPeerAble(where, bytes)
           : strcmp(how, "node") == 0         ? p_cnMallocNode(where, bytes, 0)
           : strcmp(how, "zeronode") == 0     ? p_cnZmallocNode(where, bytes, 0)
           : strcmp(how, "nodeconstant") == 0 ? p_cnMallocNodeConstant(where, bytes, 0)
           : strcmp(how, "framebuffer") == 0  ? p_cnMallocFrameBuffer(where, bytes, 0)
                                              : p_cnMalloc(where, bytes);
}

static int release(address where)
{
    return p_cnFree(where);
}

static int information(size_t *free_bytes, size_t *total)
{
    uint64_t free_now, total_now;
    int code = p_cnMemGetInfo(&free_now, &total_now);
    *free_bytes = free_now;
    *total = total_now;
    return code;
}

static bool special(const char *command, const char *arguments)
{
    unsigned long long first = 0, second = 0;
    address where;
    uint64_t free_bytes = 0, bytes = 0;
    sscanf(arguments, "%llu %llu", &first, &second);
    if (strcmp(command, "init") == 0) {
        printf("%d\n", p_cnInit(0));
    } else if (strcmp(command, "device") == 0) {
        void *context;
        int code = p_cnSharedContextAcquire(&context, (int)first);
        printf("%d\n", code != 0 ? code : p_cnCtxSetCurrent(context));
    } else if (strcmp(command, "reset") == 0) {
        printf("%d\n", p_cnSharedContextReset((int)first));
    } else if (strcmp(command, "totalmem") == 0) {
        int code = p_cnDeviceTotalMem(&bytes, (int)first);
        printf("%d %llu\n", code, (unsigned long long)bytes);
    } else if (strcmp(command, "nodeinfo") == 0) {
        int code = p_cnMemGetNodeInfo(&free_bytes, &bytes, 0);
        printf("%d %llu %llu\n", code, (unsigned long long)free_bytes, (unsigned long long)bytes);
    } else if (strcmp(command, "create") == 0) {
        struct prop prop = {.type = 1, .location_type = 1, .location_id = (int)second};
        int code = p_cnMemCreate(&where, first, &prop, 0);
        answer_allocation(code, where);
    } else if (strcmp(command, "releasehandle") == 0) {
        printf("%d\n", p_cnMemRelease(held[first]));
    } else if (strcmp(command, "reserve") == 0) {
        int code = p_cnMemAddressReserve(&where, first, 0, 0, 0);
        answer_allocation(code, where);
    } else if (strcmp(command, "map") == 0) {
        printf("%d\n", p_cnMemMap(held[first], 2 << 20, 0, held[second], 0));
    } else if (strcmp(command, "unmap") == 0) {
        printf("%d\n", p_cnMemUnmap(held[first], 2 << 20));
    } else {
        return false;
    }
    return true;
}
#endif
