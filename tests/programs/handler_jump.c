/* A timer's signal handler jumps back to main, out of whatever it interrupted.
 *
 * Proves: a hook that a jump leaves keeps nothing locked or switched off: allocations after 300
 * such jumps are counted exactly.
 *
 * usage: handler_jump [commands]
 *   commands  makes 3,000 jumps for each byte of standard input, and then prints the byte
 *
 * Linked with an allocator that can be left at any point, so that the program itself
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

/* Jumps out of `times` handlers. */
static void jump(int times) {
    struct itimerval timer = {{0, 0}, {0, 300}}, off = {{0, 0}, {0, 0}};
    static int until;
    until = jumps + times;
    sigsetjmp(back, 1);
    if (jumps < until) {
        setitimer(ITIMER_REAL, &timer, NULL);
        victim_interrupted();
    }
    setitimer(ITIMER_REAL, &off, NULL);
}

int main(int argc, char **argv) {
    struct sigaction action = {.sa_handler = on_alarm};
    sigaction(SIGALRM, &action, NULL);
    if (argc > 1 && strcmp(argv[1], "commands") == 0) {
        char command;
        print("ready\n");
        while (read(0, &command, 1) == 1) {
            jump(3000);
            print("%c\n", command);
        }
    } else {
        jump(300);
    }
    for (long i = 0; i < 1000; i++) {
        void *block = victim_take(some_size(i));
        if (i % 2) victim_give(block, some_size(i));
    }
    print("jumps %d\n", jumps);
    expect();
    return 0;
}
