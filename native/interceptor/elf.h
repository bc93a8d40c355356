/* Looks into the objects loaded in this process, by reading their ELF tables: no loader lock beyond
 * dl_iterate_phdr's own, no malloc, and no dlsym, which we interpose ourselves. */
#ifndef HCS_ELF_H
#define HCS_ELF_H

#include <link.h>
#include <stdbool.h>
#include <stdint.h>

struct hcs_object {
    uintptr_t base; /* load address */
    uintptr_t low;  /* first and last mapped byte + 1 */
    uintptr_t high;
    const ElfW(Sym) *symbols;
    const char *strings;
    const uint32_t *gnu_hash;
    const uint32_t *sysv_hash;
    const char *soname; /* "" where there is none */
};

/* Visits the loaded objects in load order, the program first, until visit returns true; returns whether it did. */
bool hcs_elf_visit(bool (*visit)(const struct hcs_object *object, void *state), void *state);

/* The same for one object that the loader names; low and high stay 0. False where it has no symbols. */
bool hcs_elf_of_link_map(const struct link_map *map, struct hcs_object *object);

/* The address of a function the object itself defines; NULL when it defines none of that name. */
void *hcs_elf_function(const struct hcs_object *object, const char *name);

static inline bool hcs_elf_contains(const struct hcs_object *object, const void *address)
{
    return (uintptr_t)address >= object->low && (uintptr_t)address < object->high;
}

#endif
