/* Quota file and ledger put together: how much this container may still take of a card.
 *
 * Everything is done lazily. A program that never looks up a driver function reads no file; one that never allocates
 * device memory maps no ledger. The initialisers remember the pid that runs them, so that a child forked in the middle
 * does them again instead of waiting for a thread it does not have.
 */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../common/account.h"
#include "interceptor.h"
#include "ledger.h"
#include "limits.h"
#include "pools.h"

/* Where the node agent mounts the file. Only a build for tests sets another path; nothing at run time can. */
#ifndef HCS_QUOTA_PATH
#define HCS_QUOTA_PATH "/etc/hcs/quota"
#endif

/* Where /etc/hcs is not there: lets a program run without a limit when its quota file is missing or broken. On a node the
 * same is said by a file of this name in the quota file's directory, which the container cannot write. */
#define FAIL_OPEN_VARIABLE "HCS_QUOTA_FAIL_OPEN"
#define FAIL_OPEN_FILE "fail-open"

enum { PATH_BYTES = 4096 };

static char quota_path[PATH_BYTES];
static struct hcs_quota quota;
static const char *problem; /* why everything is refused */
static enum hcs_mode mode;
static bool fails_open;

static struct hcs_ledger *ledger;
static struct hcs_account account;
static bool ledger_usable;

static _Atomic uint64_t limits[HCS_QUOTA_MAX_CARDS];
static _Atomic uint64_t context_overheads[HCS_QUOTA_MAX_CARDS];
static _Atomic uint64_t seen_counter; /* the ledger's quota_counter when the file was last read */
static _Atomic bool file_broken;      /* the file became unreadable while we ran */

/* ---- doing things once ------------------------------------------------------------------------------------------ */

enum { ONCE_AGAIN = 0, ONCE_DONE = 1, ONCE_BUSY = 2, ONCE_PID_SHIFT = 8 };

/* Whether what could not be had may be there later: files are all in use, or memory, or the disk is full. Then the next
 * call tries again, instead of refusing until the program ends. */
static bool may_pass(int error)
{
    return error == EMFILE || error == ENFILE || error == ENOMEM || error == EINTR || error == ENOSPC || error == EDQUOT;
}

/* True for the one caller that must do the work and then store ONCE_DONE; others wait for it. */
static bool begin_once(_Atomic uint64_t *once)
{
    uint64_t state = atomic_load_explicit(once, memory_order_acquire);
    if (state == ONCE_DONE)
        return false;
    uint64_t mine = ((uint64_t)getpid() << ONCE_PID_SHIFT) | ONCE_BUSY;
    for (;;) {
        if (state == ONCE_DONE)
            return false;
        if (state != mine && atomic_compare_exchange_weak(once, &state, mine))
            return true;
        sched_yield();
        state = atomic_load(once);
    }
}

/* ---- the quota file --------------------------------------------------------------------------------------------- */

/* Static, not on the stack: programs call us on threads with small stacks. Guarded by the two users' own locks. */
static char file_text[HCS_QUOTA_MAX_BYTES + 1];

static const char *read_quota(int file, struct hcs_quota *out)
{
    size_t length = 0;
    while (length < sizeof file_text) {
        ssize_t got = read(file, file_text + length, sizeof file_text - length);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return "the quota file cannot be read";
        if (got == 0)
            break;
        length += (size_t)got;
    }
    if (length > HCS_QUOTA_MAX_BYTES)
        return "the quota file is longer than 16 KiB";
    return hcs_quota_parse(file_text, length, out);
}

static const char *parse_at(const char *path, struct hcs_quota *out)
{
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return "the quota file cannot be opened";
    const char *reason = read_quota(file, out);
    close(file);
    return reason;
}

static void publish_limits(const struct hcs_quota *from)
{
    for (uint32_t card = 0; card < from->card_count; card++) {
        atomic_store(&limits[card], from->cards[card].quota_bytes);
        atomic_store(&context_overheads[card], from->cards[card].context_bytes);
    }
}

static size_t directory_length(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash != NULL ? (size_t)(slash - path) + 1 : 0;
}

/* Whether a file lies beside the fixed quota file. */
static bool is_beside_fixed(const char *name)
{
    char path[sizeof HCS_QUOTA_PATH + sizeof FAIL_OPEN_FILE];
    size_t length = directory_length(HCS_QUOTA_PATH);
    memcpy(path, HCS_QUOTA_PATH, length);
    memcpy(path + length, name, strlen(name) + 1);
    return access(path, F_OK) == 0;
}

static const char *open_quota(int *file)
{
    const char *path = HCS_QUOTA_PATH;
    *file = open(path, O_RDONLY | O_CLOEXEC);
    bool fixed = true;
    if (*file < 0 && (errno == ENOENT || errno == ENOTDIR) && !is_beside_fixed("")) {
        fixed = false;
        path = secure_getenv("HCS_QUOTA_FILE");
        if (path == NULL)
            path = "";
        if (path[0] != '\0')
            *file = open(path, O_RDONLY | O_CLOEXEC);
    }
    const char *choice = fixed ? NULL : secure_getenv(FAIL_OPEN_VARIABLE);
    fails_open = fixed ? is_beside_fixed(FAIL_OPEN_FILE) : choice != NULL && strcmp(choice, "1") == 0;
    if (strlen(path) >= sizeof quota_path)
        return "the quota file's path is too long";
    memcpy(quota_path, path, strlen(path) + 1);
    if (path[0] == '\0')
        return "there is no quota file: neither " HCS_QUOTA_PATH " nor HCS_QUOTA_FILE names one";
    return *file < 0 ? "the quota file cannot be opened" : NULL;
}

static void load_quota(void)
{
    int file = -1;
    problem = open_quota(&file);
    if (problem == NULL)
        problem = read_quota(file, &quota);
    if (file >= 0)
        close(file);
    if (problem == NULL)
        publish_limits(&quota);
    mode = problem == NULL ? HCS_MODE_ENFORCE : fails_open ? HCS_MODE_PASS_THROUGH : HCS_MODE_REFUSE;
}

const struct hcs_quota *hcs_quota_in_force(void)
{
    return hcs_mode() == HCS_MODE_ENFORCE ? &quota : NULL;
}

enum hcs_mode hcs_mode(void)
{
    static _Atomic uint64_t once;
    if (begin_once(&once)) {
        int saved_errno = errno;
        errno = 0;
        load_quota();
        bool again = mode == HCS_MODE_REFUSE && may_pass(errno);
        errno = saved_errno;
        atomic_store(&once, again ? ONCE_AGAIN : ONCE_DONE);
    }
    return mode;
}

/* ---- the ledger ------------------------------------------------------------------------------------------------- */

static void load_ledger(void)
{
    static char path[PATH_BYTES + HCS_QUOTA_LEDGER_BYTES];
    size_t directory = directory_length(quota_path);
    memcpy(path, quota_path, directory);
    memcpy(path + directory, quota.ledger, strlen(quota.ledger) + 1);
    problem = hcs_ledger_open(path, &quota, &ledger);
    if (problem != NULL)
        return;
    account = hcs_ledger_account(ledger, quota.card_count);
    atomic_store(&seen_counter, atomic_load(&ledger->quota_counter));
    ledger_usable = true;
}

static bool have_ledger(void)
{
    static _Atomic uint64_t once;
    if (hcs_mode() != HCS_MODE_ENFORCE)
        return false;
    if (begin_once(&once)) {
        int saved_errno = errno;
        errno = 0;
        load_ledger();
        bool again = !ledger_usable && may_pass(errno);
        errno = saved_errno;
        atomic_store(&once, again ? ONCE_AGAIN : ONCE_DONE);
    }
    return ledger_usable;
}

static bool same_cards(const struct hcs_quota *fresh)
{
    if (fresh->card_count != quota.card_count)
        return false;
    for (uint32_t card = 0; card < quota.card_count; card++)
        if (strcmp(fresh->cards[card].uuid, quota.cards[card].uuid) != 0)
            return false;
    return true;
}

/* Reads the file again; its limits may have changed, its cards may not. */
static void reload_quota(void)
{
    static _Atomic uint64_t busy; /* pid of the process that reloads */
    static struct hcs_quota fresh;
    uint64_t nobody = atomic_load(&busy);
    uint64_t self = (uint64_t)getpid();
    if (nobody == self || !atomic_compare_exchange_strong(&busy, &nobody, self))
        return; /* another thread of this process is at it */
    int saved_errno = errno;
    bool readable = parse_at(quota_path, &fresh) == NULL && same_cards(&fresh);
    if (readable)
        publish_limits(&fresh);
    atomic_store(&file_broken, !readable);
    errno = saved_errno;
    atomic_store(&busy, 0);
}

/* Reads the file again if the node agent has announced a new one: one load where it has not. */
static void follow_quota(void)
{
    uint64_t counter = atomic_load(&ledger->quota_counter);
    if (counter != atomic_load(&seen_counter)) {
        reload_quota();
        atomic_store(&seen_counter, counter);
    }
}

static struct hcs_slot *own_slot(struct hcs_local *local)
{
    struct hcs_slot *slot = atomic_load_explicit(&local->slot, memory_order_acquire);
    if (slot != NULL)
        return slot;
    uint32_t open = 0;
    while (!atomic_compare_exchange_weak(&local->claim_lock, &open, 1)) {
        open = 0;
        sched_yield();
    }
    slot = atomic_load(&local->slot);
    if (slot == NULL) {
        int saved_errno = errno;
        slot = hcs_account_claim(&account);
        errno = saved_errno;
        atomic_store(&local->slot, slot);
    }
    atomic_store(&local->claim_lock, 0);
    return slot;
}

/* ---- telling people, once per process --------------------------------------------------------------------------- */

struct line {
    char text[640];
    size_t length;
};

static void add(struct line *line, const char *text)
{
    size_t length = strlen(text);
    if (length > sizeof line->text - 1 - line->length)
        length = sizeof line->text - 1 - line->length;
    memcpy(line->text + line->length, text, length);
    line->length += length;
}

static void say_once(const char *what, const char *reason)
{
    static _Atomic bool said;
    if (atomic_exchange(&said, true))
        return;
    struct line line = {.length = 0};
    add(&line, "hcs interceptor: ");
    add(&line, what);
    add(&line, ": ");
    add(&line, reason);
    if (quota_path[0] != '\0') {
        add(&line, " (");
        add(&line, quota_path);
        if (quota.fault_line != 0) {
            char digits[] = ", line 000";
            for (uint32_t at = sizeof digits - 2, number = quota.fault_line; number != 0; number /= 10)
                digits[at--] = (char)('0' + number % 10);
            add(&line, digits);
        }
        add(&line, ")");
    }
    line.text[line.length++] = '\n';
    int saved_errno = errno;
    ssize_t ignored = write(STDERR_FILENO, line.text, line.length);
    (void)ignored;
    errno = saved_errno;
}

static void say_refused(const char *reason)
{
    say_once("device memory is refused", reason);
}

void hcs_announce_problem(void)
{
    if (hcs_mode() == HCS_MODE_PASS_THROUGH)
        say_once("no limit holds, as was chosen", problem);
    else if (hcs_mode() == HCS_MODE_REFUSE || !have_ledger())
        say_refused(problem);
}

/* ---- charging --------------------------------------------------------------------------------------------------- */

/* Everything a charge needs; false where there can be none, and *why says what to tell people. */
struct charging {
    struct hcs_local *local;
    struct hcs_slot *slot;
    uint32_t card;
    const char *why;
};

static bool ready(int card, struct charging *charging)
{
    *charging = (struct charging){.local = hcs_local(), .card = (uint32_t)card};
    if (charging->local == NULL || !have_ledger())
        charging->why = problem != NULL ? problem : "no memory for the books";
    else if (card < 0)
        charging->why = "the card is not in the quota file";
    else if ((charging->slot = own_slot(charging->local)) == NULL)
        charging->why = "every process slot of the ledger is taken";
    else
        follow_quota();
    return charging->why == NULL;
}

static bool reserve(const struct charging *charging, uint64_t bytes)
{
    return !atomic_load(&file_broken) && hcs_account_reserve(&account, charging->slot, charging->card, bytes,
                                                             atomic_load(&limits[charging->card]));
}

/* A process whose contexts nobody saw (another runtime than CUDA, or a road that is not ours) pays for one with its first
 * allocation, until it ends. */
static bool charge_hidden_context(const struct charging *charging)
{
    _Atomic uint32_t *contexts = &charging->local->contexts[charging->card];
    uint64_t overhead = atomic_load(&context_overheads[charging->card]);
    uint32_t none = 0;
    if (overhead == 0 || atomic_load_explicit(contexts, memory_order_relaxed) != 0 ||
        !atomic_compare_exchange_strong(contexts, &none, 1))
        return true;
    if (reserve(charging, overhead))
        return true;
    atomic_fetch_sub(contexts, 1);
    return false;
}

static bool charge_now(const struct charging *charging, uint64_t bytes)
{
    return charge_hidden_context(charging) && reserve(charging, bytes);
}

/* Before anyone is refused: take back what dead processes hold and what pools have returned, and see whether the limit
 * has changed. */
static void look_again(void)
{
    hcs_pools_refresh();
    hcs_account_reclaim(&account);
    reload_quota();
}

static bool refused(const struct charging *charging)
{
    if (charging->why != NULL)
        say_refused(charging->why);
    else if (atomic_load(&file_broken))
        say_refused("the quota file was replaced by one that is not valid for this container");
    if (charging->why == NULL)
        atomic_fetch_add(&ledger->cards[charging->card].refusals, 1);
    return false;
}

bool hcs_try_charge(int card, uint64_t bytes)
{
    struct charging charging;
    return ready(card, &charging) && charge_now(&charging, bytes);
}

bool hcs_charge(int card, uint64_t bytes)
{
    struct charging charging;
    if (!ready(card, &charging))
        return refused(&charging);
    if (charge_now(&charging, bytes))
        return true;
    look_again();
    return charge_now(&charging, bytes) || refused(&charging);
}

void hcs_charge_measured(int card, uint64_t bytes)
{
    struct charging charging;
    if (ready(card, &charging))
        hcs_account_reserve(&account, charging.slot, charging.card, bytes, HCS_BYTES_MASK);
}

void hcs_uncharge(int card, uint64_t bytes)
{
    struct hcs_local *local = hcs_local();
    if (card < 0 || local == NULL || bytes == 0 || !have_ledger())
        return;
    struct hcs_slot *slot = atomic_load(&local->slot);
    if (slot != NULL)
        hcs_account_release(&account, slot, (uint32_t)card, bytes);
}

static bool over(uint32_t card)
{
    return atomic_load(&file_broken) || hcs_account_used(&account, card) > atomic_load(&limits[card]);
}

bool hcs_refuses_measured(int card)
{
    struct charging charging;
    if (!ready(card, &charging))
        return !refused(&charging);
    if (!over(charging.card))
        return false;
    look_again();
    return over(charging.card) && !refused(&charging);
}

uint64_t hcs_used(int card)
{
    return card >= 0 && have_ledger() ? hcs_account_used(&account, (uint32_t)card) : 0;
}

bool hcs_context_begin(int card, uint64_t *charged)
{
    struct charging charging;
    *charged = 0;
    if (!ready(card, &charging))
        return refused(&charging);
    uint64_t overhead = atomic_load(&context_overheads[card]);
    if (overhead != 0 && !reserve(&charging, overhead)) {
        look_again();
        overhead = atomic_load(&context_overheads[card]);
        if (overhead != 0 && !reserve(&charging, overhead))
            return refused(&charging);
    }
    atomic_fetch_add(&charging.local->contexts[card], 1);
    *charged = overhead;
    return true;
}

void hcs_context_end(int card, uint64_t charged)
{
    struct hcs_local *local = hcs_local();
    if (card < 0 || local == NULL)
        return;
    uint32_t count = atomic_load(&local->contexts[card]);
    while (count != 0 && !atomic_compare_exchange_weak(&local->contexts[card], &count, count - 1)) {
    }
    hcs_uncharge(card, charged);
}

void hcs_clamp(int card, size_t *free_bytes, size_t *total_bytes)
{
    struct hcs_local *local = hcs_local();
    if (card < 0 || local == NULL || !have_ledger()) {
        *free_bytes = 0;
        return;
    }
    follow_quota();
    hcs_pools_refresh();
    hcs_account_reclaim(&account);
    uint64_t limit = atomic_load(&limits[card]);
    uint64_t used = hcs_account_used(&account, (uint32_t)card);
    if (atomic_load(&local->contexts[card]) == 0)
        used += atomic_load(&context_overheads[card]);
    uint64_t left = limit > used && !atomic_load(&file_broken) ? limit - used : 0;
    if (*free_bytes > left)
        *free_bytes = (size_t)left;
    if (*total_bytes > limit)
        *total_bytes = (size_t)limit;
}

uint32_t hcs_holders(int card, struct hcs_holder *holders, uint32_t room)
{
    uint32_t found = 0;
    if (card < 0 || !have_ledger())
        return 0;
    hcs_account_reclaim(&account);
    for (uint32_t index = 0; index < account.slot_count; index++) {
        struct hcs_holder holder;
        if (!hcs_account_holder(&account, index, (uint32_t)card, &holder.pid, &holder.bytes))
            continue;
        if (found < room)
            holders[found] = holder;
        found++;
    }
    return found;
}
