/* Preloaded before the interceptor: says on the file named by LOW_FILES when a ledger is measured through a descriptor that
 * a program believes to be its standard input, output or error. */
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

off_t lseek(int file, off_t offset, int whence)
{
    off_t (*real)(int, off_t, int) = (off_t(*)(int, off_t, int))dlsym(RTLD_NEXT, "lseek");
    char link[32], path[512];
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t length = readlink(link, path, sizeof path - 1);
    path[length > 0 ? length : 0] = '\0';
    if (file >= 0 && file <= 2 && strstr(path, "/ledger") != NULL) {
        int note = open(getenv("LOW_FILES"), O_WRONLY | O_CREAT | O_APPEND, 0600);
        if (note >= 0 && write(note, "low\n", 4) == 4)
            close(note);
    }
    return real(file, offset, whence);
}
