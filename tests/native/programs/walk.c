/* A random walk: several processes take and give back memory of one card in every way there is, one step at a time, and
 * after each step the ledger, the card and the quota are compared.
 *
 *     walk LEDGER CARD QUOTA STEPS SEED
 *
 * The workers know the driver's public interface alone. The parent only looks on: it maps ledger and card. It prints
 * "ok STEPS REFUSED KILLED", or what was wrong after which step. */
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../../../native/emulated/card.h"
#include "../../../native/interceptor/ledger.h"

typedef unsigned long long address;

enum { WORKERS = 3, PER_KIND = 24, MI = 1 << 20 };
enum kind { LINEAR, MANAGED, PITCHED, ASYNC, OWN_POOL, PHYSICAL, ARRAY, MIPMAP, MODULE, LIBRARY, GRAPH, CONTEXT, KINDS };

struct order {
    uint32_t action; /* kind to take, KINDS + kind to give back, or one of the below */
    uint32_t size;   /* a random number */
    uint32_t which;
};
enum { SYNCHRONISE = 2 * KINDS, TRIM, INFORMATION, ACTIONS };

struct report {
    int code;
    bool measured;   /* may pass the quota once */
    uint64_t wanted; /* bytes known beforehand, 0 where they are not */
    uint64_t free_bytes;
};

static uint64_t seed;

static uint32_t any(void)
{
    seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17;
    return (uint32_t)(seed >> 16);
}

/* ---- a worker ---------------------------------------------------------------------------------------------------- */

struct props {
    int type, handle_types, location_type, location_id;
    void *pointer;
    size_t most;
    unsigned char reserved[56];
};
struct description {
    size_t width, height, depth;
    int format;
    unsigned channels, flags;
};
struct alloc_node {
    struct props pool;
    const void *access;
    size_t access_count, bytes;
    address where;
};

static void *driver;
static address held[KINDS][PER_KIND];
static int holding[KINDS];
static void *own_pool, *primary;

#ifdef DIRECT /* road (a): the functions are declared by a header that the test writes */
#include DIRECT
#define CALL(name, ...) name(__VA_ARGS__)
#else
#define CALL(name, ...)                                                                                                \
    __extension__({                                                                                                    \
        static int (*function)();                                                                                      \
        if (function == NULL)                                                                                          \
            function = (int (*)())dlsym(driver, #name);                                                                \
        function(__VA_ARGS__);                                                                                         \
    })
#endif

static size_t size_of(uint32_t random)
{
    static const size_t sizes[] = {1, 512, 513, 100000, MI - 1, MI, 2 * MI, 2 * MI + 1, 3 * MI, 5 * MI, 9 * MI};
    return sizes[random % (sizeof sizes / sizeof *sizes)];
}

static uint64_t rounded(uint64_t bytes, uint64_t unit)
{
    return (bytes + unit - 1) / unit * unit;
}

static uint64_t taken(uint64_t bytes)
{
    return rounded(bytes, bytes < MI ? 512 : 2 * MI);
}

static int take(enum kind kind, uint32_t random, struct report *report)
{
    address *where = &held[kind][holding[kind]];
    size_t bytes = size_of(random), pitch;
    size_t side = 64 + random % 512;
    struct props physical = {.type = 1, .location_type = 1};
    struct description wanted = {.width = side, .height = side, .format = 0x20, .channels = 1};
    struct alloc_node node = {.pool = physical, .bytes = bytes};
    char image[64];
    void *graph, *added;
    int code;
    snprintf(image, sizeof image, "emulated module %zu", bytes);
    switch (kind) {
    case LINEAR:
        report->wanted = taken(bytes);
        return CALL(cuMemAlloc_v2, where, bytes);
    case MANAGED:
        report->wanted = taken(bytes);
        return CALL(cuMemAllocManaged, where, bytes, 1U);
    case PITCHED:
        report->wanted = taken(rounded(side, 512) * side);
        return CALL(cuMemAllocPitch_v2, where, &pitch, side, side, 4U);
    case ASYNC:
        report->wanted = rounded(bytes, 2 * MI);
        return CALL(cuMemAllocAsync, where, bytes, NULL);
    case OWN_POOL:
        report->wanted = rounded(bytes, 2 * MI);
        return CALL(cuMemAllocFromPoolAsync, where, bytes, own_pool, NULL);
    case PHYSICAL:
        report->wanted = rounded(bytes, 2 * MI);
        return CALL(cuMemCreate, where, (size_t)report->wanted, &physical, 0ULL);
    case ARRAY:
        return CALL(cuArray3DCreate_v2, where, &wanted);
    case MIPMAP:
        return CALL(cuMipmappedArrayCreate, where, &wanted, 4U);
    case MODULE:
        report->measured = true;
        return CALL(cuModuleLoadData, where, image);
    case LIBRARY:
        report->measured = true;
        return CALL(cuLibraryLoadData, where, image, NULL, NULL, 0U, NULL, NULL, 0U);
    case GRAPH:
        report->measured = true;
        CALL(cuGraphCreate, &graph, 0U);
        CALL(cuGraphAddMemAllocNode, &added, graph, NULL, (size_t)0, &node);
        code = CALL(cuGraphInstantiateWithFlags, where, graph, 0ULL);
        if (code == 0 && (code = CALL(cuGraphLaunch, (void *)(uintptr_t)*where, NULL)) != 0)
            CALL(cuGraphExecDestroy, (void *)(uintptr_t)*where);
        CALL(cuGraphDestroy, graph);
        munmap((void *)(uintptr_t)node.where, rounded(bytes, 2 * MI));
        return code;
    default:
        report->measured = true;
        code = CALL(cuCtxCreate_v2, where, 0U, 0);
        if (code == 0)
            CALL(cuCtxPopCurrent_v2, &added);
        return code;
    }
}

static int give_back(enum kind kind, uint32_t which)
{
    if (holding[kind] == 0)
        return 0;
    address *place = &held[kind][which % (uint32_t)holding[kind]];
    address where = *place;
    void *handle = (void *)(uintptr_t)where;
    *place = held[kind][--holding[kind]];
    switch (kind) {
    case ASYNC:
    case OWN_POOL:
        return which % 2 ? CALL(cuMemFreeAsync, where, NULL) : CALL(cuMemFree_v2, where);
    case PHYSICAL:
        return CALL(cuMemRelease, where);
    case ARRAY:
        return CALL(cuArrayDestroy, handle);
    case MIPMAP:
        return CALL(cuMipmappedArrayDestroy, handle);
    case MODULE:
        return CALL(cuModuleUnload, handle);
    case LIBRARY:
        return CALL(cuLibraryUnload, handle);
    case GRAPH: {
        int code = CALL(cuGraphExecDestroy, handle);
        return code != 0 ? code : CALL(cuDeviceGraphMemTrim, 0);
    }
    case CONTEXT:
        return CALL(cuCtxDestroy_v2, handle);
    default:
        return CALL(cuMemFree_v2, where);
    }
}

static void obey(const struct order *order, struct report *report)
{
    size_t total;
    if (order->action < KINDS) {
        if (holding[order->action] < (order->action == CONTEXT ? 2 : PER_KIND)) {
            report->code = take(order->action, order->size, report);
            holding[order->action] += report->code == 0;
        }
    } else if (order->action < 2 * KINDS) {
        report->code = give_back(order->action - KINDS, order->which);
    } else if (order->action == SYNCHRONISE) {
        report->code = CALL(cuCtxSynchronize);
    } else if (order->action == TRIM) {
        report->code = CALL(cuMemPoolTrimTo, own_pool, (size_t)0);
    } else {
        report->code = CALL(cuMemGetInfo_v2, &report->free_bytes, &total);
    }
}

static void work(int orders, int reports)
{
    struct order order;
    struct props pool = {.type = 1, .location_type = 1};
    driver = dlopen("libcuda.so.1", RTLD_NOW);
    struct report started = {.code = CALL(cuInit, 0U), .measured = true};
    if (started.code == 0)
        started.code = CALL(cuDevicePrimaryCtxRetain, &primary, 0);
    if (started.code == 0)
        started.code = CALL(cuCtxSetCurrent, primary) + CALL(cuMemPoolCreate, &own_pool, &pool);
    write(reports, &started, sizeof started);
    while (read(orders, &order, sizeof order) == sizeof order) {
        struct report report = {0};
        obey(&order, &report);
        write(reports, &report, sizeof report);
    }
    _exit(0);
}

/* ---- the onlooker ------------------------------------------------------------------------------------------------ */

struct worker {
    pid_t pid;
    int orders, reports;
};

static struct worker workers[WORKERS];
static const struct hcs_ledger *ledger;
static const struct hcs_card_file *card;
static uint64_t quota;

static const void *map(const char *path, size_t bytes)
{
    int file = open(path, O_RDONLY);
    const void *memory = mmap(NULL, bytes, PROT_READ, MAP_SHARED, file, 0);
    close(file);
    return memory;
}

static uint64_t ledger_used(void)
{
    return ledger->cards[0].counter & HCS_BYTES_MASK;
}

static uint64_t card_used(void)
{
    return card->counter & HCS_BYTES_MASK;
}

static void hire(struct worker *worker)
{
    int orders[2], reports[2];
    struct report started;
    do { /* a context that would pass the quota is refused: then it is tried again once others have given back */
        if (pipe(orders) != 0 || pipe(reports) != 0)
            exit(3);
        worker->pid = fork();
        if (worker->pid == 0) {
            for (int index = 0; index < WORKERS; index++)
                if (workers[index].orders > 0)
                    close(workers[index].orders);
            close(orders[1]);
            work(orders[0], reports[1]);
        }
        close(orders[0]);
        close(reports[1]);
        worker->orders = orders[1];
        worker->reports = reports[0];
        if (read(worker->reports, &started, sizeof started) != sizeof started)
            exit(4);
    } while (0);
    if (started.code != 0) {
        fprintf(stderr, "a worker could not start: %d\n", started.code);
        exit(5);
    }
}

static struct report tell(struct worker *worker, struct order order)
{
    struct report report = {.code = -1};
    write(worker->orders, &order, sizeof order);
    if (read(worker->reports, &report, sizeof report) != sizeof report)
        report.code = -2;
    return report;
}

/* NULL where all agree. */
static const char *wrong(const struct order *order, const struct report *report, uint64_t before)
{
    uint64_t now = ledger_used();
    if (report->code != 0 && report->code != 2)
        return "an unexpected code";
    if (now != card_used())
        return "ledger and card differ";
    if (now > quota && now > before && !(report->measured && before <= quota))
        return "the quota was passed";
    if (report->code == 2 && report->wanted != 0 && now + report->wanted <= quota)
        return "refused although it would have fitted";
    if (report->code == 2 && report->measured && order->action != GRAPH && now <= quota)
        return "a measured call was refused within the quota";
    if (order->action == INFORMATION && report->free_bytes != (now < quota ? quota - now : 0))
        return "the driver's answer does not agree with the quota";
    return NULL;
}

int main(int count, char **arguments)
{
    if (count != 6)
        return 2;
    quota = strtoull(arguments[3], NULL, 10);
    long steps = strtol(arguments[4], NULL, 10), refused = 0, killed = 0;
    seed = strtoull(arguments[5], NULL, 10) * 2654435761U + 88172645463325252U;
    hire(&workers[0]);
    ledger = map(arguments[1], HCS_LEDGER_BYTES);
    card = map(arguments[2], HCS_CARD_BYTES);
    for (int index = 1; index < WORKERS; index++)
        hire(&workers[index]);
    for (long step = 0; step < steps; step++) {
        struct worker *worker = &workers[any() % WORKERS];
        struct order order = {.action = any() % ACTIONS, .size = any(), .which = any()};
        uint64_t before = ledger_used();
        if (any() % 500 == 0 && before <= quota) { /* and the dead are noticed by the next who asks */
            kill(worker->pid, SIGKILL);
            waitpid(worker->pid, NULL, 0);
            close(worker->orders);
            close(worker->reports);
            struct worker *other = worker == workers ? &workers[1] : workers;
            tell(other, (struct order){.action = INFORMATION});
            hire(worker);
            before = ledger_used();
            killed++;
        }
        struct report report = tell(worker, order);
        refused += report.code == 2;
        const char *problem = wrong(&order, &report, before);
        if (problem != NULL) {
            printf("%s after step %ld: action %u size %u code %d, ledger %llu, card %llu, before %llu, quota %llu\n",
                   problem, step, order.action, order.size, report.code, (unsigned long long)ledger_used(),
                   (unsigned long long)card_used(), (unsigned long long)before, (unsigned long long)quota);
            return 1;
        }
    }
    printf("ok %ld %ld %ld\n", steps, refused, killed);
}
