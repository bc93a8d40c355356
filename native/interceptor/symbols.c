/* The hooked symbols: names, our functions, and where the driver's own lie. See symbols.def. */
#include <stdatomic.h>
#include <string.h>

#include "dlsym.h"
#include "elf.h"
#include "interceptor.h"

#define HOOK(runtime, name) extern void name(void);
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

/* Libraries that are the driver of a runtime, by soname. Newer CANN moves the aclrt functions to libacl_rt.so; the
 * driver of WSL2 is libcuda.so.1.1 behind a loader named libcuda.so.1. */
static const struct {
    const char *soname;
    enum hcs_runtime runtime;
} drivers[] = {
    {"libcuda.so.1", HCS_RUNTIME_CUDA},     {"libcuda.so.1.1", HCS_RUNTIME_CUDA}, {"libcuda.so", HCS_RUNTIME_CUDA},
    {"libascendcl.so", HCS_RUNTIME_ACL},    {"libacl_rt.so", HCS_RUNTIME_ACL},    {"libruntime.so", HCS_RUNTIME_ACL},
};

static _Atomic(void *) real[HCS_SYMBOLS];

static bool take_from_driver(const struct hcs_object *object, void *state)
{
    (void)state;
    for (size_t driver = 0; driver < sizeof drivers / sizeof *drivers; driver++) {
        if (strcmp(object->soname, drivers[driver].soname) != 0)
            continue;
        for (int symbol = 0; symbol < HCS_SYMBOLS; symbol++) {
            if (symbols[symbol].runtime != drivers[driver].runtime)
                continue;
            void *address = hcs_elf_function(object, symbols[symbol].name);
            if (address != NULL)
                atomic_store(&real[symbol], address);
        }
    }
    return false;
}

void hcs_refresh_symbols(void)
{
    hcs_elf_visit(take_from_driver, NULL);
}

void *hcs_real(enum hcs_symbol symbol)
{
    void *address = atomic_load_explicit(&real[symbol], memory_order_acquire);
    if (address == NULL) {
        hcs_refresh_symbols();
        address = atomic_load(&real[symbol]);
    }
    /* A driver under a soname we do not know, linked directly: the next definition after ours. */
    if (address == NULL && symbols[symbol].replacement != NULL)
        address = hcs_next_after_us(symbols[symbol].name);
    return address;
}

bool hcs_is_hooked(const char *name)
{
    /* Nearly every name looked up in a process is none of ours: decide on two letters. */
    if ((name[0] != 'c' || name[1] != 'u') && (name[0] != 'a' || name[1] != 'c'))
        return false;
    for (int symbol = 0; symbol < HCS_SYMBOLS; symbol++)
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
