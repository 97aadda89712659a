/* Forks children that leave at once, some of them after a while on a core. None allocates.
 *
 * Proves: a process that is known only from its parent and from samples is listed once.
 *
 * build: */
#include "victim.h"
#include <time.h>

static void spin(long ms) {
    struct timespec from, now;
    clock_gettime(CLOCK_MONOTONIC, &from);
    do clock_gettime(CLOCK_MONOTONIC, &now);
    while ((now.tv_sec - from.tv_sec) * 1000 + (now.tv_nsec - from.tv_nsec) / 1000000 < ms);
}

int main(void) {
    for (int i = 0; i < 8; i++) {
        pid_t pid = fork();
        if (pid == 0) {
            if (i % 2) spin(60);
            _exit(7);
        }
        int status;
        waitpid(pid, &status, 0);
        check(WIFEXITED(status) && WEXITSTATUS(status) == 7, "child");
    }
    /* The collector holds a child's first samples back for a while, so the program must outlast that. */
    spin(400);
    return 0;
}
