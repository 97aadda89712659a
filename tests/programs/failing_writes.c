/* Simulates a disk that fails: after FAIL_AFTER writes to a run's files, each further write of
 * tprof fails with EIO. With FAIL_UNTIL, those up to that one fail with ENOSPC. For LD_PRELOAD.
 *
 * build: -shared -fPIC -ldl */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

static int fails(int fd) {
    static int tprof = -1, writes;
    char link[64], path[4096];
    if (tprof < 0) {
        ssize_t length = readlink("/proc/self/exe", path, sizeof path - 1);
        path[length > 0 ? length : 0] = 0;
        const char *name = strrchr(path, '/');
        tprof = name && !strncmp(name, "/tprof", 6);
    }
    const char *most = getenv("FAIL_AFTER");
    if (!tprof || !most)
        return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    path[length > 0 ? length : 0] = 0;
    if (!strstr(path, ".tprof") && !strstr(path, "run.json") && !strstr(path, "/kept-"))
        return 0;
    const char *until = getenv("FAIL_UNTIL");
    errno = until ? ENOSPC : EIO;
    return ++writes > atoi(most) && (!until || writes <= atoi(until));
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

ssize_t write(int fd, const void *bytes, size_t size) {
    return fails(fd) ? -1 : REAL(write)(fd, bytes, size);
}
ssize_t writev(int fd, const struct iovec *parts, int count) {
    return fails(fd) ? -1 : REAL(writev)(fd, parts, count);
}
ssize_t pwrite64(int fd, const void *bytes, size_t size, off64_t at) {
    return fails(fd) ? -1 : REAL(pwrite64)(fd, bytes, size, at);
}
