/* Emulated NVML (libnvidia-ml.so.1): what the cards' files say. Not NVIDIA's library; names and version say "emulated". */
#include "../common/nvml_abi.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "card.h"

#define HCS_EXPORT __attribute__((visibility("default")))

struct nvmlDevice_st {
    struct hcs_card card;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct nvmlDevice_st devices[HCS_MAX_CARDS];
static uint32_t count;
static int references;

HCS_EXPORT nvmlReturn_t nvmlInit_v2(void)
{
    static struct hcs_card cards[HCS_MAX_CARDS];
    pthread_mutex_lock(&lock);
    if (references++ == 0 && count == 0) {
        count = hcs_cards_open("nvidia", "nvidia", cards);
        for (uint32_t index = 0; index < count; index++)
            devices[index].card = cards[index];
    }
    pthread_mutex_unlock(&lock);
    return NVML_SUCCESS;
}

HCS_EXPORT nvmlReturn_t nvmlInit(void)
{
    return nvmlInit_v2();
}

HCS_EXPORT nvmlReturn_t nvmlInitWithFlags(unsigned int flags)
{
    (void)flags;
    return nvmlInit_v2();
}

HCS_EXPORT nvmlReturn_t nvmlShutdown(void)
{
    pthread_mutex_lock(&lock);
    bool was = references > 0;
    references -= was;
    pthread_mutex_unlock(&lock);
    return was ? NVML_SUCCESS : NVML_ERROR_UNINITIALIZED;
}

HCS_EXPORT const char *nvmlErrorString(nvmlReturn_t code)
{
    return code == NVML_SUCCESS ? "Success" : "emulated NVML error";
}

HCS_EXPORT nvmlReturn_t nvmlSystemGetDriverVersion(char *text, unsigned int length)
{
    snprintf(text, length, "0.0 (emulated)");
    return NVML_SUCCESS;
}

HCS_EXPORT nvmlReturn_t nvmlDeviceGetCount_v2(unsigned int *out)
{
    *out = count;
    return references > 0 ? NVML_SUCCESS : NVML_ERROR_UNINITIALIZED;
}

HCS_EXPORT nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvmlDevice_t *device)
{
    if (references == 0)
        return NVML_ERROR_UNINITIALIZED;
    if (index >= count)
        return NVML_ERROR_INVALID_ARGUMENT;
    *device = &devices[index];
    return NVML_SUCCESS;
}

HCS_EXPORT nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *device)
{
    for (uint32_t index = 0; index < count; index++)
        if (strcmp(devices[index].card.file->uuid, uuid) == 0) {
            *device = &devices[index];
            return NVML_SUCCESS;
        }
    return references > 0 ? NVML_ERROR_NOT_FOUND : NVML_ERROR_UNINITIALIZED;
}

static nvmlReturn_t healthy(nvmlDevice_t device)
{
    return hcs_card_dead(&device->card) ? NVML_ERROR_GPU_IS_LOST : NVML_SUCCESS;
}

HCS_EXPORT nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char *uuid, unsigned int length)
{
    snprintf(uuid, length, "%s", device->card.file->uuid);
    return NVML_SUCCESS;
}

HCS_EXPORT nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char *name, unsigned int length)
{
    snprintf(name, length, "%s (emulated)", device->card.file->model);
    return NVML_SUCCESS;
}

HCS_EXPORT nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t device, unsigned int *index)
{
    *index = (unsigned int)(device - devices);
    return NVML_SUCCESS;
}

HCS_EXPORT nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *memory)
{
    uint64_t used = hcs_card_used(&device->card), total = device->card.file->total_bytes;
    *memory = (nvmlMemory_t){.total = total, .used = used, .free = used < total ? total - used : 0};
    return healthy(device);
}

HCS_EXPORT nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *memory)
{
    enum { VERSION_2 = 2, VERSION_SHIFT = 24 };
    nvmlMemory_t plain;
    if (memory->version != (sizeof *memory | VERSION_2 << VERSION_SHIFT))
        return NVML_ERROR_INVALID_ARGUMENT;
    nvmlReturn_t result = nvmlDeviceGetMemoryInfo(device, &plain);
    memory->total = plain.total;
    memory->reserved = 0;
    memory->free = plain.free;
    memory->used = plain.used;
    return result;
}

/* ---- processes: everybody on the card, as the driver on the host sees them ----------------------------------------- */

static nvmlReturn_t list(nvmlDevice_t device, unsigned int *room, void *out, bool old)
{
    unsigned int found = 0;
    hcs_card_used(&device->card); /* takes the dead off */
    for (uint32_t index = 0; index < device->card.account.slot_count; index++) {
        uint32_t pid;
        uint64_t bytes;
        if (!hcs_account_holder(&device->card.account, index, 0, &pid, &bytes))
            continue;
        if (out != NULL && found < *room && old)
            ((nvmlProcessInfo_v1_t *)out)[found] = (nvmlProcessInfo_v1_t){.pid = pid, .usedGpuMemory = bytes};
        if (out != NULL && found < *room && !old)
            ((nvmlProcessInfo_t *)out)[found] =
                (nvmlProcessInfo_t){.pid = pid, .usedGpuMemory = bytes, .gpuInstanceId = ~0U, .computeInstanceId = ~0U};
        found++;
    }
    bool fits = found == 0 || (out != NULL && found <= *room);
    *room = found;
    return fits ? healthy(device) : NVML_ERROR_INSUFFICIENT_SIZE;
}

HCS_EXPORT nvmlReturn_t nvmlDeviceGetComputeRunningProcesses(nvmlDevice_t device, unsigned int *room, void *out)
{
    return list(device, room, out, true);
}

HCS_EXPORT nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v2(nvmlDevice_t device, unsigned int *room, void *out)
{
    return list(device, room, out, false);
}

HCS_EXPORT nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t device, unsigned int *room, void *out)
{
    return list(device, room, out, false);
}

/* As if all of them were clients of the MPS daemon. */
HCS_EXPORT nvmlReturn_t nvmlDeviceGetMPSComputeRunningProcesses(nvmlDevice_t device, unsigned int *room, void *out)
{
    return list(device, room, out, true);
}

HCS_EXPORT nvmlReturn_t nvmlDeviceGetMPSComputeRunningProcesses_v2(nvmlDevice_t device, unsigned int *room, void *out)
{
    return list(device, room, out, false);
}

HCS_EXPORT nvmlReturn_t nvmlDeviceGetMPSComputeRunningProcesses_v3(nvmlDevice_t device, unsigned int *room, void *out)
{
    return list(device, room, out, false);
}

HCS_EXPORT nvmlReturn_t nvmlDeviceGetGraphicsRunningProcesses(nvmlDevice_t device, unsigned int *room, void *out)
{
    (void)out;
    *room = 0;
    return healthy(device);
}

HCS_EXPORT nvmlReturn_t nvmlDeviceGetGraphicsRunningProcesses_v2(nvmlDevice_t device, unsigned int *room, void *out)
{
    return nvmlDeviceGetGraphicsRunningProcesses(device, room, out);
}

HCS_EXPORT nvmlReturn_t nvmlDeviceGetGraphicsRunningProcesses_v3(nvmlDevice_t device, unsigned int *room, void *out)
{
    return nvmlDeviceGetGraphicsRunningProcesses(device, room, out);
}

HCS_EXPORT nvmlReturn_t nvmlDeviceGetProcessUtilization(nvmlDevice_t device, nvmlProcessUtilizationSample_t *samples,
                                                        unsigned int *room, unsigned long long since)
{
    enum { MOST = 64 };
    nvmlProcessInfo_t processes[MOST];
    unsigned int found = MOST;
    nvmlReturn_t result = list(device, &found, processes, false);
    (void)since;
    if (result != NVML_SUCCESS)
        return result;
    for (unsigned int index = 0; samples != NULL && index < found && index < *room; index++)
        samples[index] = (nvmlProcessUtilizationSample_t){.pid = processes[index].pid};
    bool fits = samples != NULL && found <= *room;
    *room = found;
    return fits ? NVML_SUCCESS : NVML_ERROR_INSUFFICIENT_SIZE;
}
