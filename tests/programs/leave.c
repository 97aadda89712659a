/* Leaves in every way that a process can, right after its last allocation.
 *
 * Proves: tprof records the last events even if the process ends without an exit handler.
 *
 * usage: leave HOW N M     N allocations, M frees, the last allocation last
 *
 * build: -pthread */
#include "victim.h"
#include <pthread.h>
#include <signal.h>
#include <sys/syscall.h>

static volatile int *volatile nowhere = (int *)8;
static void *blocks[1 << 20];

static void leave(const char *how) {
    if (!strcmp(how, "return")) return;
    if (!strcmp(how, "exit")) exit(11);
    if (!strcmp(how, "_exit")) _exit(12);
    if (!strcmp(how, "_Exit")) _Exit(13);
#ifdef __GLIBC__
    if (!strcmp(how, "quick_exit")) quick_exit(14);
#endif
    if (!strcmp(how, "exit_group")) syscall(SYS_exit_group, 15);
    if (!strcmp(how, "abort")) abort();
    if (!strcmp(how, "kill")) kill(getpid(), SIGKILL);
    if (!strcmp(how, "term")) kill(getpid(), SIGTERM);
    if (!strcmp(how, "segv")) *nowhere = 1;
    if (!strcmp(how, "pthread_exit")) pthread_exit(NULL);
    _exit(97);
}

int main(int argc, char **argv) {
    const char *how = argc > 1 ? argv[1] : "return";
    long n = argc > 2 ? atol(argv[2]) : 1000, m = argc > 3 ? atol(argv[3]) : 600;
    long i = 0;
    for (; i < n - 1; i++) blocks[i] = victim_take(some_size(i));
    for (long k = 0; k < m; k++) victim_give(blocks[k], some_size(k));
    if (n > 0) {
        long live = sums.live + (long)some_size(i);
        print("expect allocations=%ld frees=%ld bytes=%ld live=%ld peak=%ld\n", sums.allocations + 1,
            sums.frees, sums.bytes + (long)some_size(i), live, live > sums.peak ? live : sums.peak);
        victim_take(some_size(i));
    } else {
        expect();
    }
    leave(how);
    return 10;
}
