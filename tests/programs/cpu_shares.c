/* Spends known CPU time in known functions: two threads, two processes, a deep
 * recursion, and a thread that sleeps.
 *
 * Proves: CPU samples show each function's share, whichever thread or process runs it. A thread
 * that waits is reported as waiting, with the reason.
 *
 * Times are the threads' own CPU time, so that a busy machine changes nothing.
 *
 * build: -pthread */
#include "victim.h"
#include <pthread.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static volatile unsigned long sink;

static double cpu(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return t.tv_sec + t.tv_nsec * 1e-9;
}

#define SPINS(name)                                   \
    __attribute__((noinline)) void name(double time) { \
        double end = cpu() + time;                    \
        while (cpu() < end)                           \
            for (int i = 0; i < 100000; i++) sink += i; \
    }

SPINS(victim_half)
SPINS(victim_third)
SPINS(victim_sixth)

__attribute__((noinline)) void victim_deep(int depth, double time) {
    if (depth == 0)
        victim_sixth(time);
    else
        victim_deep(depth - 1, time);
    sink++;
}

static void *thread(void *unused) {
    (void)unused;
    victim_third(0.4);
    return NULL;
}

static void *victim_sleeper(void *unused) {
    (void)unused;
    struct timespec time = {0, 700 * 1000 * 1000};
    nanosleep(&time, NULL);
    return NULL;
}

int main(void) {
    pthread_t spins, sleeps;
    pthread_create(&spins, NULL, thread, NULL);
    pthread_create(&sleeps, NULL, victim_sleeper, NULL);
    pid_t child = fork();
    if (child == 0) {
        victim_half(0.3);
        _exit(0);
    }
    victim_half(0.3);
    victim_deep(150, 0.2);
    pthread_join(spins, NULL);
    pthread_join(sleeps, NULL);
    waitpid(child, NULL, 0);
    return 0;
}
