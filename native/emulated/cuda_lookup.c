/* The table behind cuGetProcAddress. Only addresses matter here, so one prototype stands for all functions; the real
 * ones are beside their definitions. */
#include "cuda_lookup.h"

#include <stddef.h>
#include <string.h>

#include "../common/cuda_abi.h"

#define FUNCTION(base, version, symbol) extern void symbol(void);
#define STREAM_FUNCTION(base, version, symbol, per_thread) extern void symbol(void), per_thread(void);
#include "cuda_functions.def"
#undef FUNCTION
#undef STREAM_FUNCTION

static const struct {
    const char *base;
    int version;
    void (*function)(void);
    void (*per_thread)(void); /* the same where there is no variant */
} functions[] = {
#define FUNCTION(base, version, symbol) {#base, version, symbol, symbol},
#define STREAM_FUNCTION(base, version, symbol, per_thread) {#base, version, symbol, per_thread},
#include "cuda_functions.def"
#undef FUNCTION
#undef STREAM_FUNCTION
};

void *hcs_cuda_find(const char *name, int version, bool per_thread_stream, int *status)
{
    void *found = NULL;
    *status = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    for (size_t index = 0; index < sizeof functions / sizeof *functions; index++) {
        if (strcmp(functions[index].base, name) != 0)
            continue;
        if (functions[index].version > version) {
            if (found == NULL)
                *status = CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT;
            continue;
        }
        found = (void *)(per_thread_stream ? functions[index].per_thread : functions[index].function); // NOLINT
        *status = CU_GET_PROC_ADDRESS_SUCCESS;
    }
    return found;
}
