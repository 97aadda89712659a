/* Spends the CPU time and the sleep, and allocates the heap, that its arguments say:
 * compared SAME_MS ADDED_MS SLEEP_MS BLOCKS THREADS
 *
 * Proves: the comparison of two runs shows what they did differently, by function, wait and
 * site.
 *
 * build: -O1 -fno-omit-frame-pointer -pthread
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdlib.h>
#include <time.h>

#define KEPT __attribute__((noinline, noipa))

static long long now(void) {
    struct timespec time;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return time.tv_sec * 1000000000LL + time.tv_nsec;
}

static volatile unsigned long sink;

/* A macro, since an inlined function would have the time of both functions that spin. */
#define SPIN(ms)                                   \
    do {                                           \
        long long end = now() + (ms) * 1000000LL;  \
        while (now() < end)                        \
            for (int i = 0; i < 20000; i++) sink += i; \
    } while (0)

KEPT static void spin_same(long ms) { SPIN(ms); sink++; }

KEPT static void spin_added(long ms) { SPIN(ms); sink--; }

KEPT static void allocate(long blocks) {
    for (long i = 0; i < blocks; i++) {
        char *block = malloc(1000);
        block[0] = 1;
        sink += block[0];
        free(block);
    }
}

KEPT static void rest(long ms) {
    struct timespec time = {ms / 1000, ms % 1000 * 1000000};
    nanosleep(&time, 0);
    sink++;
}

static void *worker(void *unused) {
    spin_same(20);
    return unused;
}

int main(int count, char **words) {
    if (count != 6) return 2;
    spin_same(atol(words[1]));
    spin_added(atol(words[2]));
    rest(atol(words[3]));
    allocate(atol(words[4]));
    for (long i = atol(words[5]); i > 0; i--) {
        pthread_t thread;
        pthread_create(&thread, 0, worker, 0);
        pthread_join(thread, 0);
    }
    return 0;
}
