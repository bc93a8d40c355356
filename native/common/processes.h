/* Who a process is, and whether it still lives.
 *
 * A pid alone names nobody: it is reused. A pid with its start time (field 22 of /proc/PID/stat, clock ticks since
 * boot) and its pid namespace names one process for ever. Used by every shared file in which processes own slots.
 */
#ifndef HCS_PROCESSES_H
#define HCS_PROCESSES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct hcs_process {
    uint32_t pid;
    uint64_t start_time;    /* clock ticks since boot; 0 where /proc cannot be read */
    uint64_t pid_namespace; /* inode of /proc/self/ns/pid; 0 where it cannot be read */
};

/* The calling process. Never fails; what cannot be read is 0. */
struct hcs_process hcs_process_self(void);

/* False only when the process is certainly gone: no such pid, another start time, or a zombie without threads.
 * A process of another pid namespace cannot be judged from here and counts as alive. */
bool hcs_process_alive(const struct hcs_process *process, uint64_t own_namespace);

/* Reads state, thread count and start time from the text of /proc/PID/stat. The name in it may hold blanks and
 * parentheses, so fields are counted after the LAST ')'. False where the text is not such a line. */
bool hcs_process_parse_stat(const char *text, size_t length, char *state, uint64_t *threads, uint64_t *start_time);

#endif
