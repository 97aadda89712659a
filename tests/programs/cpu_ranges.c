/* Spends known CPU time in known NVTX ranges: 0.4 s in `outer`, 0.2 s in `inner`
 * within it, 0.2 s outside of all; and 0.2 s on a thread whose range is its own.
 *
 * Proves: samples are counted by range, and add up.
 *
 * Times are the threads' own CPU time, so that a busy machine changes nothing.
 *
 * build: -ldl -pthread */
#define _GNU_SOURCE
#include "nvtx_own.h"
#include <time.h>

static volatile unsigned long sink;

static double cpu(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return t.tv_sec + t.tv_nsec * 1e-9;
}

#define SPINS(name)                                   \
    __attribute__((noinline)) void name(double time) { \
        double end = cpu() + time;                    \
        while (cpu() < end)                           \
            for (int i = 0; i < 100000; i++) sink += i; \
    }

SPINS(spin_outer)
SPINS(spin_inner)
SPINS(spin_alone)
SPINS(spin_thread)

static void *thread(void *unused) {
    (void)unused;
    nvtxRangePushA("thread");
    spin_thread(0.2);
    nvtxRangePop();
    return NULL;
}

int main(void) {
    pthread_t other;
    pthread_create(&other, NULL, thread, NULL);
    for (int turn = 0; turn < 2; turn++) {
        nvtxRangePushA("outer");
        spin_outer(0.1);
        nvtxRangePushA("inner");
        spin_inner(0.1);
        nvtxRangePop();
        spin_outer(0.1);
        nvtxRangePop();
        spin_alone(0.1);
    }
    pthread_join(other, NULL);
    return 0;
}
