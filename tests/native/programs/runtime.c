/* Road (e): a program linked to the CUDA runtime alone. Allocates in every way the runtime has, as it is told by its
 * arguments (WAY BYTES ...), and prints the codes, then free and total memory. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern int cudaMalloc(void **, size_t), cudaMallocManaged(void **, size_t, unsigned), cudaMallocAsync(void **, size_t, void *);
extern int cudaMallocPitch(void **, size_t *, size_t, size_t), cudaFree(void *), cudaMemGetInfo(size_t *, size_t *);

int main(int count, char **arguments)
{
    for (int at = 1; at + 1 < count; at += 2) {
        void *pointer = NULL;
        size_t pitch, bytes = strtoull(arguments[at + 1], NULL, 10);
        const char *way = arguments[at];
        int code = strcmp(way, "managed") == 0 ? cudaMallocManaged(&pointer, bytes, 1)
                   : strcmp(way, "async") == 0 ? cudaMallocAsync(&pointer, bytes, NULL)
                   : strcmp(way, "pitch") == 0 ? cudaMallocPitch(&pointer, &pitch, 1000, bytes / 1000)
                                               : cudaMalloc(&pointer, bytes);
        if (strcmp(way, "freed") == 0)
            code = cudaFree(pointer);
        printf("%d ", code);
    }
    size_t free_bytes = 0, total = 0;
    int code = cudaMemGetInfo(&free_bytes, &total);
    printf("%d %zu %zu\n", code, free_bytes, total);
    return 0;
}
