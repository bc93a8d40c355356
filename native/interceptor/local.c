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

/* Where on the stack the outermost hook of this thread was entered; 0 outside of hooks. A call from further up than that
 * means that the hook was never left: a signal handler jumped out of it. So a thread is not out of sight for good. */
static _Thread_local uintptr_t entered __attribute__((tls_model("initial-exec")));

__attribute__((noinline)) bool hcs_enter(void)
{
    uintptr_t here = (uintptr_t)__builtin_frame_address(0);
    if (entered != 0 && here < entered)
        return false;
    entered = here;
    return true;
}

void hcs_leave(void)
{
    entered = 0;
}
