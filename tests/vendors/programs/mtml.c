/* Stands in for libmtml.so: one card; this release has no call for power. */
#include <string.h>

static int root, card, gpu, memory;
int mtmlLibraryInit(void **library) { *library = &root; return 0; }
int mtmlLibraryCountDevice(const void *library, unsigned int *count) { *count = library == &root; return 0; }
int mtmlLibraryInitDeviceByIndex(const void *library, unsigned int index, void **device) { *device = library == &root && index == 0 ? &card : 0; return 0; }
int mtmlDeviceGetName(const void *device, char *name, unsigned int size) { strncpy(name, device == &card ? "MTT S4000" : "", size); return 0; }
int mtmlDeviceGetUUID(const void *device, char *uuid, unsigned int size) { (void)device; strncpy(uuid, "399282a8-ba01-1475-893c-2eeca9e302f5", size); return 0; }
int mtmlDeviceInitGpu(const void *device, void **part) { *part = device == &card ? &gpu : 0; return 0; }
int mtmlDeviceFreeGpu(void *part) { return part != &gpu; }
int mtmlGpuGetUtilization(const void *part, unsigned int *percent) { *percent = 12; return part != &gpu; }
int mtmlGpuGetTemperature(const void *part, unsigned int *degrees) { *degrees = 52; return part != &gpu; }
int mtmlDeviceInitMemory(const void *device, void **part) { *part = device == &card ? &memory : 0; return 0; }
int mtmlDeviceFreeMemory(void *part) { return part != &memory; }
int mtmlMemoryGetTotal(const void *part, unsigned long long *bytes) { *bytes = 48ull << 30; return part != &memory; }
int mtmlMemoryGetUsed(const void *part, unsigned long long *bytes) { *bytes = 5ull << 20; return part != &memory; }
