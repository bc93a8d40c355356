/* The probe speaks AscendCL. */
#ifndef COMMANDS
#define DRIVER "libascendcl.so"
struct physical_prop {
    int handle_type, allocation_type, attribute;
    unsigned location_id;
    int location_type;
    uint64_t reserve;
};
#define FUNCTIONS                                                                                                      \
    F(aclInit, (const char *))                                                                                         \
    F(aclrtSetDevice, (int32_t))                                                                                       \
    F(aclrtMalloc, (void **, size_t, int))                                                                             \
    F(aclrtMallocAlign32, (void **, size_t, int))                                                                      \
    F(aclrtMallocCached, (void **, size_t, int))                                                                       \
    F(aclrtMallocWithCfg, (void **, size_t, int, void *))                                                              \
    F(aclrtMallocForTaskScheduler, (void **, size_t, int, void *))                                                     \
    F(aclrtMemAllocManaged, (void **, uint64_t, uint32_t))                                                             \
    F(acldvppMalloc, (void **, size_t))                                                                                \
    F(acldvppFree, (void *))                                                                                           \
    F(hi_mpi_dvpp_malloc, (uint32_t, void **, uint64_t))                                                               \
    F(aclrtMallocHost, (void **, size_t))                                                                              \
    F(aclrtMallocPhysical, (void **, size_t, const struct physical_prop *, uint64_t))                                  \
    F(aclrtFreePhysical, (void *))                                                                                     \
    F(aclrtReserveMemAddress, (void **, size_t, size_t, void *, uint64_t))                                             \
    F(aclrtMapMem, (void *, size_t, size_t, void *, uint64_t))                                                         \
    F(aclrtUnmapMem, (void *))                                                                                         \
    F(aclrtFree, (void *))                                                                                             \
    F(aclrtGetMemInfo, (int, size_t *, size_t *))
#define WAYS "alloc", "alloc32", "cached", "config", "scheduler", "managed", "dvpp", "mpi", "host"
static inline void *begin_lookup(void *driver)
{
    return driver; /* there is no lookup at this level */
}
static inline void *look_up(void *driver, const char *name)
{
    return dlsym(driver, name);
}
#else
static int allocate(const char *how, size_t bytes, address *where)
{
    void *pointer = NULL;
    int code = strcmp(how, "alloc32") == 0     ? p_aclrtMallocAlign32(&pointer, bytes, 0)
               : strcmp(how, "cached") == 0    ? p_aclrtMallocCached(&pointer, bytes, 0)
               : strcmp(how, "config") == 0    ? p_aclrtMallocWithCfg(&pointer, bytes, 0, NULL)
               : strcmp(how, "scheduler") == 0 ? p_aclrtMallocForTaskScheduler(&pointer, bytes, 0, NULL)
               : strcmp(how, "managed") == 0   ? p_aclrtMemAllocManaged(&pointer, bytes, 0)
               : strcmp(how, "dvpp") == 0      ? p_acldvppMalloc(&pointer, bytes)
               : strcmp(how, "mpi") == 0       ? p_hi_mpi_dvpp_malloc(0, &pointer, bytes)
               : strcmp(how, "host") == 0      ? p_aclrtMallocHost(&pointer, bytes)
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
    unsigned long long first = 0, second = 0;
    void *pointer = NULL;
    sscanf(arguments, "%llu %llu", &first, &second);
    if (strcmp(command, "device") == 0) {
        printf("%d\n", p_aclrtSetDevice(atoi(arguments)));
    } else if (strcmp(command, "init") == 0) {
        printf("%d\n", p_aclInit(NULL));
    } else if (strcmp(command, "dvppfree") == 0) {
        printf("%d\n", p_acldvppFree((void *)(uintptr_t)held[first]));
    } else if (strcmp(command, "create") == 0 || strcmp(command, "createhost") == 0) {
        struct physical_prop prop = {.location_id = (unsigned)second, .location_type = command[6] == '\0'};
        int code = p_aclrtMallocPhysical(&pointer, first, &prop, 0);
        answer_allocation(code, (address)(uintptr_t)pointer);
    } else if (strcmp(command, "releasehandle") == 0) {
        printf("%d\n", p_aclrtFreePhysical((void *)(uintptr_t)held[first]));
    } else if (strcmp(command, "reserve") == 0) {
        int code = p_aclrtReserveMemAddress(&pointer, first, 0, NULL, 0);
        answer_allocation(code, (address)(uintptr_t)pointer);
    } else if (strcmp(command, "map") == 0) { /* map ADDRESS HANDLE */
        printf("%d\n", p_aclrtMapMem((void *)(uintptr_t)held[first], 2 << 20, 0, (void *)(uintptr_t)held[second], 0));
    } else if (strcmp(command, "unmap") == 0) {
        printf("%d\n", p_aclrtUnmapMem((void *)(uintptr_t)held[first]));
    } else {
        return false;
    }
    return true;
}
#endif
