/* Road (b): programs that look the driver up by name.
 *
 * A name that is not ours goes to the real dlsym by a tail call, so that glibc sees the true caller's return address:
 * RTLD_NEXT and RTLD_DEFAULT mean what they meant without us. (This file is compiled with sibling-call optimisation,
 * and a test fails without it.) A name of ours is looked up honestly first; the answer is replaced only if it is
 * exactly a hooked function inside a driver library.
 *
 * The real dlsym is found by reading libc's symbol table: dlvsym, the usual way, is interposed here as well, and
 * needs a list of glibc versions that ages.
 */
#include "dlsym.h"

#include <dlfcn.h>
#include <link.h>
#include <stdatomic.h>
#include <string.h>

#include "elf.h"
#include "interceptor.h"

typedef void *(*dlsym_function)(void *, const char *);
typedef void *(*dlvsym_function)(void *, const char *, const char *);
typedef void *(*dlopen_function)(const char *, int);
typedef void *(*dlmopen_function)(Lmid_t, const char *, int);

typedef int (*dlclose_function)(void *);

enum { REAL_DLSYM, REAL_DLVSYM, REAL_DLOPEN, REAL_DLMOPEN, REAL_DLCLOSE, REALS };
static const char *const real_names[REALS] = {"dlsym", "dlvsym", "dlopen", "dlmopen", "dlclose"};
static _Atomic(void *) reals[REALS];

static bool take_from_libc(const struct hcs_object *object, void *state)
{
    (void)state;
    /* libdl.so.2 before glibc 2.34, libc.so.6 since; musl keeps them in its one library. */
    if (strncmp(object->soname, "libc.", 5) != 0 && strncmp(object->soname, "libdl.", 6) != 0)
        return false;
    for (int index = 0; index < REALS; index++) {
        void *address = hcs_elf_function(object, real_names[index]);
        if (address != NULL)
            atomic_store(&reals[index], address);
    }
    return false;
}

static void *real_loader(int index)
{
    void *address = atomic_load_explicit(&reals[index], memory_order_acquire);
    if (address == NULL) {
        hcs_elf_visit(take_from_libc, NULL);
        address = atomic_load(&reals[index]);
    }
    return address;
}

void *hcs_next_after_us(const char *name)
{
    dlsym_function real = (dlsym_function)real_loader(REAL_DLSYM);
    void *address = real != NULL ? real(RTLD_NEXT, name) : NULL;
    __asm__ volatile("" : "+r"(address)); /* not a tail call: RTLD_NEXT must see this library as the caller */
    return address;
}

/* Where a pseudo-handle's search ends for a hooked name. */
struct search {
    const char *name;
    const void *caller; /* RTLD_NEXT: start after the object holding this address */
    const void *skip;   /* RTLD_DEFAULT: pass over the object holding this address */
    bool started;
    void *found;
};

static bool search_object(const struct hcs_object *object, void *state)
{
    struct search *search = state;
    if (!search->started) {
        search->started = hcs_elf_contains(object, search->caller);
        return false;
    }
    if (search->skip != NULL && hcs_elf_contains(object, search->skip))
        return false;
    search->found = hcs_elf_function(object, search->name);
    return search->found != NULL;
}

static void *search_loaded(void *handle, const char *name, const void *caller)
{
    struct search search = {.name = name, .caller = caller};
    if (handle == RTLD_DEFAULT) {
        search.started = true;
        search.skip = (const void *)search_object;
    }
    hcs_elf_visit(search_object, &search);
    if (search.found != NULL)
        return search.found;
    return hcs_next_after_us(name); /* NULL, with dlerror() set */
}

HCS_EXPORT void *dlsym(void *restrict handle, const char *restrict name);
HCS_EXPORT void *dlvsym(void *restrict handle, const char *restrict name, const char *restrict version);
HCS_EXPORT void *dlopen(const char *path, int flags);
HCS_EXPORT void *dlmopen(Lmid_t name_space, const char *path, int flags);

/* The loader's functions that are interposed, as they are named; whoever has libc's own finds the driver's own. */
static bool is_loader(const char *name)
{
    return strcmp(name, "dlsym") == 0 || strcmp(name, "dlvsym") == 0 || strcmp(name, "dlopen") == 0 ||
           strcmp(name, "dlmopen") == 0;
}

/* libc may have several functions of one name, one for each version of it: they are told by where they lie. */
struct within_libc {
    const void *address;
    bool found;
};

static bool find_in_libc(const struct hcs_object *object, void *state)
{
    struct within_libc *within = state;
    within->found = (strncmp(object->soname, "libc.", 5) == 0 || strncmp(object->soname, "libdl.", 6) == 0) &&
                    hcs_elf_contains(object, within->address);
    return within->found;
}

static void *exchanged_loader(const char *name, void *address)
{
    struct within_libc within = {.address = address};
    if (address == NULL || !hcs_elf_visit(find_in_libc, &within))
        return address;
    return strcmp(name, "dlsym") == 0    ? (void *)dlsym    // NOLINT
           : strcmp(name, "dlvsym") == 0 ? (void *)dlvsym   // NOLINT
           : strcmp(name, "dlopen") == 0 ? (void *)dlopen   // NOLINT
                                         : (void *)dlmopen; // NOLINT
}

/* Ours in the place of what was found, if that is a driver's. The driver may have been loaded a moment ago. */
static void *exchanged(const char *name, void *address)
{
    if (is_loader(name))
        return exchanged_loader(name, address);
    void *ours = hcs_substitute(address);
    if (ours != address || address == NULL)
        return ours;
    hcs_refresh_symbols();
    return hcs_substitute(address);
}

/* Stand-ins for the real functions for names that are ours; entered by tail calls as well. */
static void *hooked_dlsym(void *handle, const char *name)
{
    const void *caller = __builtin_return_address(0);
    void *address;
    if (handle == RTLD_NEXT || handle == RTLD_DEFAULT) {
        address = search_loaded(handle, name, caller);
    } else {
        dlsym_function real = (dlsym_function)real_loader(REAL_DLSYM);
        address = real(handle, name);
    }
    return exchanged(name, address);
}

static void *hooked_dlvsym(void *handle, const char *name, const char *version)
{
    const void *caller = __builtin_return_address(0);
    void *address;
    if (handle == RTLD_NEXT || handle == RTLD_DEFAULT) {
        address = search_loaded(handle, name, caller);
    } else {
        dlvsym_function real = (dlvsym_function)real_loader(REAL_DLVSYM);
        address = real(handle, name, version);
    }
    return exchanged(name, address);
}

static void *no_dlsym(void *handle, const char *name)
{
    (void)handle, (void)name;
    return NULL;
}

static void *no_dlvsym(void *handle, const char *name, const char *version)
{
    (void)handle, (void)name, (void)version;
    return NULL;
}

static bool is_ours(const char *name)
{
    if (name == NULL || !(hcs_is_hooked(name) || is_loader(name)))
        return false;
    if (hcs_mode() != HCS_MODE_PASS_THROUGH)
        return true;
    if (!is_loader(name))
        hcs_announce_problem(); /* this way nothing of ours is entered again */
    return false;
}

HCS_EXPORT void *dlsym(void *restrict handle, const char *restrict name)
{
    dlsym_function function = (dlsym_function)real_loader(REAL_DLSYM);
    if (function == NULL)
        function = no_dlsym;
    else if (is_ours(name))
        function = hooked_dlsym;
    return function(handle, name);
}

HCS_EXPORT void *dlvsym(void *restrict handle, const char *restrict name, const char *restrict version)
{
    dlvsym_function function = (dlvsym_function)real_loader(REAL_DLVSYM);
    if (function == NULL)
        function = no_dlvsym;
    else if (is_ours(name))
        function = hooked_dlvsym;
    return function(handle, name, version);
}

/* A plug-in opened with RTLD_DEEPBIND binds past us, to libc's own dlsym. The flag is taken away where a quota
 * holds. */
static int allowed_flags(int flags)
{
    return hcs_mode() == HCS_MODE_PASS_THROUGH ? flags : flags & ~RTLD_DEEPBIND;
}

HCS_EXPORT void *dlopen(const char *path, int flags)
{
    dlopen_function function = (dlopen_function)real_loader(REAL_DLOPEN);
    if (function == NULL)
        return NULL;
    flags = allowed_flags(flags);
    return function(path, flags); /* a tail call: the caller's RUNPATH and namespace decide where to look */
}

static bool names_driver(const char *path)
{
    const char *slash = path != NULL ? strrchr(path, '/') : NULL;
    return path != NULL && hcs_is_driver(slash != NULL ? slash + 1 : path);
}

/* Whether the objects that were loaded with this one, in a namespace of its own, have a driver among them. */
static bool brought_driver(void *handle)
{
    struct link_map *map = handle;
    struct hcs_object object;
    while (map->l_prev != NULL)
        map = map->l_prev;
    for (; map != NULL; map = map->l_next)
        if (hcs_elf_of_link_map(map, &object) && hcs_is_driver(object.soname))
            return true;
    return false;
}

/* A driver in a namespace of its own would be out of our sight. One that is asked for by name is the one that all
 * share; a library that brings one is refused. */
static void *open_elsewhere(dlmopen_function function, Lmid_t name_space, const char *path, int flags)
{
    dlopen_function open_here = (dlopen_function)real_loader(REAL_DLOPEN);
    dlclose_function close_again = (dlclose_function)real_loader(REAL_DLCLOSE);
    if (open_here == NULL || close_again == NULL)
        return NULL;
    if (names_driver(path))
        return open_here(path, flags);
    void *handle = function(name_space, path, flags);
    if (handle == NULL || !brought_driver(handle))
        return handle;
    close_again(handle);
    return open_here("[a driver in a namespace of its own would not keep to the quota]", RTLD_NOW); /* for dlerror() */
}

HCS_EXPORT void *dlmopen(Lmid_t name_space, const char *path, int flags)
{
    dlmopen_function function = (dlmopen_function)real_loader(REAL_DLMOPEN);
    if (function == NULL)
        return NULL;
    flags = allowed_flags(flags);
    if (name_space != LM_ID_BASE && hcs_mode() != HCS_MODE_PASS_THROUGH)
        return open_elsewhere(function, name_space, path, flags);
    return function(name_space, path, flags);
}
