/* The state of this process that must not survive fork(): its slot, its table of addresses, what it learned of
 * cards. */
#include <stdatomic.h>
#include <sys/mman.h>

#include "interceptor.h"

static _Atomic(struct hcs_local *) local;

struct hcs_local *hcs_local(void)
{
    struct hcs_local *state = atomic_load_explicit(&local, memory_order_acquire);
    if (state != NULL)
        return state;
    struct hcs_local *fresh = hcs_map_wiped_on_fork(sizeof *fresh);
    if (fresh == NULL)
        return NULL;
    if (atomic_compare_exchange_strong(&local, &state, fresh))
        return fresh;
    munmap(fresh, sizeof *fresh); /* another thread was first */
    return state;
}

static _Thread_local int depth __attribute__((tls_model("initial-exec")));

bool hcs_enter(void)
{
    if (depth > 0)
        return false;
    depth++;
    return true;
}

void hcs_leave(void)
{
    depth--;
}
