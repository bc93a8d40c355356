/* Preloaded before the interceptor: the first time that a file is opened whose name ends with NO_FILES, there are no files
 * left to open it with. */
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

int open(const char *path, int flags, ...)
{
    static int refused;
    const char *ending = getenv("NO_FILES");
    size_t length = strlen(path), least = ending != NULL ? strlen(ending) : 0;
    va_list rest;
    va_start(rest, flags);
    int mode = (flags & O_CREAT) != 0 ? va_arg(rest, int) : 0;
    va_end(rest);
    if (ending != NULL && length >= least && strcmp(path + length - least, ending) == 0 && !refused) {
        refused = 1;
        errno = EMFILE;
        return -1;
    }
    return (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
}
