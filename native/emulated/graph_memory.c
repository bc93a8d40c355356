/* Graphs that own memory, see graph_memory.h. */
#include "graph_memory.h"

#include <pthread.h>
#include <sys/mman.h>

#include "card.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static uint64_t reserved[HCS_MAX_CARDS];
static uint64_t unused[HCS_MAX_CARDS];

bool hcs_graph_allocate(struct hcs_graph *graph, int device, uint64_t bytes, uint64_t granule, uint64_t *address)
{
    uint64_t taken = (bytes + granule - 1) / granule * granule;
    if (bytes == 0 || taken < bytes)
        return false;
    void *memory = mmap(NULL, taken, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED)
        return false;
    graph->device = device;
    graph->bytes += taken;
    graph->nodes++;
    *address = (uint64_t)(uintptr_t)memory;
    return true;
}

struct hcs_graph_exec hcs_graph_executable(const struct hcs_graph *graph)
{
    return (struct hcs_graph_exec){.device = graph->device, .bytes = graph->bytes};
}

bool hcs_graph_back(struct hcs_graph_exec *executable, bool (*take)(int device, uint64_t bytes))
{
    if (executable->bytes == 0)
        return true;
    pthread_mutex_lock(&lock);
    if (!executable->backed) {
        uint64_t *spare = &unused[executable->device];
        uint64_t fresh = executable->bytes > *spare ? executable->bytes - *spare : 0;
        if (take(executable->device, fresh)) {
            reserved[executable->device] += fresh;
            *spare -= executable->bytes - fresh;
            executable->backed = true;
        }
    }
    pthread_mutex_unlock(&lock);
    return executable->backed;
}

void hcs_graph_abandon(const struct hcs_graph_exec *executable)
{
    pthread_mutex_lock(&lock);
    if (executable->backed)
        unused[executable->device] += executable->bytes;
    pthread_mutex_unlock(&lock);
}

void hcs_graph_trim(int device, void (*give_back)(int device, uint64_t bytes))
{
    pthread_mutex_lock(&lock);
    give_back(device, unused[device]);
    reserved[device] -= unused[device];
    unused[device] = 0;
    pthread_mutex_unlock(&lock);
}

uint64_t hcs_graph_reserved(int device)
{
    pthread_mutex_lock(&lock);
    uint64_t bytes = reserved[device];
    pthread_mutex_unlock(&lock);
    return bytes;
}

uint64_t hcs_graph_used(int device)
{
    pthread_mutex_lock(&lock);
    uint64_t bytes = reserved[device] - unused[device];
    pthread_mutex_unlock(&lock);
    return bytes;
}
