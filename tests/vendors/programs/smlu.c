/* Emulated CNDEV (not Cambricon's): two MLUs of 24 GiB, sMLU switched on for the first, profiles and instances with real
 * bookkeeping. The structures are written down from cndev.h once more, so that a slip in ours shows. Functions that begin
 * with emulated_ are for tests. */
#include <stdio.h>
#include <string.h>

enum { OK = 0, UNSUPPORTED_VERSION = 3, INVALID = 5, BAD_DEVICE = 6, NO_SPACE = 9, NOT_FOUND = 14, IN_USE = 15, DUPLICATE = 16 };
enum { CARDS = 2, MOST = 32, FIRST_HANDLE = 100 };
static const unsigned long long card_bytes = 24ULL << 30;

typedef struct { int version; int smluMode; } mode_t_;
typedef struct { int version; unsigned mluQuota; unsigned long long memorySize; } set_t_;
typedef struct {
    int version, profileId, instanceId;
    unsigned char uuid[37];
    int domain, bus, device, function;
    char profileName[100], instanceName[100], devNodeName[100];
    unsigned mluQuota[2];
    unsigned long long memorySize[2];
    unsigned reserved[128];
} info_t_;
typedef struct { int version, count, profileId[128]; } ids_t_;
typedef struct {
    int version, profileId;
    char name[100];
    unsigned totalCapacity, remainCapacity, mluQuota[2];
    unsigned long long memorySize[2];
} profile_t_;

struct profile { int used; unsigned quota; unsigned long long memory; };
struct instance { int used, profile; char name[100]; };
static struct { struct profile profiles[MOST]; struct instance instances[MOST]; } cards[CARDS];
static int destroyed, made;
static char busy[100];

void emulated_reset(void) { memset(cards, 0, sizeof cards); destroyed = made = 0; busy[0] = 0; }
void emulated_busy(const char *name) { snprintf(busy, sizeof busy, "%s", name); }
int emulated_destroyed(void) { return destroyed; }
int emulated_made(void) { return made; }
int emulated_profiles(int card) { int n = 0; for (int p = 0; p < MOST; p++) n += cards[card].profiles[p].used; return n; }

static int card_of(int handle) { return handle >= FIRST_HANDLE && handle < FIRST_HANDLE + CARDS ? handle - FIRST_HANDLE : -1; }
static unsigned of_profile(int card, int profile) {
    unsigned n = 0;
    for (int i = 0; i < MOST; i++) n += cards[card].instances[i].used && cards[card].instances[i].profile == profile;
    return n;
}

int cndevInit(int reserved) { return reserved; }
const char *cndevGetErrorString(int code) { return code == IN_USE ? "MLU is currently in use" : code == NO_SPACE ? "insufficient space" : "failed"; }
int cndevGetDeviceHandleByIndex(int index, int *handle) { *handle = FIRST_HANDLE + index; return index < CARDS ? OK : BAD_DEVICE; }
int cndevGetSMLUMode(mode_t_ *mode, int handle) {
    if (mode->version != 6) return UNSUPPORTED_VERSION;
    mode->smluMode = card_of(handle) == 0;
    return OK;
}
int cndevGetSMluProfileIdInfo(ids_t_ *ids, int handle) {
    int card = card_of(handle);
    if (card < 0 || ids->version != 6) return INVALID;
    ids->count = 0;
    for (int p = 0; p < MOST; p++) if (cards[card].profiles[p].used) ids->profileId[ids->count++] = p;
    return OK;
}
int cndevGetSMluProfileInfo(profile_t_ *out, int profile, int handle) {
    int card = card_of(handle);
    if (card < 0 || profile < 0 || profile >= MOST || out->version != 6) return INVALID;
    const struct profile *p = &cards[card].profiles[profile];
    if (!p->used) return NOT_FOUND;
    unsigned by_memory = card_bytes / p->memory, by_quota = 100 / p->quota;
    out->profileId = profile;
    out->totalCapacity = by_memory < by_quota ? by_memory : by_quota;
    out->remainCapacity = out->totalCapacity - of_profile(card, profile);
    out->mluQuota[0] = p->quota;
    out->memorySize[0] = p->memory;
    return OK;
}
int cndevCreateSMluProfileInfo(const set_t_ *set, int *profile, int handle) {
    int card = card_of(handle);
    if (card < 0 || set->version != 6 || set->mluQuota < 1 || set->mluQuota > 100 || !set->memorySize || set->memorySize > card_bytes) return INVALID;
    for (int p = 1; p < MOST; p++)
        if (!cards[card].profiles[p].used) {
            cards[card].profiles[p] = (struct profile){1, set->mluQuota, set->memorySize};
            *profile = p;
            return OK;
        }
    return NO_SPACE;
}
int cndevDestroySMluProfileInfo(int profile, int handle) {
    int card = card_of(handle);
    if (card < 0 || !cards[card].profiles[profile].used) return NOT_FOUND;
    if (of_profile(card, profile)) return IN_USE;
    cards[card].profiles[profile].used = 0;
    return OK;
}
int cndevCreateSMluInstanceByProfileId(int *instance, unsigned profile, int handle, const char *name) {
    int card = card_of(handle), place = -1;
    unsigned quota = 0;
    unsigned long long memory = 0;
    if (card < 0 || profile >= MOST || !cards[card].profiles[profile].used) return NOT_FOUND;
    for (int i = 0; i < MOST; i++) {
        const struct instance *each = &cards[card].instances[i];
        if (!each->used) { if (place < 0 && i > 0) place = i; continue; }
        if (*name && !strcmp(each->name, name)) return DUPLICATE;
        quota += cards[card].profiles[each->profile].quota;
        memory += cards[card].profiles[each->profile].memory;
    }
    if (place < 0 || quota + cards[card].profiles[profile].quota > 100 || memory + cards[card].profiles[profile].memory > card_bytes) return NO_SPACE;
    cards[card].instances[place] = (struct instance){.used = 1, .profile = (int)profile};
    snprintf(cards[card].instances[place].name, 100, "%s", name);
    *instance = place << 8 | card;
    made++;
    return OK;
}
int cndevGetAllSMluInstanceInfo(int *count, info_t_ *infos, int handle) {
    int card = card_of(handle), room = *count;
    if (card < 0 || (room && infos->version != 6)) return INVALID;
    *count = 0;
    for (int i = 0; i < MOST; i++) *count += cards[card].instances[i].used;
    if (*count > room) return NO_SPACE;
    for (int i = 0, at = 0; i < MOST; i++) {
        const struct instance *each = &cards[card].instances[i];
        if (!each->used) continue;
        info_t_ *out = &infos[at++];
        out->profileId = each->profile;
        out->instanceId = i;
        strcpy(out->instanceName, each->name);
        snprintf(out->devNodeName, 100, "/dev/cambricon-caps/cap_dev%d_mi%d", card, i);
        out->mluQuota[0] = cards[card].profiles[each->profile].quota;
        out->memorySize[0] = cards[card].profiles[each->profile].memory;
    }
    return OK;
}
int cndevDestroySMluInstanceByHandle(int instance) {
    int card = instance & 255, place = instance >> 8;
    if (card >= CARDS || place >= MOST || !cards[card].instances[place].used) return NOT_FOUND;
    if (busy[0] && !strcmp(busy, cards[card].instances[place].name)) return IN_USE;
    cards[card].instances[place].used = 0;
    destroyed++;
    return OK;
}
