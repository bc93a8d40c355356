/* libhcs_audit.so: the interceptor for HIP as an audit library of glibc's loader (LD_AUDIT).
 *
 * On ROCm a preloaded library meets HIP's calls of itself and is entered again and again. The loader tells an audit
 * library about every binding of a symbol between two objects, dlsym included, and takes the address it answers: so only
 * calls from outside into HIP are replaced. The library lives in a namespace of its own, with a libc of its own, and
 * learns of HIP's functions from the loader alone.
 */
#include <link.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

#include "dlsym.h"
#include "elf.h"
#include "interceptor.h"

#define AUDIT __attribute__((visibility("default")))

enum { NOT_A_DRIVER = 0, A_DRIVER = 1 };

AUDIT unsigned int la_version(unsigned int version)
{
    return version < LAV_CURRENT ? version : LAV_CURRENT;
}

/* ---- addresses that were taken ------------------------------------------------------------------------------------ */

/* The loader asks about calls through the procedure linkage table, not about addresses that code takes into a table of
 * its own (function pointers, -fno-plt). Those are found by the relocations of the object and replaced where they hold
 * exactly a hooked function. */

#if defined(__x86_64__)
#define RELOCATION_TO_ADDRESS(type) ((type) == R_X86_64_GLOB_DAT || (type) == R_X86_64_64)
#elif defined(__aarch64__)
#define RELOCATION_TO_ADDRESS(type) ((type) == R_AARCH64_GLOB_DAT || (type) == R_AARCH64_ABS64)
#else
#define RELOCATION_TO_ADDRESS(type) false
#endif

static _Atomic bool relocations_pending; /* an object came that may not be relocated yet */
static struct link_map *_Atomic some_object;

static void replace(void **slot)
{
    void *ours = hcs_substitute(*slot);
    if (ours == *slot)
        return;
    /* Read-only after relocation, most often; it was made so page by page, and stays so for everyone else. */
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    void *start = (void *)((uintptr_t)slot & ~(page - 1)); // NOLINT
    if (mprotect(start, page, PROT_READ | PROT_WRITE) != 0)
        return;
    __atomic_store_n(slot, ours, __ATOMIC_SEQ_CST);
}

static void replace_taken_addresses(const struct link_map *map)
{
    struct hcs_object object;
    const ElfW(Rela) *relocations = NULL;
    size_t bytes = 0;
    if (!hcs_elf_of_link_map(map, &object) || hcs_take_driver(&object))
        return;
    for (const ElfW(Dyn) *entry = map->l_ld; entry->d_tag != DT_NULL; entry++) {
        if (entry->d_tag == DT_RELA)
            relocations = (const ElfW(Rela) *)(entry->d_un.d_ptr < map->l_addr ? map->l_addr + entry->d_un.d_ptr // NOLINT
                                                                             : entry->d_un.d_ptr);
        if (entry->d_tag == DT_RELASZ)
            bytes = entry->d_un.d_val;
    }
    for (size_t index = 0; relocations != NULL && index < bytes / sizeof *relocations; index++) {
        const ElfW(Rela) *relocation = &relocations[index];
        const char *name = object.strings + object.symbols[ELF64_R_SYM(relocation->r_info)].st_name;
        if (RELOCATION_TO_ADDRESS(ELF64_R_TYPE(relocation->r_info)) && hcs_is_hooked(name))
            replace((void **)(map->l_addr + relocation->r_offset)); // NOLINT
    }
}

static void replace_all_taken(void)
{
    struct link_map *map = atomic_load(&some_object);
    if (map == NULL || hcs_mode() == HCS_MODE_PASS_THROUGH)
        return;
    while (map->l_prev != NULL)
        map = map->l_prev;
    for (; map != NULL; map = map->l_next)
        replace_taken_addresses(map);
}

/* ---- what the loader tells ----------------------------------------------------------------------------------------- */

AUDIT unsigned int la_objopen(struct link_map *map, Lmid_t name_space, uintptr_t *cookie)
{
    struct hcs_object object;
    *cookie = hcs_elf_of_link_map(map, &object) && hcs_take_driver(&object) ? A_DRIVER : NOT_A_DRIVER;
    if (name_space == LM_ID_BASE) {
        atomic_store(&some_object, map);
        atomic_store(&relocations_pending, true);
    }
    return LA_FLG_BINDTO | LA_FLG_BINDFROM;
}

AUDIT unsigned int la_objclose(uintptr_t *cookie)
{
    (void)cookie;
    atomic_store(&some_object, NULL); /* it may be that one; the next object that comes is as good */
    return 0;
}

AUDIT void la_preinit(uintptr_t *cookie)
{
    (void)cookie;
    atomic_store(&relocations_pending, false);
    replace_all_taken();
}

AUDIT uintptr_t la_symbind64(ElfW(Sym) *symbol, unsigned int index, uintptr_t *from, uintptr_t *to,
                             unsigned int *flags, const char *name)
{
    (void)index;
    *flags |= LA_SYMB_NOPLTENTER | LA_SYMB_NOPLTEXIT;
    /* A lookup by name comes after its object was relocated; a binding at load may come before. */
    if ((*flags & LA_SYMB_DLSYM) && atomic_exchange(&relocations_pending, false))
        replace_all_taken();
    if (*to != A_DRIVER || *from == A_DRIVER || !hcs_is_hooked(name) || hcs_mode() == HCS_MODE_PASS_THROUGH)
        return symbol->st_value;
    return (uintptr_t)hcs_substitute((void *)symbol->st_value); // NOLINT
}

/* Names are never looked up here: in this namespace there is nothing behind us. */
void *hcs_next_after_us(const char *name)
{
    (void)name;
    return NULL;
}
