/* A virtual DCU, as an emulated card keeps to it: the record that Hygon's runtime reads, /etc/vdev/docker/vdev0.conf, below
 * HCS_ROOT. What the record must be is in src/hcs/inject/vdcu.py, with its sources; one that is not so leaves the container
 * without a device. */
#ifndef HCS_VDCU_H
#define HCS_VDCU_H

#include <stdbool.h>
#include <stdint.h>

struct hcs_vdcu {
    char bus_id[32];
    uint64_t bytes;
    int compute_units;
    int pipe;
};

enum hcs_vdcu_state { HCS_VDCU_NONE, HCS_VDCU_GOOD, HCS_VDCU_BAD };

/* Whether the container has a record, and a good one. */
enum hcs_vdcu_state hcs_vdcu_read(struct hcs_vdcu *found);

#endif
