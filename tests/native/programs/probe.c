/* A program that does with a driver what it is told, line by line, and answers each line with one line: the driver's code
 * first. Compiled once per road: ROAD 'a' links the driver, 'b' finds it by dlopen and dlsym, 'c' by the driver's own
 * lookup. What it speaks is in RUNTIME, one of the probe_*.h beside it. Knows nothing of the interceptor. */
#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <fcntl.h>
#include <unistd.h>

typedef unsigned long long address;

#ifndef ROAD
#error "compile with -DROAD='a', 'b' or 'c'"
#endif
#include RUNTIME

#define F(name, parameters) static int(*p_##name) parameters;
FUNCTIONS
#undef F

#define F(name, parameters) extern int name parameters;
#if ROAD == 'a'
FUNCTIONS
#endif
#undef F

static void find_functions(void)
{
#if ROAD == 'a'
#define F(name, parameters) p_##name = name;
    FUNCTIONS
#undef F
#else
    void *driver = dlopen(DRIVER, RTLD_NOW | RTLD_LOCAL);
    if (driver == NULL) {
        fprintf(stderr, "%s\n", dlerror());
        exit(9);
    }
#if ROAD == 'b'
#define F(name, parameters) p_##name = (int(*) parameters)dlsym(driver, #name);
    FUNCTIONS
#undef F
#else
    void *lookup = begin_lookup(driver);
#define F(name, parameters) p_##name = (int(*) parameters)look_up(lookup, #name);
    FUNCTIONS
#undef F
#endif
#endif
}

enum { MOST = 65536 };
static address held[MOST];
static int holding;

static void answer_allocation(int code, address where)
{
    if (code == 0)
        held[holding++] = where;
    printf("%d\n", code);
}

/* Whether the command is one of the ways to allocate behind a pointer, all of them WAY BYTES. */
static bool allocates(const char *command)
{
    static const char *const ways[] = {WAYS};
    for (size_t way = 0; way < sizeof ways / sizeof *ways; way++)
        if (strcmp(ways[way], command) == 0)
            return true;
    return false;
}

#define COMMANDS
#include RUNTIME

/* race FILE ROUNDS BYTES: allocate and free again and again; FILE holds two counters, of those who hold memory at this
 * moment and the most there ever were. */
static void race(const char *arguments)
{
    char path[512];
    int rounds, won = 0;
    unsigned long long bytes;
    sscanf(arguments, "%511s %d %llu", path, &rounds, &bytes);
    int file = open(path, O_RDWR);
    _Atomic int *shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    for (int round = 0; round < rounds; round++) {
        address where;
        if (allocate("alloc", bytes, &where) != 0) {
            sched_yield();
            continue;
        }
        won++;
        int now = atomic_fetch_add(&shared[0], 1) + 1;
        int most = atomic_load(&shared[1]);
        while (now > most && !atomic_compare_exchange_weak(&shared[1], &most, now)) {
        }
        sched_yield();
        atomic_fetch_sub(&shared[0], 1);
        release(where);
    }
    printf("0 %d\n", won);
}

static void *serve(void *unused)
{
    (void)unused;
    char line[1024];
    while (fgets(line, sizeof line, stdin) != NULL) {
        char command[64] = "";
        int used = 0;
        sscanf(line, "%63s %n", command, &used);
        const char *arguments = line + used;
        unsigned long long number = strtoull(arguments, NULL, 10);
        address where = 0;
        size_t free_bytes = 0, total = 0;
        if (allocates(command)) {
            int code = allocate(command, number, &where);
            answer_allocation(code, where);
        } else if (strcmp(command, "many") == 0) {
            int code = 0, made = 0;
            for (; (unsigned long long)made < number && (code = allocate("alloc", 512, &where)) == 0; made++)
                held[holding++] = where;
            printf("%d %d\n", code, made);
        } else if (strcmp(command, "freeall") == 0) {
            int code = 0;
            while (holding > 0)
                code |= release(held[--holding]);
            printf("%d\n", code);
        } else if (strcmp(command, "free") == 0) {
            printf("%d\n", release(held[number]));
        } else if (strcmp(command, "freeraw") == 0) {
            printf("%d\n", release(number));
        } else if (strcmp(command, "info") == 0) {
            int code = information(&free_bytes, &total);
            printf("%d %zu %zu\n", code, free_bytes, total);
        } else if (strcmp(command, "hold") == 0) {
            for (long left = (long)number; left > 0; left--)
                sched_yield();
            printf("0\n");
        } else if (strcmp(command, "race") == 0) {
            race(arguments);
        } else if (strcmp(command, "rename") == 0) {
            line[strcspn(line, "\n")] = '\0';
            printf("%d\n", prctl(PR_SET_NAME, arguments));
        } else if (strcmp(command, "childalloc") == 0) {
            fflush(stdout);
            pid_t child = fork();
            if (child == 0) {
                _exit(allocate("alloc", number, &where) == 0 ? 0 : 1);
            }
            int status;
            waitpid(child, &status, 0);
            printf("%d\n", WEXITSTATUS(status));
        } else if (!special(command, arguments)) {
            printf("what is %s?\n", command);
        }
        fflush(stdout);
    }
    exit(0);
}

int main(int count, char **arguments)
{
    find_functions();
    if (count > 1 && strcmp(arguments[1], "--leader-leaves") == 0) {
        pthread_t thread;
        pthread_create(&thread, NULL, serve, NULL);
        pthread_exit(NULL);
    }
    serve(NULL);
}
