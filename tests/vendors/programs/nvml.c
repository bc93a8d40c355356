/* Stands in for libnvidia-ml.so.1: three cards, as nvml.h has them. Cards 0 and 1 share four NVLinks, card 2 has none and
 * no direct access to card 1. Card 1 has had Xid 79, which is told once. An old driver: no clock *event* reasons. */
#include <stdio.h>
#include <string.h>

enum { OK = 0, NOT_SUPPORTED = 3, TIMEOUT = 10 };
typedef struct card { int number; } *Device;
typedef struct { char legacy[16]; unsigned domain, bus, device, id, subsystem; char bus_id[32]; } Pci;
typedef struct { Device device; unsigned long long type, data; unsigned gi, ci; } Event;
typedef struct { unsigned long long total, free, used; } Memory;
typedef struct { unsigned gpu, memory; } Rates;
static struct card cards[3] = {{0}, {1}, {2}};
static int told, set;

int nvmlInitWithFlags(unsigned flags) { (void)flags; return OK; }
int nvmlShutdown(void) { return OK; }
const char *nvmlErrorString(int code) { return code == NOT_SUPPORTED ? "Not Supported" : "Some error"; }
int nvmlSystemGetDriverVersion(char *text, unsigned size) { snprintf(text, size, "470.57.02"); return OK; }
int nvmlDeviceGetCount_v2(unsigned *count) { *count = 3; return OK; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, Device *device) { *device = &cards[index]; return OK; }
int nvmlDeviceGetName(Device d, char *name, unsigned size) { (void)d; snprintf(name, size, "NVIDIA A30"); return OK; }
int nvmlDeviceGetUUID(Device d, char *uuid, unsigned size) { snprintf(uuid, size, "GPU-%08d", d->number); return OK; }
int nvmlDeviceGetMinorNumber(Device d, unsigned *minor) { *minor = 7 - d->number; return OK; }
static int place(int number, Pci *pci) { memset(pci, 0, sizeof *pci); snprintf(pci->bus_id, 32, "00000000:%02X:00.0", 0x3b + number); return OK; }
int nvmlDeviceGetPciInfo_v3(Device d, Pci *pci) { return place(d->number, pci); }
int nvmlDeviceGetMemoryInfo(Device d, Memory *m) { m->total = 24ull << 30; m->used = (unsigned long long)(d->number + 1) << 20; m->free = 0; return OK; }
int nvmlDeviceGetUtilizationRates(Device d, Rates *r) { r->gpu = 50; r->memory = 1; return d->number == 1 ? NOT_SUPPORTED : OK; }
int nvmlDeviceGetTemperature(Device d, int sensor, unsigned *degrees) { (void)sensor; *degrees = 40 + d->number; return OK; }
int nvmlDeviceGetPowerUsage(Device d, unsigned *mw) { (void)d; *mw = 61500; return OK; }
int nvmlDeviceGetEnforcedPowerLimit(Device d, unsigned *mw) { (void)d; *mw = 165000; return OK; }
int nvmlDeviceGetCurrentClocksThrottleReasons(Device d, unsigned long long *bits) { *bits = d->number == 2 ? 0x40 | 0x8 : 0x1; return OK; }
int nvmlDeviceGetTotalEccErrors(Device d, int kind, int counter, unsigned long long *n) { (void)d; *n = kind == 1 && counter == 0 ? 0 : 99; return OK; }
int nvmlDeviceGetRemappedRows(Device d, unsigned *c, unsigned *u, unsigned *pending, unsigned *failed) { *c = *u = 0; *pending = d->number == 0; *failed = 0; return OK; }
int nvmlDeviceGetCurrPcieLinkGeneration(Device d, unsigned *n) { (void)d; *n = 1; return OK; }
int nvmlDeviceGetMaxPcieLinkGeneration(Device d, unsigned *n) { (void)d; *n = 4; return OK; }
int nvmlDeviceGetCurrPcieLinkWidth(Device d, unsigned *n) { (void)d; *n = 16; return OK; }
int nvmlDeviceGetMaxPcieLinkWidth(Device d, unsigned *n) { (void)d; *n = 16; return OK; }
int nvmlDeviceGetPcieReplayCounter(Device d, unsigned *n) { *n = 5 + d->number; return OK; }
int nvmlDeviceGetPcieThroughput(Device d, int direction, unsigned *n) { (void)d; *n = direction ? 8 : 7; return OK; }
int nvmlDeviceGetNvLinkState(Device d, unsigned link, unsigned *up) { *up = d->number < 2 && link < 4; return d->number < 2 && link < 6 ? OK : NOT_SUPPORTED; }
int nvmlDeviceGetNvLinkRemotePciInfo_v2(Device d, unsigned link, Pci *pci) { (void)link; return place(1 - d->number, pci); }
int nvmlDeviceGetTopologyCommonAncestor(Device a, Device b, int *level) { *level = a->number + b->number == 2 ? 20 : 50; return OK; }
int nvmlDeviceGetP2PStatus(Device a, Device b, int index, int *status) { (void)index; *status = a->number + b->number == 3 ? 3 : 0; return OK; }
int nvmlEventSetCreate(void **s) { *s = &set; return OK; }
int nvmlEventSetFree(void *s) { return s != &set; }
int nvmlDeviceRegisterEvents(Device d, unsigned long long types, void *s) { (void)d; return types != 8 || s != &set; }
int nvmlEventSetWait_v2(void *s, Event *e, unsigned ms) {
  (void)s; (void)ms;
  if (told++) return TIMEOUT;
  memset(e, 0, sizeof *e); e->device = &cards[1]; e->type = 8; e->data = 79;
  return OK;
}
