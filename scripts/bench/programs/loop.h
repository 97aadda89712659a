// Prints the results of the timed loops: wall and CPU time of the loop alone, the number of heap
// events in it, and the process's memory at the end. CPU time excludes the time of other programs
// on the machine; wall time includes waits. The first thread also times slices of its loop, each
// about a millisecond long. Their lower quartile is wall time without the slices in which something
// else ran.
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static inline uint64_t now_ns(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

enum { SLICES = 256 };

static struct {
    uint64_t wall, cpu, slice_began, slices[SLICES];
    unsigned count;
} loop;

static inline void loop_begin(void) {
    loop.cpu = now_ns(CLOCK_PROCESS_CPUTIME_ID);
    loop.wall = loop.slice_began = now_ns(CLOCK_MONOTONIC);
}

static inline void slice_end(void) {
    uint64_t now = now_ns(CLOCK_MONOTONIC);
    if (loop.count < SLICES) loop.slices[loop.count++] = now - loop.slice_began;
    loop.slice_began = now;
}

static int by_length(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static inline void loop_end(uint64_t events) {
    uint64_t wall = now_ns(CLOCK_MONOTONIC) - loop.wall;
    uint64_t cpu = now_ns(CLOCK_PROCESS_CPUTIME_ID) - loop.cpu;
    uint64_t slices = wall;
    if (loop.count) {
        qsort(loop.slices, loop.count, sizeof *loop.slices, by_length);
        slices = loop.slices[loop.count / 4] * loop.count;
    }
    fprintf(stderr, "loop_wall_ns=%lu\nloop_cpu_ns=%lu\nloop_slice_ns=%lu\nevents=%lu\n", wall, cpu, slices, events);
    FILE *status = fopen("/proc/self/status", "r");
    char line[256];
    while (status && fgets(line, sizeof line, status)) {
        unsigned long kib;
        if (sscanf(line, "VmHWM: %lu", &kib) == 1) fprintf(stderr, "peak_kib=%lu\n", kib);
        if (sscanf(line, "RssShmem: %lu", &kib) == 1) fprintf(stderr, "shared_kib=%lu\n", kib);
    }
    if (status) fclose(status);
}
