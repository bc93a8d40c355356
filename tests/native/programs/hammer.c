/* Many threads take and give back memory of known size as fast as they can. Beside them one looks at ledger and card all
 * the time. Prints the codes it met, the most it saw in the ledger and on the card.
 *
 *     hammer LEDGER CARD THREADS ROUNDS */
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "../../../native/emulated/card.h"
#include "../../../native/interceptor/ledger.h"

typedef unsigned long long address;

static int (*allocate)(address *, size_t), (*release)(address), (*set_current)(void *);
static int (*allocate_async)(address *, size_t, void *), (*release_async)(address, void *);
static int (*create)(address *, size_t, const void *, unsigned long long), (*drop)(address);
static void *context;
static long rounds;
static _Atomic int running;
static _Atomic long granted, refused, other;

static void count(int code)
{
    atomic_fetch_add(code == 0 ? &granted : code == 2 ? &refused : &other, 1);
}

static void *hammer(void *number)
{
    static const size_t sizes[] = {512, 1 << 20, 2 << 20, 3 << 20, 7 << 20};
    struct {
        int type, handles, location_type, location;
        void *pointer;
        char flags[8];
    } properties = {.type = 1, .location_type = 1};
    set_current(context);
    for (long round = 0; round < rounds; round++) {
        address linear = 0, pooled = 0, physical = 0;
        size_t bytes = sizes[(round + (long)(size_t)number) % 5];
        int first = allocate(&linear, bytes), second = allocate_async(&pooled, bytes, NULL);
        int third = create(&physical, 2 << 20, &properties, 0);
        count(first), count(second), count(third);
        if (first == 0)
            count(release(linear));
        if (second == 0)
            count(release_async(pooled, NULL));
        if (third == 0)
            count(drop(physical));
    }
    atomic_fetch_sub(&running, 1);
    return NULL;
}

#ifdef DIRECT /* road (a) */
#include DIRECT
#define FIND(name) name
#else
#define FIND(name) dlsym(driver, #name)
#endif

int main(int argument_count, char **arguments)
{
    if (argument_count != 5)
        return 2;
#ifndef DIRECT
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
#endif
    allocate = (int (*)(address *, size_t))FIND(cuMemAlloc_v2);
    release = (int (*)(address))FIND(cuMemFree_v2);
    allocate_async = (int (*)(address *, size_t, void *))FIND(cuMemAllocAsync);
    release_async = (int (*)(address, void *))FIND(cuMemFreeAsync);
    create = (int (*)(address *, size_t, const void *, unsigned long long))FIND(cuMemCreate);
    drop = (int (*)(address))FIND(cuMemRelease);
    set_current = (int (*)(void *))FIND(cuCtxSetCurrent);
    ((int (*)(unsigned))FIND(cuInit))(0);
    ((int (*)(void **, int))FIND(cuDevicePrimaryCtxRetain))(&context, 0);
    set_current(context);
    const struct hcs_ledger *ledger =
        mmap(NULL, HCS_LEDGER_BYTES, PROT_READ, MAP_SHARED, open(arguments[1], O_RDONLY), 0);
    const struct hcs_card_file *card = mmap(NULL, HCS_CARD_BYTES, PROT_READ, MAP_SHARED, open(arguments[2], O_RDONLY), 0);
    enum { MOST_THREADS = 128 };
    pthread_t threads[MOST_THREADS];
    int wanted = atoi(arguments[3]) < MOST_THREADS ? atoi(arguments[3]) : MOST_THREADS;
    rounds = atol(arguments[4]);
    atomic_store(&running, wanted);
    for (int index = 0; index < wanted; index++)
        pthread_create(&threads[index], NULL, hammer, (void *)(size_t)index);
    unsigned long long most = 0, most_on_card = 0;
    while (atomic_load(&running) > 0) {
        unsigned long long seen = ledger->cards[0].counter & HCS_BYTES_MASK, there = card->counter & HCS_BYTES_MASK;
        most = seen > most ? seen : most;
        most_on_card = there > most_on_card ? there : most_on_card;
        sched_yield();
    }
    for (int index = 0; index < wanted; index++)
        pthread_join(threads[index], NULL);
    ((int (*)(void))FIND(cuCtxSynchronize))();
    printf("%ld %ld %ld %llu %llu\n", granted, refused, other, most, most_on_card);
}
