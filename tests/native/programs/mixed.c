/* Allocates at both levels of Ascend's runtime and frees each at the other. Prints the codes. */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

extern int aclInit(const char *), aclrtSetDevice(int32_t), aclrtMalloc(void **, size_t, int), aclrtFree(void *);
extern int rtMalloc(void **, uint64_t, uint32_t, uint16_t), rtFree(void *);

int main(void)
{
    void *upper, *lower;
    int codes[6] = {aclInit(NULL), aclrtSetDevice(0)};
    codes[2] = aclrtMalloc(&upper, 2 << 20, 0);
    codes[3] = rtMalloc(&lower, 2 << 20, 0, 0);
    getchar();
    codes[4] = rtFree(upper);
    codes[5] = aclrtFree(lower);
    for (int index = 0; index < 6; index++)
        printf("%d ", codes[index]);
    printf("\n");
    fflush(stdout);
    getchar();
}
