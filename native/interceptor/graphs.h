/* Memory that graphs own, the same for every runtime that has such graphs.
 *
 * It appears when a graph is made executable or runs, no call tells how much beforehand, and the driver keeps it per
 * device: so the ledger follows what the driver says each device's graphs have reserved. Programs whose graphs own no
 * memory (no allocation node was ever added or captured) pay one load per graph launch.
 */
#ifndef HCS_GRAPHS_H
#define HCS_GRAPHS_H

#include "interceptor.h"

struct hcs_graph_driver {
    uint32_t runtime;
    bool (*reserved)(int ordinal, uint64_t *bytes); /* by graphs of the device, now; false where it cannot say */
    int (*card_of)(int ordinal);
};

/* From now on graphs of this ordinal may own memory. */
void hcs_graphs_mark(const struct hcs_graph_driver *driver, int ordinal);

/* Whether graphs of any device may. */
bool hcs_graphs_own_memory(const struct hcs_graph_driver *driver);

/* Sets the ledger to what graphs have reserved. */
void hcs_graphs_refresh(const struct hcs_graph_driver *driver);

/* True where something that may take more memory must not begin: more is held than the quota allows. */
bool hcs_graphs_refused(const struct hcs_graph_driver *driver);

/* The driver has made an executable graph. */
void hcs_graph_made(const struct hcs_graph_driver *driver, uint64_t executable);

/* Before and after a run: a graph that ran before has its memory; one that never did may take more. */
struct hcs_graph_run {
    bool first;
    bool known;
    bool allowed;
};
struct hcs_graph_run hcs_graph_begin_run(const struct hcs_graph_driver *driver, uint64_t executable);
void hcs_graph_end_run(const struct hcs_graph_driver *driver, uint64_t executable, const struct hcs_graph_run *run,
                       bool ran);

/* Destroying an executable graph: begin, call the driver, end. */
bool hcs_graph_begin_destroy(const struct hcs_graph_driver *driver, uint64_t executable, struct hcs_entry *entry);
void hcs_graph_end_destroy(const struct hcs_graph_driver *driver, bool destroyed, bool known,
                           const struct hcs_entry *entry);

#endif
