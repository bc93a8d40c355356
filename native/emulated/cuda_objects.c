/* Emulated CUDA driver: arrays, modules, libraries and link states, all of them memory of the card without a pointer; and
 * kernels, which do nothing. The image of an emulated module is the text "emulated module BYTES"; any other image takes
 * one page of the card. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda.h"

enum kind { ARRAY, MIPMAPPED, MODULE, LIBRARY, LINK };

struct object {
    enum kind kind;
    CUdevice device;
    CUcontext owner; /* NULL: libraries belong to no context */
    uint64_t charged;
    struct object *next;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct object *objects;

static CUresult create(enum kind kind, uint64_t bytes, void **out)
{
    CUcontext context;
    CUresult result = hcs_cuda_current(&context);
    if (result != CUDA_SUCCESS)
        return result;
    struct object *fresh = calloc(1, sizeof *fresh);
    if (fresh == NULL || !hcs_cuda_take(context->device, bytes)) {
        free(fresh);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *fresh = (struct object){
        .kind = kind, .device = context->device, .owner = kind != LIBRARY ? context : NULL, .charged = bytes};
    pthread_mutex_lock(&lock);
    fresh->next = objects;
    objects = fresh;
    pthread_mutex_unlock(&lock);
    *out = fresh;
    return CUDA_SUCCESS;
}

/* Takes the first object that is this one, or (where it is NULL) belongs to the context, off the list. */
static bool destroy(enum kind kind, const void *wanted, CUcontext owner)
{
    pthread_mutex_lock(&lock);
    struct object **at = &objects;
    while (*at != NULL && (wanted != NULL ? *at != wanted || (*at)->kind != kind : (*at)->owner != owner))
        at = &(*at)->next;
    struct object *found = *at;
    if (found != NULL)
        *at = found->next;
    pthread_mutex_unlock(&lock);
    if (found == NULL)
        return false;
    hcs_cuda_give_back(found->device, found->charged);
    free(found);
    return true;
}

void hcs_cuda_free_objects(CUcontext context)
{
    while (destroy(ARRAY, NULL, context)) {
    }
}

static CUresult answer(bool done)
{
    return done ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

/* ---- arrays ------------------------------------------------------------------------------------------------------ */

HCS_EXPORT CUresult cuArray3DCreate_v2(void **array, const CUDA_ARRAY3D_DESCRIPTOR *wanted)
{
    HCS_FAULT();
    return create(ARRAY, hcs_cuda_array_taken(wanted, 1), array);
}

HCS_EXPORT CUresult cuArrayCreate_v2(void **array, const CUDA_ARRAY_DESCRIPTOR *wanted)
{
    CUDA_ARRAY3D_DESCRIPTOR described = {
        .Width = wanted->Width, .Height = wanted->Height, .Format = wanted->Format, .NumChannels = wanted->NumChannels};
    return cuArray3DCreate_v2(array, &described);
}

HCS_EXPORT CUresult cuMipmappedArrayCreate(void **array, const CUDA_ARRAY3D_DESCRIPTOR *wanted, unsigned int levels)
{
    HCS_FAULT();
    return create(MIPMAPPED, hcs_cuda_array_taken(wanted, levels), array);
}

HCS_EXPORT CUresult cuArrayDestroy(void *array)
{
    return answer(array != NULL && destroy(ARRAY, array, NULL));
}

HCS_EXPORT CUresult cuMipmappedArrayDestroy(void *array)
{
    return answer(array != NULL && destroy(MIPMAPPED, array, NULL));
}

/* ---- code -------------------------------------------------------------------------------------------------------- */

static uint64_t bytes_of(const char *image)
{
    unsigned long long bytes;
    return sscanf(image, "emulated module %llu", &bytes) == 1 ? hcs_cuda_taken(bytes) : HCS_CUDA_PAGE;
}

static CUresult read_image(const char *path, char text[64])
{
    FILE *file = fopen(path, "r");
    if (file == NULL)
        return CUDA_ERROR_NOT_FOUND;
    text[fread(text, 1, 63, file)] = '\0';
    fclose(file);
    return CUDA_SUCCESS;
}

HCS_EXPORT CUresult cuModuleLoadData(void **module, const void *image)
{
    HCS_FAULT();
    return create(MODULE, bytes_of(image), module);
}

HCS_EXPORT CUresult cuModuleLoadDataEx(void **module, const void *image, unsigned int count, int *options, void **values)
{
    (void)count, (void)options, (void)values;
    return cuModuleLoadData(module, image);
}

HCS_EXPORT CUresult cuModuleLoadFatBinary(void **module, const void *image)
{
    return cuModuleLoadData(module, image);
}

HCS_EXPORT CUresult cuModuleLoad(void **module, const char *path)
{
    char text[64];
    CUresult result = read_image(path, text);
    return result == CUDA_SUCCESS ? cuModuleLoadData(module, text) : result;
}

HCS_EXPORT CUresult cuModuleUnload(void *module)
{
    return answer(module != NULL && destroy(MODULE, module, NULL));
}

HCS_EXPORT CUresult cuLibraryLoadData(void **library, const void *code, int *jit_options, void **jit_values,
                                      unsigned int jit_count, int *options, void **values, unsigned int count)
{
    (void)jit_options, (void)jit_values, (void)jit_count, (void)options, (void)values, (void)count;
    return create(LIBRARY, bytes_of(code), library);
}

HCS_EXPORT CUresult cuLibraryLoadFromFile(void **library, const char *path, int *jit_options, void **jit_values,
                                          unsigned int jit_count, int *options, void **values, unsigned int count)
{
    char text[64];
    CUresult result = read_image(path, text);
    return result == CUDA_SUCCESS
               ? cuLibraryLoadData(library, text, jit_options, jit_values, jit_count, options, values, count)
               : result;
}

HCS_EXPORT CUresult cuLibraryUnload(void *library)
{
    return answer(library != NULL && destroy(LIBRARY, library, NULL));
}

HCS_EXPORT CUresult cuLinkCreate_v2(unsigned int count, int *options, void **values, void **state)
{
    (void)count, (void)options, (void)values;
    return create(LINK, 0, state);
}

HCS_EXPORT CUresult cuLinkComplete(void *state, void **image, size_t *bytes)
{
    static char linked[] = "emulated module 2097152";
    (void)state;
    *image = linked;
    *bytes = sizeof linked;
    return CUDA_SUCCESS;
}

HCS_EXPORT CUresult cuLinkDestroy(void *state)
{
    return answer(state != NULL && destroy(LINK, state, NULL));
}

HCS_EXPORT CUresult cuModuleGetFunction(void **function, void *module, const char *name)
{
    (void)name;
    *function = module;
    return CUDA_SUCCESS;
}

HCS_EXPORT CUresult cuLaunchKernel(void *function, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z,
                                   unsigned int block_x, unsigned int block_y, unsigned int block_z,
                                   unsigned int shared_bytes, CUstream stream, void **parameters, void **extra)
{
    (void)function, (void)grid_x, (void)grid_y, (void)grid_z, (void)block_x, (void)block_y, (void)block_z;
    (void)shared_bytes, (void)parameters, (void)extra;
    CUcontext context;
    return hcs_cuda_of_stream(stream, &context);
}
