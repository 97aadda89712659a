/* Makes steps of some 10 ms: `steps_on COUNT [HOW [MICROSECONDS]]`. In each it allocates and frees some
 * blocks, and prints its number. MICROSECONDS is how long it sleeps in each instead of 10 ms.
 *
 * HOW is what happens in the middle of it. slow: a step takes a second. plants: three steps do, one that
 * sleeps, one that computes, one that waits for a pipe, a quarter of the steps apart. crashes: a child that has
 * made steps gets SIGSEGV. fails: such a child ends with status 3. child: a child without steps ends
 * with status 1. ends: it ends with status 3 itself. churns: each step allocates and frees many blocks.
 * pauses: seven steps, evenly apart, take three times as long, as one on each day of a week.
 *
 * build: -ldl */
#define _GNU_SOURCE
#include "../../preload-shim/include/tprof.h"
#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

__attribute__((noinline)) static void allocates(int blocks) {
    static void *volatile kept[64];
    for (int i = 0; i < blocks; i++) {
        unsigned drawn = rand();
        free(kept[drawn % 64]);
        kept[drawn % 64] = malloc(drawn % 10000);
    }
}

__attribute__((noinline)) static void is_slow(void) {
    for (int i = 0; i < 10; i++) usleep(100000); /* HERE slow */
}

__attribute__((noinline)) static void computes(void) {
    struct timespec begin, now;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    do {
        for (volatile int i = 0; i < 100000; i++) {} /* HERE computes */
        clock_gettime(CLOCK_MONOTONIC, &now);
    } while ((now.tv_sec - begin.tv_sec) * 1000 + (now.tv_nsec - begin.tv_nsec) / 1000000 < 1000);
}

__attribute__((noinline)) static void waits(void) {
    int ends[2];
    char byte;
    if (pipe(ends) != 0) _exit(97);
    pid_t pid = fork();
    if (pid == 0) {
        sleep(1);
        _exit(write(ends[1], "x", 1) != 1);
    }
    if (read(ends[0], &byte, 1) != 1) _exit(98); /* HERE waits */
    waitpid(pid, 0, 0);
    close(ends[0]), close(ends[1]);
}

static useconds_t pause_us = 10000;

static void step(int blocks) {
    const struct tprof_abi *tprof = dlsym(RTLD_DEFAULT, "tprof_abi");
    if (tprof) tprof->step(TPROF_NO_NUMBER);
    allocates(blocks);
    usleep(pause_us);
}

static void child(int steps, const char *how) {
    pid_t pid = fork();
    if (pid == 0) {
        for (int i = 0; i < steps; i++) step(10);
        if (!strcmp(how, "crashes")) raise(SIGSEGV);
        _exit(steps ? 3 : 1);
    }
    waitpid(pid, 0, 0);
}

int main(int count, char **arguments) {
    int steps = atoi(arguments[1]);
    const char *how = count > 2 ? arguments[2] : "";
    void (*const planted[])(void) = {is_slow, computes, waits};
    if (count > 3) pause_us = atoi(arguments[3]);
    for (int i = 0; i < steps; i++) {
        step(strcmp(how, "churns") ? 10 : 40000);
        if (!strcmp(how, "pauses") && i % (steps / 7) == steps / 14) usleep(2 * pause_us); /* HERE pauses */
        if (!strcmp(how, "plants") && i && i % (steps / 4) == 0 && i / (steps / 4) <= 3)
            planted[i / (steps / 4) - 1]();
        if (i == steps / 2) {
            if (!strcmp(how, "slow")) is_slow();
            if (!strcmp(how, "crashes") || !strcmp(how, "fails")) child(20, how);
            if (!strcmp(how, "child")) child(0, how);
        }
        printf("step %d\n", i);
        fflush(stdout);
    }
    return strcmp(how, "ends") ? 0 : 3;
}
