/* NVML, the management library: its answers agree with the quota, and show the container's own processes alone.
 *
 * The processes come from the ledger: what each was charged, under the pid that it has inside the container. The driver
 * would name neighbours, or pids of the host. NVML is loaded by name nearly always (nvidia-smi, pynvml), road (b).
 */
#include "nvml.h"

#include <dlfcn.h>
#include <stdatomic.h>

#include "../common/nvml_abi.h"
#include "interceptor.h"
#include "limits.h"

#define REAL(name)                                                                                                     \
    __typeof__(&name) real = (__typeof__(&name))hcs_real(HCS_SYM_##name);                                              \
    if (real == NULL)                                                                                                  \
    return NVML_ERROR_FUNCTION_NOT_FOUND

typedef nvmlReturn_t (*init_function)(void);
typedef nvmlReturn_t (*uuid_function)(nvmlDevice_t, char *, unsigned int);
typedef nvmlReturn_t (*by_uuid_function)(const char *, nvmlDevice_t *);
typedef nvmlReturn_t (*memory_function)(nvmlDevice_t, nvmlMemory_t *);

static int card_of(nvmlDevice_t device)
{
    char uuid[NVML_DEVICE_UUID_BUFFER_SIZE];
    uuid_function get_uuid = (uuid_function)hcs_real(HCS_SYM_nvmlDeviceGetUUID);
    if (get_uuid == NULL || get_uuid(device, uuid, sizeof uuid) != NVML_SUCCESS)
        return HCS_CARD_UNLISTED;
    return hcs_card_of_uuid_text("nvidia", uuid);
}

/* ---- memory ------------------------------------------------------------------------------------------------------ */

HCS_EXPORT nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *memory)
{
    REAL(nvmlDeviceGetMemoryInfo);
    if (!hcs_watching())
        return real(device, memory);
    nvmlReturn_t result = real(device, memory);
    if (result == NVML_SUCCESS) {
        size_t free_bytes = memory->free, total_bytes = memory->total;
        hcs_clamp(card_of(device), &free_bytes, &total_bytes);
        *memory = (nvmlMemory_t){.total = total_bytes, .free = free_bytes, .used = total_bytes - free_bytes};
    }
    hcs_leave();
    return result;
}

HCS_EXPORT nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *memory)
{
    REAL(nvmlDeviceGetMemoryInfo_v2);
    if (!hcs_watching())
        return real(device, memory);
    nvmlReturn_t result = real(device, memory);
    if (result == NVML_SUCCESS) {
        size_t free_bytes = memory->free, total_bytes = memory->total;
        hcs_clamp(card_of(device), &free_bytes, &total_bytes);
        memory->total = total_bytes;
        memory->free = free_bytes;
        memory->reserved = 0; /* what the system reserves is outside the share: total stays the sum of the others */
        memory->used = total_bytes - free_bytes;
    }
    hcs_leave();
    return result;
}

bool hcs_nvml_free_memory(int card, uint64_t *bytes)
{
    static _Atomic int loaded; /* 1: yes, 2: there is none */
    const struct hcs_quota *quota = hcs_quota_in_force();
    if (quota == NULL || card < 0 || atomic_load(&loaded) == 2)
        return false;
    if (atomic_load(&loaded) == 0) {
        /* Through our own dlopen: the program's search path decides, as for the driver itself. */
        void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
        hcs_refresh_symbols();
        init_function init = (init_function)hcs_real(HCS_SYM_nvmlInit_v2);
        bool usable = library != NULL && init != NULL && init() == NVML_SUCCESS;
        atomic_store(&loaded, usable ? 1 : 2);
        if (!usable)
            return false;
    }
    by_uuid_function by_uuid = (by_uuid_function)hcs_real(HCS_SYM_nvmlDeviceGetHandleByUUID);
    memory_function get_memory = (memory_function)hcs_real(HCS_SYM_nvmlDeviceGetMemoryInfo);
    nvmlDevice_t device;
    nvmlMemory_t memory;
    if (by_uuid == NULL || get_memory == NULL || by_uuid(quota->cards[card].uuid, &device) != NVML_SUCCESS ||
        get_memory(device, &memory) != NVML_SUCCESS)
        return false;
    *bytes = memory.free;
    return true;
}

/* ---- processes: those of the container --------------------------------------------------------------------------- */

enum { MOST_HOLDERS = 256, NO_INSTANCE = -1 };

/* `room` in *count, and how many there are afterwards; writes through `put`. A buffer that is NULL asks for the number. */
static nvmlReturn_t list(nvmlDevice_t device, unsigned int *count, void *out,
                         void (*put)(void *out, unsigned int index, const struct hcs_holder *holder))
{
    struct hcs_holder holders[MOST_HOLDERS];
    if (count == NULL)
        return NVML_ERROR_INVALID_ARGUMENT;
    uint32_t found = hcs_holders(card_of(device), holders, MOST_HOLDERS);
    if (found > MOST_HOLDERS)
        found = MOST_HOLDERS;
    bool fits = out != NULL ? *count >= found : found == 0;
    *count = found;
    for (uint32_t index = 0; fits && index < found; index++)
        put(out, index, &holders[index]);
    return fits ? NVML_SUCCESS : NVML_ERROR_INSUFFICIENT_SIZE;
}

static void put_old(void *out, unsigned int index, const struct hcs_holder *holder)
{
    ((nvmlProcessInfo_v1_t *)out)[index] = (nvmlProcessInfo_v1_t){.pid = holder->pid, .usedGpuMemory = holder->bytes};
}

static void put_new(void *out, unsigned int index, const struct hcs_holder *holder)
{
    ((nvmlProcessInfo_t *)out)[index] = (nvmlProcessInfo_t){.pid = holder->pid,
                                                            .usedGpuMemory = holder->bytes,
                                                            .gpuInstanceId = (unsigned int)NO_INSTANCE,
                                                            .computeInstanceId = (unsigned int)NO_INSTANCE};
}

/* LIST(put): the body of a hook that lists compute processes. The driver is asked first, so that its own errors stay. */
#define LIST(put)                                                                                                      \
    if (!hcs_watching())                                                                                               \
        return real(device, count, processes);                                                                         \
    unsigned int none = 0;                                                                                             \
    nvmlReturn_t result = real(device, &none, NULL);                                                                   \
    if (result == NVML_SUCCESS || result == NVML_ERROR_INSUFFICIENT_SIZE)                                              \
        result = list(device, count, processes, put);                                                                  \
    hcs_leave();                                                                                                       \
    return result

HCS_EXPORT nvmlReturn_t nvmlDeviceGetComputeRunningProcesses(nvmlDevice_t device, unsigned int *count,
                                                             nvmlProcessInfo_v1_t *processes)
{
    REAL(nvmlDeviceGetComputeRunningProcesses);
    LIST(put_old);
}

HCS_EXPORT nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v2(nvmlDevice_t device, unsigned int *count,
                                                                nvmlProcessInfo_t *processes)
{
    REAL(nvmlDeviceGetComputeRunningProcesses_v2);
    LIST(put_new);
}

HCS_EXPORT nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t device, unsigned int *count,
                                                                nvmlProcessInfo_t *processes)
{
    REAL(nvmlDeviceGetComputeRunningProcesses_v3);
    LIST(put_new);
}

/* Clients of the MPS daemon, which all containers on the card may share. */
HCS_EXPORT nvmlReturn_t nvmlDeviceGetMPSComputeRunningProcesses(nvmlDevice_t device, unsigned int *count,
                                                                nvmlProcessInfo_v1_t *processes)
{
    REAL(nvmlDeviceGetMPSComputeRunningProcesses);
    LIST(put_old);
}

HCS_EXPORT nvmlReturn_t nvmlDeviceGetMPSComputeRunningProcesses_v2(nvmlDevice_t device, unsigned int *count,
                                                                nvmlProcessInfo_t *processes)
{
    REAL(nvmlDeviceGetMPSComputeRunningProcesses_v2);
    LIST(put_new);
}

HCS_EXPORT nvmlReturn_t nvmlDeviceGetMPSComputeRunningProcesses_v3(nvmlDevice_t device, unsigned int *count,
                                                                nvmlProcessInfo_t *processes)
{
    REAL(nvmlDeviceGetMPSComputeRunningProcesses_v3);
    LIST(put_new);
}

/* Graphics is not what we share; whoever draws on the card is a neighbour. */
#define NOBODY()                                                                                                       \
    if (!hcs_watching())                                                                                               \
        return real(device, count, processes);                                                                         \
    unsigned int none = 0;                                                                                             \
    nvmlReturn_t result = real(device, &none, NULL);                                                                   \
    if (result == NVML_ERROR_INSUFFICIENT_SIZE)                                                                        \
        result = NVML_SUCCESS;                                                                                         \
    if (result == NVML_SUCCESS && count != NULL)                                                                       \
        *count = 0;                                                                                                    \
    hcs_leave();                                                                                                       \
    return result

HCS_EXPORT nvmlReturn_t nvmlDeviceGetGraphicsRunningProcesses(nvmlDevice_t device, unsigned int *count,
                                                              nvmlProcessInfo_v1_t *processes)
{
    REAL(nvmlDeviceGetGraphicsRunningProcesses);
    NOBODY();
}

HCS_EXPORT nvmlReturn_t nvmlDeviceGetGraphicsRunningProcesses_v2(nvmlDevice_t device, unsigned int *count,
                                                                 nvmlProcessInfo_t *processes)
{
    REAL(nvmlDeviceGetGraphicsRunningProcesses_v2);
    NOBODY();
}

HCS_EXPORT nvmlReturn_t nvmlDeviceGetGraphicsRunningProcesses_v3(nvmlDevice_t device, unsigned int *count,
                                                                 nvmlProcessInfo_t *processes)
{
    REAL(nvmlDeviceGetGraphicsRunningProcesses_v3);
    NOBODY();
}

HCS_EXPORT nvmlReturn_t nvmlDeviceGetProcessUtilization(nvmlDevice_t device, nvmlProcessUtilizationSample_t *samples,
                                                        unsigned int *count, unsigned long long since)
{
    REAL(nvmlDeviceGetProcessUtilization);
    if (!hcs_watching())
        return real(device, samples, count, since);
    nvmlReturn_t result = real(device, samples, count, since);
    if (result == NVML_SUCCESS && samples != NULL && count != NULL) {
        struct hcs_holder holders[MOST_HOLDERS];
        uint32_t found = hcs_holders(card_of(device), holders, MOST_HOLDERS);
        unsigned int kept = 0;
        for (unsigned int sample = 0; sample < *count; sample++) {
            bool ours = false;
            for (uint32_t index = 0; index < found && index < MOST_HOLDERS; index++)
                ours |= holders[index].pid == samples[sample].pid;
            if (ours)
                samples[kept++] = samples[sample];
        }
        *count = kept;
    }
    hcs_leave();
    return result;
}
