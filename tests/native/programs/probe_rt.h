/* The probe speaks Ascend's runtime level, as graph engine and collectives do. */
#ifndef COMMANDS
#define DRIVER "libruntime.so"
struct physical_prop {
    uint32_t side, device, module, page_type, memory_type;
    uint64_t reserve;
};
#define FUNCTIONS                                                                                                      \
    F(rtSetDevice, (int32_t))                                                                                          \
    F(rtMalloc, (void **, uint64_t, uint32_t, uint16_t))                                                               \
    F(rtMallocCached, (void **, uint64_t, uint32_t, uint16_t))                                                         \
    F(rtMemAlloc, (void **, uint64_t, uint32_t, uint16_t))                                                             \
    F(rtMemAllocManaged, (void **, uint64_t, uint32_t, uint16_t))                                                      \
    F(rtDvppMalloc, (void **, uint64_t, uint16_t))                                                                     \
    F(rtDvppMallocWithFlag, (void **, uint64_t, uint32_t, uint16_t))                                                   \
    F(rtFree, (void *))                                                                                                \
    F(rtDvppFree, (void *))                                                                                            \
    F(rtMallocPhysical, (void **, size_t, struct physical_prop *, uint64_t))                                           \
    F(rtFreePhysical, (void *))                                                                                        \
    F(rtMemGetInfoEx, (uint32_t, size_t *, size_t *))
#define WAYS "alloc", "cached", "plain", "managed", "dvpp", "dvppflag"
static inline void *begin_lookup(void *driver)
{
    return driver;
}
static inline void *look_up(void *driver, const char *name)
{
    return dlsym(driver, name);
}
#else
static int allocate(const char *how, size_t bytes, address *where)
{
    void *pointer = NULL;
    int code = strcmp(how, "cached") == 0     ? p_rtMallocCached(&pointer, bytes, 0, 0)
               : strcmp(how, "plain") == 0    ? p_rtMemAlloc(&pointer, bytes, 0, 0)
               : strcmp(how, "managed") == 0  ? p_rtMemAllocManaged(&pointer, bytes, 0, 0)
               : strcmp(how, "dvpp") == 0     ? p_rtDvppMalloc(&pointer, bytes, 0)
               : strcmp(how, "dvppflag") == 0 ? p_rtDvppMallocWithFlag(&pointer, bytes, 0, 0)
                                              : p_rtMalloc(&pointer, bytes, 0, 0);
    *where = (address)(uintptr_t)pointer;
    return code;
}

static int release(address where)
{
    return p_rtFree((void *)(uintptr_t)where);
}

static int information(size_t *free_bytes, size_t *total)
{
    return p_rtMemGetInfoEx(1, free_bytes, total);
}

static bool special(const char *command, const char *arguments)
{
    unsigned long long first = 0, second = 0;
    void *pointer = NULL;
    sscanf(arguments, "%llu %llu", &first, &second);
    if (strcmp(command, "device") == 0) {
        printf("%d\n", p_rtSetDevice(atoi(arguments)));
    } else if (strcmp(command, "init") == 0) {
        printf("0\n");
    } else if (strcmp(command, "create") == 0 || strcmp(command, "createhost") == 0) {
        struct physical_prop prop = {.side = command[6] == '\0', .device = (uint32_t)second};
        int code = p_rtMallocPhysical(&pointer, first, &prop, 0);
        answer_allocation(code, (address)(uintptr_t)pointer);
    } else if (strcmp(command, "releasehandle") == 0) {
        printf("%d\n", p_rtFreePhysical((void *)(uintptr_t)held[first]));
    } else {
        return false;
    }
    return true;
}
#endif
