/* A timer's signal handler jumps back to main, out of whatever it interrupted.
 *
 * Proves: a hook that is never returned to leaves nothing locked or switched
 * off: what is allocated after 300 such jumps is counted exactly.
 *
 * Linked to an allocator that may be left half-way, so that the program itself
 * is correct. build: bump.so */
#include "victim.h"
#include <setjmp.h>
#include <signal.h>
#include <sys/time.h>

static sigjmp_buf back;
static volatile int jumps;

static void on_alarm(int signal) {
    (void)signal;
    jumps++;
    siglongjmp(back, 1);
}

NOINLINE static void victim_interrupted(void) {
    for (long i = 0;; i++) {
        void *block = malloc(i % 48);
        block = realloc(block, 64);
        free(block);
    }
}

int main(void) {
    struct sigaction action = {.sa_handler = on_alarm};
    sigaction(SIGALRM, &action, NULL);
    sigset_t alarm;
    sigemptyset(&alarm);
    sigaddset(&alarm, SIGALRM);
    struct itimerval timer = {{0, 0}, {0, 300}}, off = {{0, 0}, {0, 0}};
    sigsetjmp(back, 1);
    if (jumps < 300) {
        setitimer(ITIMER_REAL, &timer, NULL);
        victim_interrupted();
    }
    setitimer(ITIMER_REAL, &off, NULL);
    for (long i = 0; i < 1000; i++) {
        void *block = victim_take(some_size(i));
        if (i % 2) victim_give(block, some_size(i));
    }
    say("jumps %d\n", jumps);
    expect();
    return 0;
}
