/* Starts and ends 10,000 threads, a hundred at a time, then holds 2,000 at one
 * time.
 *
 * Proves: the resources of a thread are released when it ends, and many threads cause no losses.
 *
 * usage: many_threads TOTAL AT_ONCE
 *
 * build: -pthread */
#include "victim.h"
#include <pthread.h>

static pthread_barrier_t all;
static int waits;

static void *work(void *unused) {
    victim_give(victim_take(50), 50);
    void *block = victim_take(20);
    if (waits) pthread_barrier_wait(&all);
    victim_give(block, 20);
    return unused;
}

static void batch(int n) {
    static pthread_t threads[16384];
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, 65536);
    for (int i = 0; i < n; i++)
        check(pthread_create(&threads[i], &attributes, work, NULL) == 0, "pthread_create");
    for (int i = 0; i < n; i++) pthread_join(threads[i], NULL);
}

int main(int argc, char **argv) {
    int total = argc > 1 ? atoi(argv[1]) : 10000, at_once = argc > 2 ? atoi(argv[2]) : 2000;
    for (int done = 0; done < total; done += 100) batch(100);
    waits = 1;
    pthread_barrier_init(&all, NULL, at_once);
    batch(at_once);
    print("expect allocations=%ld frees=%ld bytes=%ld live=%ld peak=-1\n", sums.allocations, sums.frees,
        sums.bytes, sums.live);
    return 0;
}
