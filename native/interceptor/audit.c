/* libhcs_audit.so: the interceptor for HIP as an audit library of glibc's loader (LD_AUDIT).
 *
 * On ROCm a preloaded library meets HIP's calls of itself and is entered again and again. The loader tells an audit
 * library about every binding of a symbol between two objects, dlsym included, and takes the address it answers: so only
 * calls from outside into HIP are replaced. The library lives in a namespace of its own, with a libc of its own, and
 * learns of HIP's functions from the loader alone.
 */
#include <link.h>
#include <stdint.h>

#include "dlsym.h"
#include "elf.h"
#include "interceptor.h"

#define AUDIT __attribute__((visibility("default")))

enum { NOT_A_DRIVER = 0, A_DRIVER = 1 };

AUDIT unsigned int la_version(unsigned int version)
{
    return version < LAV_CURRENT ? version : LAV_CURRENT;
}

AUDIT unsigned int la_objopen(struct link_map *map, Lmid_t name_space, uintptr_t *cookie)
{
    (void)name_space;
    struct hcs_object object;
    *cookie = hcs_elf_of_link_map(map, &object) && hcs_take_driver(&object) ? A_DRIVER : NOT_A_DRIVER;
    return LA_FLG_BINDTO | LA_FLG_BINDFROM;
}

AUDIT uintptr_t la_symbind64(ElfW(Sym) *symbol, unsigned int index, uintptr_t *from, uintptr_t *to,
                             unsigned int *flags, const char *name)
{
    (void)index, (void)name;
    *flags |= LA_SYMB_NOPLTENTER | LA_SYMB_NOPLTEXIT;
    if (*to != A_DRIVER || *from == A_DRIVER || hcs_mode() == HCS_MODE_PASS_THROUGH)
        return symbol->st_value;
    return (uintptr_t)hcs_substitute((void *)symbol->st_value); // NOLINT
}

/* Names are never looked up here: in this namespace there is nothing behind us. */
void *hcs_next_after_us(const char *name)
{
    (void)name;
    return NULL;
}
