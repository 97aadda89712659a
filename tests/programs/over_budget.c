/* Allocates so much, or so little, that recording costs far more, or far less, than a budget.
 *
 * Proves: what costs too much is recorded less from some moment on, the sums stay exact, and a
 * process that costs little is recorded as before.
 *
 * usage: over_budget heavy    allocates at the end of a deep stack, until stdin ends
 *        over_budget light    works for some seconds of CPU time, and hardly allocates
 *        over_budget child    a forked child is heavy until stdin ends; the parent only waits
 * build: -O1 */
#include "victim.h"
#include <poll.h>
#include <time.h>

static void *volatile kept[64];

static int has_input(void) {
    struct pollfd input = {0, POLLIN, 0};
    return poll(&input, 1, 0) != 0;
}

/* The calls differ in depth, and each does something after the next, so that all have frames. */
NOINLINE static long victim_deep(int depth, long i) {
    if (depth > 0) return victim_deep(depth - 1, i) + (i ^ depth);
    size_t size = some_size(i);
    void *block = victim_take(size);
    victim_give(block, size);
    return (long)size;
}

NOINLINE static void victim_before(void) {
    for (int i = 0; i < 7; i++) kept[i] = victim_take(1000);
}

NOINLINE static void victim_after(void) {
    for (int i = 0; i < 11; i++) kept[20 + i] = victim_take(2000);
}

static void heavy(void) {
    victim_before();
    long sum = 0;
    for (long i = 0; i % 4096 || !has_input(); i++) {
        sum += victim_deep(20 + i % 20, i);
        /* Some work, so that the run stays small. */
        for (volatile int work = 0; work < 1000; work++) {}
    }
    kept[63] = (void *)sum;
    victim_after();
    for (int i = 0; i < 3; i++) victim_give(kept[i], 1000);
}

static void light(void) {
    struct timespec now = {0};
    for (volatile long i = 0; now.tv_sec < 6; i++) {
        if (i % 10000000 == 0) victim_deep(20, i);
        if (i % 100000 == 0) clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    }
}

int main(int argc, char **argv) {
    check(argc == 2, "usage");
    if (!strcmp(argv[1], "light")) light();
    if (!strcmp(argv[1], "heavy")) {
        print("ready\n");
        heavy();
    }
    if (!strcmp(argv[1], "child")) {
        pid_t child = fork();
        if (child == 0) {
            heavy();
            expect();
            _exit(0);
        }
        print("child %d\n", child);
        int status = 0;
        waitpid(child, &status, 0);
        return 0;
    }
    expect();
    return 0;
}
