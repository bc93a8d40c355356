/* Process identity from /proc, without allocation: this runs inside other people's programs. */
#include "processes.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

enum { THREADS_FIELD = 20, START_TIME_FIELD = 22, FIRST_FIELD_AFTER_NAME = 3 };

static size_t append_text(char *buffer, size_t at, const char *text)
{
    size_t length = strlen(text);
    memcpy(buffer + at, text, length);
    return at + length;
}

static size_t append_number(char *buffer, size_t at, uint64_t number)
{
    char digits[20];
    size_t count = 0;
    do {
        digits[count++] = (char)('0' + number % 10);
        number /= 10;
    } while (number != 0);
    while (count > 0)
        buffer[at++] = digits[--count];
    return at;
}

bool hcs_process_parse_stat(const char *text, size_t length, char *state, uint64_t *threads, uint64_t *start_time)
{
    const char *end = text + length;
    const char *cursor = end;
    while (cursor > text && cursor[-1] != ')')
        cursor--;
    if (cursor == text)
        return false;
    int field = FIRST_FIELD_AFTER_NAME - 1;
    *threads = 0;
    while (cursor < end) {
        while (cursor < end && *cursor == ' ')
            cursor++;
        const char *start = cursor;
        while (cursor < end && *cursor != ' ' && *cursor != '\n')
            cursor++;
        if (cursor == start)
            return false;
        field++;
        if (field == FIRST_FIELD_AFTER_NAME)
            *state = *start;
        if (field == THREADS_FIELD || field == START_TIME_FIELD) {
            uint64_t number = 0;
            for (const char *digit = start; digit < cursor && *digit >= '0' && *digit <= '9'; digit++)
                number = number * 10 + (uint64_t)(*digit - '0');
            if (field == START_TIME_FIELD) {
                *start_time = number;
                return true;
            }
            *threads = number;
        }
    }
    return false;
}

static bool read_stat(uint32_t pid, char *state, uint64_t *threads, uint64_t *start_time)
{
    char path[48];
    size_t at = append_text(path, 0, "/proc/");
    at = append_number(path, at, pid);
    at = append_text(path, at, "/stat");
    path[at] = '\0';
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return false;
    char text[1024];
    ssize_t length = read(file, text, sizeof text);
    close(file);
    return length > 0 && hcs_process_parse_stat(text, (size_t)length, state, threads, start_time);
}

static uint64_t own_pid_namespace(void)
{
    /* The link reads "pid:[4026531836]". readlink instead of stat: stat's symbol version is newer than glibc 2.17. */
    char link[64];
    ssize_t length = readlink("/proc/self/ns/pid", link, sizeof link);
    uint64_t inode = 0;
    for (ssize_t at = 0; at < length; at++)
        if (link[at] >= '0' && link[at] <= '9')
            inode = inode * 10 + (uint64_t)(link[at] - '0');
    return inode;
}

struct hcs_process hcs_process_self(void)
{
    struct hcs_process self = {.pid = (uint32_t)getpid(), .pid_namespace = own_pid_namespace()};
    char state;
    uint64_t threads;
    if (!read_stat(self.pid, &state, &threads, &self.start_time))
        self.start_time = 0;
    return self;
}

bool hcs_process_alive(const struct hcs_process *process, uint64_t own_namespace)
{
    if (process->pid_namespace != own_namespace)
        return true;
    int saved_errno = errno;
    bool gone = kill((pid_t)process->pid, 0) != 0 && errno == ESRCH;
    bool alive = !gone;
    char state;
    uint64_t threads, start_time;
    if (alive && read_stat(process->pid, &state, &threads, &start_time)) {
        /* A zombie with threads is a program whose main thread ended first: its memory is still in use. */
        if ((state == 'Z' || state == 'X') && threads <= 1)
            alive = false;
        if (process->start_time != 0 && start_time != process->start_time)
            alive = false;
    }
    errno = saved_errno;
    return alive;
}
