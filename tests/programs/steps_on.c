/* Makes steps of some 10 ms: `steps_on COUNT [HOW]`. In each it allocates and frees some blocks, and
 * prints its number.
 *
 * HOW is what happens in the middle of it. slow: a step takes a second. crashes: a child that has
 * made steps gets SIGSEGV. fails: such a child ends with status 3. child: a child without steps ends
 * with status 1. ends: it ends with status 3 itself. churns: each step allocates and frees many blocks.
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

static void step(int blocks) {
    const struct tprof_abi *tprof = dlsym(RTLD_DEFAULT, "tprof_abi");
    if (tprof) tprof->step(TPROF_NO_NUMBER);
    allocates(blocks);
    usleep(10000);
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
    for (int i = 0; i < steps; i++) {
        step(strcmp(how, "churns") ? 10 : 40000);
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
