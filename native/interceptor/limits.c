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
#include "quota.h"

/* Where the node agent mounts the file. Only a build for tests sets another path; nothing at run time can. */
#ifndef HCS_QUOTA_PATH
#define HCS_QUOTA_PATH "/etc/hcs/quota"
#endif

enum { PATH_BYTES = 4096 };

static char quota_path[PATH_BYTES];
static struct hcs_quota quota;
static const char *problem; /* why everything is refused */
static enum hcs_mode mode;

static struct hcs_ledger *ledger;
static struct hcs_account account;
static bool ledger_usable;

static _Atomic uint64_t limits[HCS_QUOTA_MAX_CARDS];
static _Atomic uint64_t context_overheads[HCS_QUOTA_MAX_CARDS];
static _Atomic uint64_t seen_counter; /* the ledger's quota_counter when the file was last read */
static _Atomic bool file_broken;      /* the file became unreadable while we ran */

/* ---- doing things once ------------------------------------------------------------------------------------------ */

enum { ONCE_DONE = 1, ONCE_BUSY = 2, ONCE_PID_SHIFT = 8 };

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

static void load_quota(void)
{
    const char *path = HCS_QUOTA_PATH;
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0 && (errno == ENOENT || errno == ENOTDIR)) {
        path = secure_getenv("HCS_QUOTA_FILE");
        if (path == NULL || path[0] == '\0') {
            mode = HCS_MODE_PASS_THROUGH;
            return;
        }
        file = open(path, O_RDONLY | O_CLOEXEC);
    }
    mode = HCS_MODE_REFUSE;
    if (file < 0) {
        problem = "the quota file cannot be opened";
        return;
    }
    problem = strlen(path) < sizeof quota_path ? read_quota(file, &quota) : "the quota file's path is too long";
    close(file);
    if (problem != NULL)
        return;
    memcpy(quota_path, path, strlen(path) + 1);
    publish_limits(&quota);
    mode = HCS_MODE_ENFORCE;
}

enum hcs_mode hcs_mode(void)
{
    static _Atomic uint64_t once;
    if (begin_once(&once)) {
        int saved_errno = errno;
        load_quota();
        errno = saved_errno;
        atomic_store(&once, ONCE_DONE);
    }
    return mode;
}

/* ---- the ledger ------------------------------------------------------------------------------------------------- */

static void load_ledger(void)
{
    static char path[PATH_BYTES + HCS_QUOTA_LEDGER_BYTES];
    const char *slash = strrchr(quota_path, '/');
    size_t directory = slash != NULL ? (size_t)(slash - quota_path) + 1 : 0;
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
        load_ledger();
        errno = saved_errno;
        atomic_store(&once, ONCE_DONE);
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

static void say_once(const char *reason)
{
    static _Atomic bool said;
    if (atomic_exchange(&said, true))
        return;
    char line[512] = "hcs interceptor: device memory is refused: ";
    size_t at = strlen(line);
    size_t length = strlen(reason);
    memcpy(line + at, reason, length);
    at += length;
    line[at++] = '\n';
    int saved_errno = errno;
    ssize_t ignored = write(STDERR_FILENO, line, at);
    (void)ignored;
    errno = saved_errno;
}

/* ---- charging --------------------------------------------------------------------------------------------------- */

/* What a context takes is charged with the process's first allocation on the card, and stays until the process ends. */
static bool charge_context(struct hcs_local *local, struct hcs_slot *slot, uint32_t card)
{
    uint32_t bit = UINT32_C(1) << card;
    uint64_t overhead = atomic_load(&context_overheads[card]);
    if (overhead == 0 || (atomic_load(&local->context_charged) & bit))
        return true;
    if (atomic_fetch_or(&local->context_charged, bit) & bit)
        return true;
    if (hcs_account_reserve(&account, slot, card, overhead, atomic_load(&limits[card])))
        return true;
    atomic_fetch_and(&local->context_charged, ~bit);
    return false;
}

static bool charge_once(struct hcs_local *local, struct hcs_slot *slot, uint32_t card, uint64_t bytes)
{
    return charge_context(local, slot, card) &&
           hcs_account_reserve(&account, slot, card, bytes, atomic_load(&limits[card]));
}

bool hcs_charge(int card, uint64_t bytes)
{
    struct hcs_local *local = hcs_local();
    if (local == NULL || !have_ledger()) {
        say_once(problem != NULL ? problem : "no memory for the books");
        return false;
    }
    if (card < 0) {
        say_once("the card is not in the quota file");
        return false;
    }
    struct hcs_slot *slot = own_slot(local);
    if (slot == NULL) {
        say_once("every process slot of the ledger is taken");
        return false;
    }
    follow_quota();
    if (!atomic_load(&file_broken) && charge_once(local, slot, (uint32_t)card, bytes))
        return true;
    /* Before anyone is refused: take back what dead processes hold, and see whether the limit has changed. */
    hcs_account_reclaim(&account);
    reload_quota();
    if (!atomic_load(&file_broken) && charge_once(local, slot, (uint32_t)card, bytes))
        return true;
    if (atomic_load(&file_broken))
        say_once("the quota file was replaced by one that is not valid for this container");
    atomic_fetch_add(&ledger->cards[card].refusals, 1);
    return false;
}

void hcs_uncharge(int card, uint64_t bytes)
{
    struct hcs_local *local = hcs_local();
    if (card < 0 || local == NULL || !have_ledger())
        return;
    struct hcs_slot *slot = atomic_load(&local->slot);
    if (slot != NULL)
        hcs_account_release(&account, slot, (uint32_t)card, bytes);
}

void hcs_clamp(int card, size_t *free_bytes, size_t *total_bytes)
{
    struct hcs_local *local = hcs_local();
    if (card < 0 || local == NULL || !have_ledger()) {
        *free_bytes = 0;
        return;
    }
    follow_quota();
    hcs_account_reclaim(&account);
    uint64_t limit = atomic_load(&limits[card]);
    uint64_t used = hcs_account_used(&account, (uint32_t)card);
    if (!(atomic_load(&local->context_charged) & (UINT32_C(1) << card)))
        used += atomic_load(&context_overheads[card]);
    uint64_t left = limit > used ? limit - used : 0;
    if (*free_bytes > left)
        *free_bytes = (size_t)left;
    if (*total_bytes > limit)
        *total_bytes = (size_t)limit;
}

/* ---- finding cards ---------------------------------------------------------------------------------------------- */

static bool is_vendor(const struct hcs_quota_card *card, const char *vendor)
{
    return strcmp(card->vendor, vendor) == 0;
}

int hcs_card_of_uuid(const unsigned char uuid[16])
{
    static const char digits[] = "0123456789abcdef";
    char text[37];
    size_t at = 0;
    for (int byte = 0; byte < 16; byte++) {
        if (byte == 4 || byte == 6 || byte == 8 || byte == 10)
            text[at++] = '-';
        text[at++] = digits[uuid[byte] >> 4];
        text[at++] = digits[uuid[byte] & 15];
    }
    text[at] = '\0';
    if (hcs_mode() != HCS_MODE_ENFORCE)
        return HCS_CARD_UNLISTED;
    for (uint32_t card = 0; card < quota.card_count; card++) {
        const char *known = quota.cards[card].uuid;
        if (is_vendor(&quota.cards[card], "nvidia") &&
            (strncmp(known, "GPU-", 4) == 0 || strncmp(known, "MIG-", 4) == 0) && strcmp(known + 4, text) == 0)
            return (int)card;
    }
    return HCS_CARD_UNLISTED;
}

static char lower(char letter)
{
    return letter >= 'A' && letter <= 'Z' ? (char)(letter - 'A' + 'a') : letter;
}

/* PCI addresses with a domain of four or of eight digits are the same address. */
static bool same_bus_id(const char *left, const char *right)
{
    while (*left == '0')
        left++;
    while (*right == '0')
        right++;
    for (; *left && lower(*left) == lower(*right); left++, right++) {
    }
    return *left == '\0' && *right == '\0';
}

int hcs_card_of_bus_id(const char *bus_id)
{
    if (hcs_mode() != HCS_MODE_ENFORCE)
        return HCS_CARD_UNLISTED;
    for (uint32_t card = 0; card < quota.card_count; card++)
        if (is_vendor(&quota.cards[card], "nvidia") && quota.cards[card].bus_id[0] != '\0' &&
            same_bus_id(quota.cards[card].bus_id, bus_id))
            return (int)card;
    return HCS_CARD_UNLISTED;
}

int hcs_card_of_physical_id(const char *vendor, int64_t physical_id)
{
    if (hcs_mode() != HCS_MODE_ENFORCE)
        return HCS_CARD_UNLISTED;
    for (uint32_t card = 0; card < quota.card_count; card++)
        if (is_vendor(&quota.cards[card], vendor) && physical_id >= 0 && quota.cards[card].physical_id == physical_id)
            return (int)card;
    return HCS_CARD_UNLISTED;
}
