/* A timer's signal handler allocates and maps memory, whatever it interrupted.
 *
 * Proves: a handler that calls a hook may interrupt the same hook at any instruction, and
 * neither record is damaged.
 *
 * usage: handler_malloc HANDLED [expect]
 *
 * Linked to an allocator that is reentrant, so that the program itself is
 * correct. build: bump.so */
#include "victim.h"
#include <signal.h>
#include <sys/mman.h>
#include <sys/time.h>

static volatile long handled, wanted;

NOINLINE static void victim_handler_take(void) {
    for (long i = 0; i < 3; i++) {
        void *block = malloc(some_size(i));
        __atomic_add_fetch(&sums.allocations, 1, __ATOMIC_SEQ_CST);
        if (i) {
            free(block);
            __atomic_add_fetch(&sums.frees, 1, __ATOMIC_SEQ_CST);
        }
    }
}

static void on_alarm(int signal) {
    (void)signal;
    if (handled >= wanted) return;
    victim_handler_take();
    munmap(mmap(NULL, 8192, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), 8192);
    handled++;
}

NOINLINE static void victim_main_take(long i) {
    void *block = malloc(some_size(i));
    __atomic_add_fetch(&sums.allocations, 1, __ATOMIC_SEQ_CST);
    free(block);
    __atomic_add_fetch(&sums.frees, 1, __ATOMIC_SEQ_CST);
}

int main(int argc, char **argv) {
    wanted = argc > 1 ? atol(argv[1]) : 500;
    struct sigaction action = {.sa_handler = on_alarm, .sa_flags = SA_RESTART};
    sigaction(SIGALRM, &action, NULL);
    struct itimerval timer = {{0, 200}, {0, 200}};
    setitimer(ITIMER_REAL, &timer, NULL);
    for (long i = 0; handled < wanted; i++) victim_main_take(i);
    setitimer(ITIMER_REAL, &(struct itimerval){{0, 0}, {0, 0}}, NULL);
    print("handled %ld\n", handled);
    if (argc > 2)
        print("expect allocations=%ld frees=%ld bytes=-1 live=-1 peak=-1\n", sums.allocations, sums.frees);
    return 0;
}
