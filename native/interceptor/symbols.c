/* The hooked symbols: names, our functions, and where the driver's own lie. See symbols.def. */
#include <stdatomic.h>
#include <string.h>

#include "dlsym.h"
#include "elf.h"
#include "interceptor.h"

#define HOOK(runtime, name) HCS_EXPORT extern void name(void);
#define NEED(runtime, name)
#include "symbols.def"
#undef HOOK
#undef NEED

struct symbol {
    const char *name;
    void (*replacement)(void); /* NULL: needed, not replaced */
    enum hcs_runtime runtime;
};

static const struct symbol symbols[HCS_SYMBOLS] = {
#define HOOK(runtime, name) [HCS_SYM_##name] = {#name, name, HCS_RUNTIME_##runtime},
#define NEED(runtime, name) [HCS_SYM_##name] = {#name, NULL, HCS_RUNTIME_##runtime},
#include "symbols.def"
#undef HOOK
#undef NEED
};

/* Libraries that are the driver of a runtime, by the beginning of their soname; versions follow it. Newer CANN moves the
 * aclrt functions to libacl_rt.so; the driver of WSL2 is libcuda.so.1.1 behind a loader named libcuda.so.1. */
static const struct {
    const char *soname;
    enum hcs_runtime runtime;
} drivers[] = {
#ifdef HCS_AUDIT
    {"libamdhip64.so", HCS_RUNTIME_HIP},     {"libgalaxyhip.so", HCS_RUNTIME_HIP},
#else
    {"libcuda.so", HCS_RUNTIME_CUDA},        {"libnvidia-ml.so", HCS_RUNTIME_NVML},
    {"libascendcl.so", HCS_RUNTIME_ASCEND},  {"libacl_rt.so", HCS_RUNTIME_ASCEND},
    {"libruntime.so", HCS_RUNTIME_ASCEND},   {"libacl_dvpp.so", HCS_RUNTIME_ASCEND},
    {"libacl_dvpp_mpi.so", HCS_RUNTIME_ASCEND}, {"libcndrv.so", HCS_RUNTIME_CNDRV},
    {"libmusa.so", HCS_RUNTIME_MUSA},
#endif
};

static _Atomic(void *) real[HCS_SYMBOLS];

/* The runtime whose driver has this soname; -1 where none has. */
static int runtime_of(const char *soname)
{
    for (size_t driver = 0; driver < sizeof drivers / sizeof *drivers; driver++) {
        size_t length = strlen(drivers[driver].soname);
        if (strncmp(soname, drivers[driver].soname, length) == 0 && (soname[length] == '\0' || soname[length] == '.'))
            return (int)drivers[driver].runtime;
    }
    return -1;
}

bool hcs_is_driver(const char *soname)
{
    return runtime_of(soname) >= 0;
}

bool hcs_take_driver(const struct hcs_object *object)
{
    int runtime = runtime_of(object->soname);
    if (runtime < 0)
        return false;
    for (int symbol = 0; symbol < HCS_SYMBOLS; symbol++) {
        if ((int)symbols[symbol].runtime != runtime)
            continue;
        void *address = hcs_elf_function(object, symbols[symbol].name);
        if (address != NULL)
            atomic_store(&real[symbol], address);
    }
    return true;
}

static bool take_from_driver(const struct hcs_object *object, void *state)
{
    (void)state;
    hcs_take_driver(object);
    return false;
}

void hcs_refresh_symbols(void)
{
    hcs_elf_visit(take_from_driver, NULL);
}

void *hcs_real(enum hcs_symbol symbol)
{
    static char nothing; /* stands for "this driver does not have it", so that it is looked for once */
    void *absent = &nothing;
    void *address = atomic_load_explicit(&real[symbol], memory_order_acquire);
    if (address == NULL && symbols[symbol].replacement != NULL) {
        hcs_refresh_symbols();
        address = atomic_load(&real[symbol]);
        /* A driver under a soname we do not know, linked directly: the next definition after ours. */
        if (address == NULL)
            address = hcs_next_after_us(symbols[symbol].name);
    } else if (address == NULL) {
        /* One that this driver may not have: look once. */
        hcs_refresh_symbols();
        address = atomic_load(&real[symbol]);
        if (address == NULL)
            atomic_store(&real[symbol], absent);
    }
    return address == absent ? NULL : address;
}

bool hcs_is_hooked(const char *name)
{
    /* Nearly every name looked up in a process is none of ours: decide on two letters. */
    static const char beginnings[][2] = {{'c', 'u'}, {'m', 'u'}, {'n', 'v'}, {'a', 'c'}, {'r', 't'},
                                         {'h', 'i'}, {'c', 'n'}};
    bool possible = false;
    for (size_t index = 0; index < sizeof beginnings / sizeof *beginnings; index++)
        possible |= name[0] == beginnings[index][0] && name[1] == beginnings[index][1];
    for (int symbol = 0; possible && symbol < HCS_SYMBOLS; symbol++)
        if (symbols[symbol].replacement != NULL && strcmp(symbols[symbol].name, name) == 0)
            return true;
    return false;
}

void *hcs_substitute(void *address)
{
    if (address == NULL)
        return NULL;
    for (int symbol = 0; symbol < HCS_SYMBOLS; symbol++)
        if (symbols[symbol].replacement != NULL && atomic_load(&real[symbol]) == address)
            return (void *)symbols[symbol].replacement; // NOLINT
    return address;
}
