/* Makes 20 steps, none for some seconds, and 5 steps more: `goes_quiet HOW SECONDS`.
 *
 * HOW is what it does without steps. sleeps: nothing. computes: it computes, as an evaluation does.
 * compiles: it waits for a child that computes. writes: it writes a file slowly, as a checkpoint is
 * written. begins: it sleeps before its first step instead. stays: it sleeps and ignores SIGTERM.
 *
 * build: -ldl */
#define _GNU_SOURCE
#include "../../preload-shim/include/tprof.h"
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec / 1e9;
}

__attribute__((noinline)) static void sleeps(double until) {
    while (now() < until) usleep(100000); /* HERE sleeps */
}

__attribute__((noinline)) static void computes(double until) {
    volatile unsigned sum = 1;
    while (now() < until) {
        for (int i = 0; i < 10000000; i++) sum = sum * 3 + 1; /* HERE computes */
    }
}

/* Where waitpid is not the last call, this function stays on the stack. */
static volatile pid_t ended;

__attribute__((noinline)) static void compiles(double until) {
    pid_t child = fork();
    if (child == 0) {
        computes(until);
        _exit(0);
    }
    ended = waitpid(child, 0, 0); /* HERE compiles */
}

static void writes(double until) {
    static char part[1 << 20];
    int file = open("checkpoint", O_CREAT | O_WRONLY | O_TRUNC, 0600);
    while (now() < until) {
        if (pwrite(file, part, sizeof part, 0) < 0) perror("pwrite");
        usleep(50000);
    }
    close(file);
}

static void steps(int count) {
    const struct tprof_abi *tprof = dlsym(RTLD_DEFAULT, "tprof_abi");
    for (int i = 0; i < count; i++) {
        if (tprof) tprof->step(TPROF_NO_NUMBER);
        usleep(10000);
    }
}

int main(int count, char **arguments) {
    const char *how = count > 1 ? arguments[1] : "sleeps";
    double for_seconds = count > 2 ? atof(arguments[2]) : 1e9;
    if (!strcmp(how, "begins")) {
        sleeps(now() + for_seconds);
    }
    if (!strcmp(how, "stays")) signal(SIGTERM, SIG_IGN);
    steps(20);
    double until = now() + for_seconds;
    if (!strcmp(how, "sleeps") || !strcmp(how, "stays")) sleeps(until);
    if (!strcmp(how, "computes")) computes(until);
    if (!strcmp(how, "compiles")) compiles(until);
    if (!strcmp(how, "writes")) writes(until);
    steps(5);
    return 0;
}
