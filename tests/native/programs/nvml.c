/* Prints what NVML says of its first card, as nvidia-smi would ask: by dlopen and dlsym. One line:
 * total free used | v2: total reserved free used | processes: pid bytes ... (v3, v1) | clients of MPS | graphics |
 * utilisation samples. */
#include <dlfcn.h>
#include <stdio.h>

struct memory {
    unsigned long long total, free, used;
};
struct memory_v2 {
    unsigned version;
    unsigned long long total, reserved, free, used;
};
struct process {
    unsigned pid;
    unsigned long long bytes;
    unsigned instance, compute;
};
struct old_process {
    unsigned pid;
    unsigned long long bytes;
};
struct sample {
    unsigned pid;
    unsigned long long when;
    unsigned rest[4];
};

int main(void)
{
    void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW);
#define FIND(name, ...) __typeof__(__VA_ARGS__) name = (__typeof__(__VA_ARGS__))dlsym(library, #name)
    FIND(nvmlInit_v2, int (*)(void));
    FIND(nvmlDeviceGetHandleByIndex_v2, int (*)(unsigned, void **));
    FIND(nvmlDeviceGetMemoryInfo, int (*)(void *, struct memory *));
    FIND(nvmlDeviceGetMemoryInfo_v2, int (*)(void *, struct memory_v2 *));
    FIND(nvmlDeviceGetComputeRunningProcesses_v3, int (*)(void *, unsigned *, struct process *));
    FIND(nvmlDeviceGetComputeRunningProcesses, int (*)(void *, unsigned *, struct old_process *));
    FIND(nvmlDeviceGetMPSComputeRunningProcesses_v3, int (*)(void *, unsigned *, struct process *));
    FIND(nvmlDeviceGetGraphicsRunningProcesses_v3, int (*)(void *, unsigned *, struct process *));
    FIND(nvmlDeviceGetProcessUtilization, int (*)(void *, struct sample *, unsigned *, unsigned long long));
    void *device;
    struct memory memory;
    struct memory_v2 memory_v2 = {.version = sizeof memory_v2 | 2 << 24};
    struct process processes[16];
    struct old_process old_processes[16];
    struct sample samples[16];
    struct process clients[16];
    unsigned asked = 0, count = 16, client_count = 16, old_count = 16, graphics = 16, sampled = 16;
    int codes[] = {nvmlInit_v2(), nvmlDeviceGetHandleByIndex_v2(0, &device), nvmlDeviceGetMemoryInfo(device, &memory),
                   nvmlDeviceGetMemoryInfo_v2(device, &memory_v2),
                   nvmlDeviceGetComputeRunningProcesses_v3(device, &asked, NULL),
                   nvmlDeviceGetComputeRunningProcesses_v3(device, &count, processes),
                   nvmlDeviceGetComputeRunningProcesses(device, &old_count, old_processes),
                   nvmlDeviceGetGraphicsRunningProcesses_v3(device, &graphics, processes + 8),
                   nvmlDeviceGetProcessUtilization(device, samples, &sampled, 0),
                   nvmlDeviceGetMPSComputeRunningProcesses_v3(device, &client_count, clients)};
    for (unsigned index = 0; index < sizeof codes / sizeof *codes; index++)
        printf("%d ", codes[index]);
    printf("| %llu %llu %llu | %llu %llu %llu %llu | %u", memory.total, memory.free, memory.used, memory_v2.total,
           memory_v2.reserved, memory_v2.free, memory_v2.used, asked);
    for (unsigned index = 0; index < count; index++)
        printf(" %u:%llu", processes[index].pid, processes[index].bytes);
    printf(" |");
    for (unsigned index = 0; index < old_count; index++)
        printf(" %u:%llu", old_processes[index].pid, old_processes[index].bytes);
    printf(" |");
    for (unsigned index = 0; index < client_count; index++)
        printf(" %u:%llu", clients[index].pid, clients[index].bytes);
    printf(" | %u |", graphics);
    for (unsigned index = 0; index < sampled; index++)
        printf(" %u", samples[index].pid);
    printf("\n");
}
