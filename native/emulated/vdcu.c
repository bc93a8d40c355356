/* Reads a virtual DCU's record, see vdcu.h. */
#include "vdcu.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool parse(FILE *file, struct hcs_vdcu *found)
{
    unsigned long long low, high, mebibytes;
    int count, device, number, enabled, end = 0;
    int fields = fscanf(file,
                        "PciBusId: %31s\ncu_mask: 0x%llx\ncu_mask: 0x%llx\ncu_count: %d\nmem: %llu MiB\n"
                        "device_id: %d\nvdev_id: %d\npipe_id: %d\nenable: %d\n%n",
                        found->bus_id, &low, &high, &count, &mebibytes, &device, &number, &found->pipe, &enabled, &end);
    if (fields != 9 || end == 0 || number != 0 || enabled != 1 || found->pipe < 0 || mebibytes == 0)
        return false;
    found->bytes = mebibytes << 20;
    found->compute_units = __builtin_popcountll(low) + __builtin_popcountll(high);
    return found->compute_units == count && count > 0;
}

enum hcs_vdcu_state hcs_vdcu_read(struct hcs_vdcu *found)
{
    const char *root = getenv("HCS_ROOT");
    char path[4096];
    snprintf(path, sizeof path, "%s/etc/vdev/docker/vdev0.conf", root != NULL ? root : "");
    FILE *file = root != NULL ? fopen(path, "r") : NULL;
    if (file == NULL)
        return HCS_VDCU_NONE;
    bool good = parse(file, found);
    fclose(file);
    return good ? HCS_VDCU_GOOD : HCS_VDCU_BAD;
}
