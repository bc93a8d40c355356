/* Allocations sorted by address, so that pointers into the middle are found. See memory.h. */
#include "memory.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { PAGE = 4096, LARGEST_FROM_HEAP = 65536 };

/* Small pieces come from the heap: mapping one is a hundred times the cost of everything else here. */
static void *get(uint64_t mapped)
{
    if (mapped <= LARGEST_FROM_HEAP)
        return aligned_alloc(PAGE, mapped);
    void *memory = mmap(NULL, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return memory != MAP_FAILED ? memory : NULL;
}

static void put(uint64_t address, uint64_t mapped)
{
    void *memory = (void *)(uintptr_t)address; // NOLINT
    if (mapped <= LARGEST_FROM_HEAP)
        free(memory);
    else
        munmap(memory, mapped);
}

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct hcs_allocation *allocations;
static size_t count;
static size_t room;

/* Index of the first allocation that starts after the address. */
static size_t after(uint64_t address)
{
    size_t low = 0, high = count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (allocations[middle].address <= address)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static void remove_at(size_t index, struct hcs_allocation *removed)
{
    *removed = allocations[index];
    memmove(&allocations[index], &allocations[index + 1], (count - index - 1) * sizeof *allocations);
    count--;
    put(removed->address, removed->mapped);
}

bool hcs_memory_allocate(uint64_t bytes, uint64_t charged, uint32_t card, const void *owner, uint64_t *address)
{
    uint64_t most = bytes > charged ? bytes : charged; /* memory of a peer is not charged */
    uint64_t mapped = (most + PAGE - 1) / PAGE * PAGE;
    pthread_mutex_lock(&lock);
    bool fits = true;
    if (count == room) {
        size_t wanted = room ? room * 2 : 64;
        struct hcs_allocation *bigger = realloc(allocations, wanted * sizeof *bigger);
        fits = bigger != NULL;
        if (fits) {
            allocations = bigger;
            room = wanted;
        }
    }
    void *memory = fits ? get(mapped) : NULL;
    if (memory != NULL) {
        *address = (uint64_t)(uintptr_t)memory;
        size_t index = after(*address);
        memmove(&allocations[index + 1], &allocations[index], (count - index) * sizeof *allocations);
        allocations[index] = (struct hcs_allocation){.address = *address,
                                                     .bytes = bytes,
                                                     .charged = charged,
                                                     .mapped = mapped,
                                                     .card = card,
                                                     .owner = owner};
        count++;
    }
    pthread_mutex_unlock(&lock);
    return memory != NULL;
}

bool hcs_memory_free(uint64_t address, struct hcs_allocation *freed)
{
    pthread_mutex_lock(&lock);
    size_t index = after(address);
    bool found = index > 0 && allocations[index - 1].address == address;
    if (found)
        remove_at(index - 1, freed);
    pthread_mutex_unlock(&lock);
    return found;
}

bool hcs_memory_free_owned(const void *owner, struct hcs_allocation *freed)
{
    bool found = false;
    pthread_mutex_lock(&lock);
    for (size_t index = 0; index < count && !found; index++) {
        found = allocations[index].owner == owner;
        if (found)
            remove_at(index, freed);
    }
    pthread_mutex_unlock(&lock);
    return found;
}

bool hcs_memory_find(uint64_t address, uint64_t bytes, struct hcs_allocation *found)
{
    pthread_mutex_lock(&lock);
    size_t index = after(address);
    bool holds = index > 0;
    if (holds) {
        *found = allocations[index - 1];
        uint64_t offset = address - found->address;
        holds = offset <= found->bytes && bytes <= found->bytes - offset;
    }
    pthread_mutex_unlock(&lock);
    return holds;
}
