/* Opens the ledger file. An all-zero file is a valid empty ledger, and initialising writes constants only, so several
 * processes may do it at once and one may die in the middle. */
#include "ledger.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static const char *check(struct hcs_ledger *ledger, const struct hcs_quota *quota)
{
    uint64_t magic = atomic_load(&ledger->magic);
    if (magic == 0) {
        ledger->layout = HCS_LEDGER_LAYOUT;
        ledger->card_slots = HCS_LEDGER_CARDS;
        ledger->process_slots = HCS_LEDGER_SLOTS;
        ledger->process_slot_bytes = HCS_LEDGER_SLOT_BYTES;
        for (uint32_t card = 0; card < quota->card_count; card++)
            memcpy(ledger->cards[card].uuid, quota->cards[card].uuid, sizeof ledger->cards[card].uuid);
        atomic_store(&ledger->magic, HCS_LEDGER_MAGIC);
        magic = HCS_LEDGER_MAGIC;
    }
    if (magic != HCS_LEDGER_MAGIC)
        return "the ledger is not a ledger";
    if (ledger->layout != HCS_LEDGER_LAYOUT || ledger->card_slots != HCS_LEDGER_CARDS ||
        ledger->process_slots != HCS_LEDGER_SLOTS || ledger->process_slot_bytes != HCS_LEDGER_SLOT_BYTES)
        return "the ledger has another layout";
    for (uint32_t card = 0; card < quota->card_count; card++)
        if (strncmp(ledger->cards[card].uuid, quota->cards[card].uuid, HCS_QUOTA_UUID_BYTES) != 0)
            return "the ledger belongs to other cards";
    return NULL;
}

/* The file above the three that programs take for their standard streams: a program that was started with those closed
 * would write into the ledger. */
static int above_streams(int file)
{
    if (file < 0 || file > STDERR_FILENO)
        return file;
    int higher = fcntl(file, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
    close(file);
    return higher;
}

/* Gives the file its size, and every page of it room: a page that is not to be had when it is touched would kill the
 * program. A file that is too short was left by somebody who died, or had no room, before anything was in it. */
static const char *make_room(int file)
{
    uint64_t magic = 0;
    off_t size = lseek(file, 0, SEEK_END);
    if (size < 0 || size > HCS_LEDGER_BYTES)
        return "the ledger has the wrong size";
    if (size != 0 && size != HCS_LEDGER_BYTES && (pread(file, &magic, sizeof magic, 0) < 0 || magic != 0))
        return "the ledger has the wrong size";
    if (fallocate(file, 0, 0, HCS_LEDGER_BYTES) == 0)
        return NULL;
    if (errno == ENOSPC || errno == EDQUOT)
        return "the ledger's disk has no room for it";
    /* A file system that cannot promise room. */
    return size != HCS_LEDGER_BYTES && ftruncate(file, HCS_LEDGER_BYTES) != 0 ? "the ledger cannot be extended" : NULL;
}

const char *hcs_ledger_open(const char *path, const struct hcs_quota *quota, struct hcs_ledger **ledger)
{
    int file = above_streams(open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666));
    if (file < 0)
        return "the ledger cannot be opened for writing";
    const char *no_room = make_room(file);
    if (no_room != NULL) {
        close(file);
        return no_room;
    }
    void *memory = mmap(NULL, HCS_LEDGER_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (memory == MAP_FAILED)
        return "the ledger cannot be mapped";
    const char *problem = check(memory, quota);
    if (problem != NULL) {
        munmap(memory, HCS_LEDGER_BYTES);
        return problem;
    }
    *ledger = memory;
    return NULL;
}

struct hcs_account hcs_ledger_account(struct hcs_ledger *ledger, uint32_t cards)
{
    return (struct hcs_account){
        .counters = (unsigned char *)&ledger->cards[0].counter,
        .counter_stride = sizeof ledger->cards[0],
        .cards = cards,
        .slots = (unsigned char *)ledger + HCS_LEDGER_SLOTS_OFFSET,
        .slot_stride = HCS_LEDGER_SLOT_BYTES,
        .slot_count = HCS_LEDGER_SLOTS,
    };
}
