/* Symbol lookup in loaded objects, see elf.h. */
#include "elf.h"

#include <string.h>

struct visit_state {
    bool (*visit)(const struct hcs_object *, void *);
    void *state;
};

static uintptr_t relocated(uintptr_t base, ElfW(Addr) pointer)
{
    /* glibc relocates these pointers in place; musl and the kernel's vdso leave them relative. */
    return pointer < base ? base + pointer : pointer;
}

static bool read_dynamic(const ElfW(Dyn) *dynamic, struct hcs_object *object)
{
    bool named = false;
    uintptr_t soname_offset = 0;
    for (const ElfW(Dyn) *entry = dynamic; entry->d_tag != DT_NULL; entry++) {
        uintptr_t pointer = relocated(object->base, entry->d_un.d_ptr);
        switch (entry->d_tag) {
        case DT_SYMTAB:
            object->symbols = (const ElfW(Sym) *)pointer; // NOLINT
            break;
        case DT_STRTAB:
            object->strings = (const char *)pointer; // NOLINT
            break;
        case DT_GNU_HASH:
            object->gnu_hash = (const uint32_t *)pointer; // NOLINT
            break;
        case DT_HASH:
            object->sysv_hash = (const uint32_t *)pointer; // NOLINT
            break;
        case DT_SONAME:
            soname_offset = entry->d_un.d_val;
            named = true;
            break;
        default:
            break;
        }
    }
    if (object->symbols == NULL || object->strings == NULL)
        return false;
    object->soname = named ? object->strings + soname_offset : "";
    return true;
}

bool hcs_elf_of_link_map(const struct link_map *map, struct hcs_object *object)
{
    memset(object, 0, sizeof *object);
    object->base = map->l_addr;
    return map->l_ld != NULL && read_dynamic(map->l_ld, object);
}

static bool describe(const struct dl_phdr_info *info, struct hcs_object *object)
{
    const ElfW(Dyn) *dynamic = NULL;
    memset(object, 0, sizeof *object);
    object->base = info->dlpi_addr;
    object->low = UINTPTR_MAX;
    for (int index = 0; index < info->dlpi_phnum; index++) {
        const ElfW(Phdr) *header = &info->dlpi_phdr[index];
        if (header->p_type == PT_DYNAMIC)
            dynamic = (const ElfW(Dyn) *)(info->dlpi_addr + header->p_vaddr); // NOLINT
        if (header->p_type != PT_LOAD)
            continue;
        uintptr_t start = info->dlpi_addr + header->p_vaddr;
        if (start < object->low)
            object->low = start;
        if (start + header->p_memsz > object->high)
            object->high = start + header->p_memsz;
    }
    return dynamic != NULL && read_dynamic(dynamic, object);
}

static int visit_one(struct dl_phdr_info *info, size_t size, void *state)
{
    (void)size;
    struct visit_state *visiting = state;
    struct hcs_object object;
    return describe(info, &object) && visiting->visit(&object, visiting->state);
}

bool hcs_elf_visit(bool (*visit)(const struct hcs_object *object, void *state), void *state)
{
    struct visit_state visiting = {.visit = visit, .state = state};
    return dl_iterate_phdr(visit_one, &visiting) != 0;
}

static void *address_if_function(const struct hcs_object *object, uint32_t index, const char *name)
{
    const ElfW(Sym) *symbol = &object->symbols[index];
    if (symbol->st_shndx == SHN_UNDEF || ELF64_ST_TYPE(symbol->st_info) != STT_FUNC)
        return NULL;
    if (strcmp(object->strings + symbol->st_name, name) != 0)
        return NULL;
    return (void *)(object->base + symbol->st_value); // NOLINT
}

static void *find_by_gnu_hash(const struct hcs_object *object, const char *name)
{
    uint32_t hash = 5381;
    for (const unsigned char *letter = (const unsigned char *)name; *letter; letter++)
        hash = hash * 33 + *letter;
    uint32_t buckets = object->gnu_hash[0];
    uint32_t first_symbol = object->gnu_hash[1];
    uint32_t bloom_words = object->gnu_hash[2];
    const uint32_t *bucket = object->gnu_hash + 4 + bloom_words * (sizeof(ElfW(Addr)) / sizeof(uint32_t));
    const uint32_t *chain = bucket + buckets;
    if (buckets == 0)
        return NULL;
    uint32_t index = bucket[hash % buckets];
    if (index < first_symbol)
        return NULL;
    for (;; index++) {
        uint32_t stored = chain[index - first_symbol];
        if ((stored | 1) == (hash | 1)) {
            void *address = address_if_function(object, index, name);
            if (address != NULL)
                return address;
        }
        if (stored & 1)
            return NULL;
    }
}

static void *find_by_sysv_hash(const struct hcs_object *object, const char *name)
{
    uint32_t symbols = object->sysv_hash[1];
    for (uint32_t index = 1; index < symbols; index++) {
        void *address = address_if_function(object, index, name);
        if (address != NULL)
            return address;
    }
    return NULL;
}

void *hcs_elf_function(const struct hcs_object *object, const char *name)
{
    if (object->gnu_hash != NULL)
        return find_by_gnu_hash(object, name);
    return object->sysv_hash != NULL ? find_by_sysv_hash(object, name) : NULL;
}
