/* Stands in for libcndev.so: three devices, of which the last has no handle. */
#include <string.h>

struct count { int version; unsigned int number; };
struct uuid { int version; unsigned char uuid[37]; unsigned long long ncs; };
struct versions { int version; unsigned int mcu_major, mcu_minor, mcu_build, major, minor, build; };
int cndevInit(int reserved) { return reserved; }
int cndevGetDeviceCount(struct count *c) { c->number = 3; return c->version != 5; }
int cndevGetDeviceHandleByIndex(int index, int *handle) { *handle = 100 + index; return index == 2; }
const char *cndevGetCardNameStringByDevId(int handle) { return handle >= 100 ? "MLU590-M9" : "?"; }
int cndevGetUUID(struct uuid *u, int handle) { memcpy(u->uuid, "20010001-0000-0000-0000-00000000000", 36); u->uuid[34] = '0' + handle - 100; return u->version != 5; }
int cndevGetVersionInfo(struct versions *v, int handle) { (void)handle; v->major = 6; v->minor = 2; v->build = 10; return v->version != 5; }
