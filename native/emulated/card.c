/* Opens emulated cards and keeps this process's share of their books. */
#include "card.h"

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "../common/addresses.h"

_Static_assert(sizeof(struct hcs_card_file) <= HCS_CARD_SLOTS_OFFSET, "the header fits before the slots");
_Static_assert(sizeof(struct hcs_slot) + 8 <= HCS_CARD_SLOT_BYTES, "a slot holds its one counter");

static struct hcs_card_file *map_card(const char *path, const char *vendor)
{
    int file = open(path, O_RDWR | O_CLOEXEC);
    if (file < 0)
        return NULL;
    struct hcs_card_file *card = NULL;
    uint64_t magic = 0;
    /* Look before mapping: a real device node must not be mapped, and reading eight bytes of one does nothing. */
    if (lseek(file, 0, SEEK_END) == HCS_CARD_BYTES && pread(file, &magic, sizeof magic, 0) == sizeof magic &&
        magic == HCS_CARD_MAGIC) {
        void *memory = mmap(NULL, HCS_CARD_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
        card = memory != MAP_FAILED ? memory : NULL;
    }
    close(file);
    if (card != NULL && (card->layout != HCS_CARD_LAYOUT || card->process_slots != HCS_CARD_SLOTS ||
                         strncmp(card->vendor, vendor, sizeof card->vendor) != 0)) {
        munmap(card, HCS_CARD_BYTES);
        card = NULL;
    }
    return card;
}

static int by_node(const void *left, const void *right)
{
    const struct hcs_card *first = left, *second = right;
    return first->node < second->node ? -1 : first->node > second->node;
}

uint32_t hcs_cards_open(const char *prefix, const char *vendor, struct hcs_card cards[HCS_MAX_CARDS])
{
    const char *root = getenv("HCS_ROOT");
    char directory[4096];
    if (snprintf(directory, sizeof directory, "%s/dev", root != NULL ? root : "") >= (int)sizeof directory)
        return 0;
    DIR *nodes = opendir(directory);
    if (nodes == NULL)
        return 0;
    uint32_t count = 0;
    struct dirent *node;
    while (count < HCS_MAX_CARDS && (node = readdir(nodes)) != NULL) {
        size_t length = strlen(prefix);
        if (strncmp(node->d_name, prefix, length) != 0)
            continue;
        char *end;
        unsigned long number = strtoul(node->d_name + length, &end, 10);
        if (end == node->d_name + length || *end != '\0' || node->d_name[length] < '0' || node->d_name[length] > '9')
            continue; /* nvidiactl, nvidia-uvm, davinci_manager */
        char path[4096 + 300];
        snprintf(path, sizeof path, "%s/%s", directory, node->d_name);
        struct hcs_card_file *file = map_card(path, vendor);
        if (file == NULL)
            continue;
        cards[count++] = (struct hcs_card){
            .file = file,
            .node = (uint32_t)number,
            .account = {.counters = (unsigned char *)&file->counter,
                        .counter_stride = 0,
                        .cards = 1,
                        .slots = (unsigned char *)file + HCS_CARD_SLOTS_OFFSET,
                        .slot_stride = HCS_CARD_SLOT_BYTES,
                        .slot_count = HCS_CARD_SLOTS},
        };
    }
    closedir(nodes);
    qsort(cards, count, sizeof *cards, by_node);
    return count;
}

/* This process's slot on each card; empty again in a forked child. */
struct own_slots {
    struct hcs_slot *slots[HCS_MAX_CARDS];
};

static struct hcs_slot *own_slot(uint32_t index, const struct hcs_card *card, bool claim)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static struct own_slots *own;
    pthread_mutex_lock(&lock);
    if (own == NULL)
        own = hcs_map_wiped_on_fork(sizeof *own);
    struct hcs_slot *slot = own != NULL ? own->slots[index] : NULL;
    if (slot == NULL && own != NULL && claim)
        slot = own->slots[index] = hcs_account_claim(&card->account);
    pthread_mutex_unlock(&lock);
    return slot;
}

bool hcs_card_take(uint32_t index, const struct hcs_card *card, uint64_t bytes)
{
    struct hcs_slot *slot = own_slot(index, card, true);
    if (slot == NULL)
        return false;
    if (hcs_account_reserve(&card->account, slot, 0, bytes, card->file->total_bytes))
        return true;
    hcs_account_reclaim(&card->account);
    return hcs_account_reserve(&card->account, slot, 0, bytes, card->file->total_bytes);
}

void hcs_card_give_back(uint32_t index, const struct hcs_card *card, uint64_t bytes)
{
    struct hcs_slot *slot = own_slot(index, card, false);
    if (slot != NULL)
        hcs_account_release(&card->account, slot, 0, bytes);
}

void hcs_card_mark(uint32_t index, const struct hcs_card *card, uint32_t mark)
{
    struct hcs_slot *slot = own_slot(index, card, true);
    if (slot != NULL)
        slot->reserved = mark;
}

uint64_t hcs_card_used_under(const struct hcs_card *card, uint32_t mark)
{
    uint64_t bytes = 0;
    hcs_account_reclaim(&card->account);
    for (uint32_t index = 0; index < HCS_CARD_SLOTS; index++) {
        struct hcs_slot *slot = (struct hcs_slot *)(void *)(card->account.slots + (size_t)index * HCS_CARD_SLOT_BYTES);
        uint32_t pid;
        uint64_t held;
        if (slot->reserved == mark && hcs_account_holder(&card->account, index, 0, &pid, &held))
            bytes += held;
    }
    return bytes;
}

uint64_t hcs_card_used(const struct hcs_card *card)
{
    hcs_account_reclaim(&card->account);
    return hcs_account_used(&card->account, 0);
}

int hcs_fault_injected(const char *function)
{
    enum { MOST_ORDERS = 16, NAME_BYTES = 64 };
    static struct {
        char name[NAME_BYTES];
        long nth;
        int code;
    } orders[MOST_ORDERS];
    static int count = -1;
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    int code = 0;
    pthread_mutex_lock(&lock);
    if (count < 0) {
        const char *text = getenv("HCS_EMULATED_FAIL");
        int used = 0;
        count = 0;
        while (text != NULL && count < MOST_ORDERS &&
               sscanf(text, "%63[^:]:%ld:%d%n", orders[count].name, &orders[count].nth, &orders[count].code, &used) == 3) {
            count++;
            text += used;
            if (*text != ',')
                break;
            text++;
        }
    }
    for (int order = 0; order < count; order++)
        if (strcmp(orders[order].name, function) == 0 && --orders[order].nth == 0)
            code = orders[order].code;
    pthread_mutex_unlock(&lock);
    if (code < 0) {
        raise(-code);
        code = 0;
    }
    return code;
}
