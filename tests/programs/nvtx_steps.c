/* Spins for 0.2 s, then takes five steps of 40 ms on a core and a sleep of 60 ms each, in NVTX
 * ranges `step 10` to `step 14` within `train_epoch 2`, and prints how long they took together, ns.
 * Then it sleeps for 20 ms in `save checkpoint`.
 *
 * Proves: a run finds its steps and phases from NVTX ranges.
 *
 * build: -ldl */
#define _GNU_SOURCE
#include "nvtx_own.h"
#include <stdio.h>
#include <time.h>
#include <unistd.h>

static double now(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return t.tv_sec + t.tv_nsec * 1e-9;
}

__attribute__((noinline)) static void spin(double time) {
    double end = now(CLOCK_THREAD_CPUTIME_ID) + time;
    while (now(CLOCK_THREAD_CPUTIME_ID) < end) {
    }
}

int main(void) {
    char name[16];
    spin(0.2);
    double began = now(CLOCK_MONOTONIC);
    nvtxRangePushA("train_epoch 2");
    for (int step = 10; step < 15; step++) {
        snprintf(name, sizeof name, "step %d", step);
        nvtxRangePushA(name);
        spin(0.04);
        usleep(60000);
        nvtxRangePop();
    }
    nvtxRangePop();
    printf("%.0f\n", (now(CLOCK_MONOTONIC) - began) * 1e9);
    nvtxRangePushA("save checkpoint");
    usleep(20000);
    nvtxRangePop();
    return 0;
}
