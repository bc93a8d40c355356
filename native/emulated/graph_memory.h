/* Graphs that own memory, for every emulated runtime that has them. An executable graph takes its memory when it is first
 * uploaded or launched; when it is destroyed the memory stays with the device until that is trimmed. */
#ifndef HCS_GRAPH_MEMORY_H
#define HCS_GRAPH_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct hcs_graph {
    int device;
    uint64_t bytes; /* of its allocation nodes */
    uint32_t nodes;
};

struct hcs_graph_exec {
    int device;
    uint64_t bytes;
    bool backed;
};

/* Adds a node that allocates; the address is good when the graph has run. False for no bytes, or no address space. */
bool hcs_graph_allocate(struct hcs_graph *graph, int device, uint64_t bytes, uint64_t granule, uint64_t *address);

struct hcs_graph_exec hcs_graph_executable(const struct hcs_graph *graph);

/* Gives an executable graph its memory, with what the device keeps for nobody first; false where the card is full. */
bool hcs_graph_back(struct hcs_graph_exec *executable, bool (*take)(int device, uint64_t bytes));

/* Its memory stays with the device. */
void hcs_graph_abandon(const struct hcs_graph_exec *executable);

/* Gives back what the device keeps for nobody. */
void hcs_graph_trim(int device, void (*give_back)(int device, uint64_t bytes));

uint64_t hcs_graph_reserved(int device);
uint64_t hcs_graph_used(int device);

#endif
