/* Prints which descriptors it has, before and after allocating, and which number
 * its first open gets.
 *
 * Proves: the job's descriptor numbers are its own. */
#include "victim.h"
#include <dirent.h>
#include <fcntl.h>
#include <sys/syscall.h>

static int compare(const void *a, const void *b) { return *(const int *)a - *(const int *)b; }

static void list(const char *when) {
    char buffer[8192];
    int fds[512], count = 0, here = open("/proc/self/fd", O_RDONLY | O_DIRECTORY);
    for (;;) {
        long n = syscall(SYS_getdents64, here, buffer, sizeof buffer);
        if (n <= 0) break;
        for (long at = 0; at < n;) {
            struct dirent64 *entry = (struct dirent64 *)(buffer + at);
            int fd = atoi(entry->d_name);
            if (entry->d_name[0] != '.' && fd != here && count < 512) fds[count++] = fd;
            at += entry->d_reclen;
        }
    }
    close(here);
    qsort(fds, count, sizeof *fds, compare);
    print("%s:", when);
    for (int i = 0; i < count; i++) print(" %d", fds[i]);
    print(" (listed through %d)\n", here);
}

int main(void) {
    int fd = open("/dev/null", O_RDONLY);
    print("first open gives %d\n", fd);
    list("at start");
    close(fd);
    for (long i = 0; i < 10000; i++) free(victim_take(some_size(i)));
    list("at end");
    return 0;
}
