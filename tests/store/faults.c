/* Faults of a file system, by LD_PRELOAD: what a process writes below one folder is counted.

   At the n-th operation the process is killed (a write is torn in half), or the operation fails. Or
   all operations are recorded with their bytes, to replay what a power cut may leave of them.
   tests/store/crashes.py tells the story. Operations on SQLite's shared memory do not count: no
   crash keeps them. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

enum { NOTHING, KILL, FAIL, FAIL_ON };

static char root[PATH_MAX];
static long counted, wanted;
static int mode, error_code, only_syncs;
static int record = -1;

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

/* Set what happens to operations below `folder` from now on. `log` is a file descriptor, or -1. */
void faults_arm(const char *folder, int how, long at, int code, int syncs, int log) {
    snprintf(root, sizeof root, "%s/", folder);
    counted = 0, wanted = at, mode = how, error_code = code, only_syncs = syncs, record = log;
}

long faults_count(void) { return counted; }

static void log_bytes(const void *data, size_t size) {
    const char *at = data;
    while (size > 0) {
        ssize_t done = REAL(write)(record, at, size);
        if (done <= 0) abort();
        at += done, size -= done;
    }
}

/* One line, and after it `size` bytes of data. */
static void log_operation(const char *what, const char *path, const char *other, off_t offset,
                          const void *data, size_t size) {
    if (record < 0) return;
    char line[3 * PATH_MAX];
    int length = snprintf(line, sizeof line, "%s\t%s\t%s\t%lld\t%zu\n", what, path, other,
                          (long long)offset, size);
    log_bytes(line, length);
    if (data) log_bytes(data, size);
}

/* Note something between the operations, such as what was acknowledged. */
void faults_note(const char *text) { log_operation("note", text, "", 0, NULL, 0); }

static int is_ours(const char *path) {
    size_t length = strlen(path);
    if (!root[0] || strncmp(path, root, strlen(root)) != 0) return 0;
    return length < 4 || strcmp(path + length - 4, "-shm") != 0;
}

/* Find the path of an open file. Return whether it counts. */
static int find_path(int descriptor, char *path) {
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    ssize_t length = readlink(link, path, PATH_MAX - 1);
    if (length <= 0) return 0;
    path[length] = 0;
    if (!strstr(path, " (deleted)") && root[0] && !strcmp(path, "") == 0) {
        size_t size = strlen(root) - 1;
        if (strlen(path) == size && strncmp(path, root, size) == 0) return 1; /* the folder */
    }
    return !strstr(path, " (deleted)") && is_ours(path);
}

/* Count an operation. Return whether it must fail; errno is set then. */
static int count(int is_sync) {
    counted++;
    if (mode == NOTHING || (only_syncs && !is_sync)) return 0;
    if (mode == KILL && counted == wanted) kill(getpid(), SIGKILL);
    if ((mode == FAIL && counted == wanted) || (mode == FAIL_ON && counted >= wanted)) {
        errno = error_code;
        return 1;
    }
    return 0;
}

static int is_last(void) { return mode == KILL && counted + 1 == wanted && !only_syncs; }

ssize_t write(int descriptor, const void *data, size_t size) {
    char path[PATH_MAX];
    if (!find_path(descriptor, path)) return REAL(write)(descriptor, data, size);
    if (is_last()) REAL(write)(descriptor, data, size / 2);
    if (count(0)) return -1;
    off_t offset = lseek(descriptor, 0, SEEK_CUR);
    ssize_t done = REAL(write)(descriptor, data, size);
    if (done > 0) log_operation("write", path, "", offset, data, done);
    return done;
}

#define DEFINE_PWRITE(name, type)                                                \
    ssize_t name(int descriptor, const void *data, size_t size, type offset) {   \
        char path[PATH_MAX];                                                     \
        if (!find_path(descriptor, path))                                        \
            return REAL(name)(descriptor, data, size, offset);                   \
        if (is_last()) REAL(name)(descriptor, data, size / 2, offset);           \
        if (count(0)) return -1;                                                 \
        ssize_t done = REAL(name)(descriptor, data, size, offset);               \
        if (done > 0) log_operation("write", path, "", offset, data, done);      \
        return done;                                                             \
    }
DEFINE_PWRITE(pwrite, off_t)
DEFINE_PWRITE(pwrite64, off64_t)

#define DEFINE_TRUNCATE(name, type)                                              \
    int name(int descriptor, type length) {                                      \
        char path[PATH_MAX];                                                     \
        if (!find_path(descriptor, path)) return REAL(name)(descriptor, length); \
        if (count(0)) return -1;                                                 \
        int done = REAL(name)(descriptor, length);                               \
        if (done == 0) log_operation("truncate", path, "", length, NULL, 0);     \
        return done;                                                             \
    }
DEFINE_TRUNCATE(ftruncate, off_t)
DEFINE_TRUNCATE(ftruncate64, off64_t)

#define DEFINE_ALLOCATE(name, type)                                                             \
    int name(int descriptor, type offset, type length) {                                        \
        char path[PATH_MAX];                                                                    \
        if (!find_path(descriptor, path)) return REAL(name)(descriptor, offset, length);        \
        if (count(0)) return errno;                                                             \
        int done = REAL(name)(descriptor, offset, length);                                      \
        if (done == 0) log_operation("allocate", path, "", offset + length, NULL, 0);           \
        return done;                                                                            \
    }
DEFINE_ALLOCATE(posix_fallocate, off_t)
DEFINE_ALLOCATE(posix_fallocate64, off64_t)

#define DEFINE_SYNC(name)                                                \
    int name(int descriptor) {                                           \
        char path[PATH_MAX];                                             \
        if (!find_path(descriptor, path)) return REAL(name)(descriptor); \
        if (count(1)) return -1;                                         \
        int done = REAL(name)(descriptor);                               \
        if (done == 0) log_operation("sync", path, "", 0, NULL, 0);      \
        return done;                                                     \
    }
DEFINE_SYNC(fsync)
DEFINE_SYNC(fdatasync)

int rename(const char *from, const char *to) {
    if (!is_ours(to)) return REAL(rename)(from, to);
    if (count(0)) return -1;
    int done = REAL(rename)(from, to);
    if (done == 0) log_operation("rename", from, to, 0, NULL, 0);
    return done;
}

int link(const char *from, const char *to) {
    if (!is_ours(to)) return REAL(link)(from, to);
    if (count(0)) return -1;
    return REAL(link)(from, to);
}

int unlink(const char *path) {
    if (!is_ours(path)) return REAL(unlink)(path);
    if (count(0)) return -1;
    int done = REAL(unlink)(path);
    if (done == 0) log_operation("unlink", path, "", 0, NULL, 0);
    return done;
}

/* Only what makes or empties a file counts. */
#define DEFINE_OPEN(name)                                                                    \
    int name(const char *path, int flags, ...) {                                             \
        va_list rest;                                                                        \
        va_start(rest, flags);                                                               \
        int rights = flags & O_CREAT ? va_arg(rest, int) : 0;                                \
        va_end(rest);                                                                        \
        int changes = is_ours(path) && ((flags & O_CREAT && access(path, F_OK) != 0) ||      \
                                        (flags & O_TRUNC && access(path, F_OK) == 0));       \
        if (changes && count(0)) return -1;                                                  \
        int descriptor = REAL(name)(path, flags, rights);                                    \
        if (changes && descriptor >= 0) log_operation("create", path, "", 0, NULL, 0);       \
        return descriptor;                                                                   \
    }
DEFINE_OPEN(open)
DEFINE_OPEN(open64)
