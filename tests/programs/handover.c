/* One thread allocates blocks, another frees them. They are passed through a ring.
 *
 * Proves: tprof puts the events of two threads into their true order. So it does
 * not confuse a block that one thread freed with the next block at that address,
 * and live and peak bytes are the program's own sums.
 *
 * First both threads run freely, then in turns. The peak lies in the turns, whose blocks are
 * much larger, so it is exact.
 *
 * usage: handover N
 *
 * build: -pthread */
#include "victim.h"
#include <pthread.h>
#include <sched.h>

#define RING 64
#define TURNS 50

static struct {
    void *block;
    size_t size;
} ring[RING];
static long head, tail, wanted;
static pthread_barrier_t turn;

static void *give_all(void *unused) {
    for (long i = 0; i < wanted; i++) {
        while (__atomic_load_n(&head, __ATOMIC_ACQUIRE) <= i) sched_yield();
        victim_give(ring[i % RING].block, ring[i % RING].size);
        __atomic_store_n(&tail, i + 1, __ATOMIC_RELEASE);
    }
    pthread_barrier_wait(&turn);
    for (int t = 0; t < TURNS; t++) {
        pthread_barrier_wait(&turn);
        for (int i = 0; i < RING; i++) victim_give(ring[i].block, ring[i].size);
        pthread_barrier_wait(&turn);
    }
    return unused;
}

int main(int argc, char **argv) {
    wanted = argc > 1 ? atol(argv[1]) : 100000;
    pthread_barrier_init(&turn, NULL, 2);
    pthread_t thread;
    pthread_create(&thread, NULL, give_all, NULL);
    for (long i = 0; i < wanted; i++) {
        while (i - __atomic_load_n(&tail, __ATOMIC_ACQUIRE) >= RING) sched_yield();
        ring[i % RING].size = some_size(i);
        ring[i % RING].block = victim_take(some_size(i));
        __atomic_store_n(&head, i + 1, __ATOMIC_RELEASE);
    }
    pthread_barrier_wait(&turn);
    for (int t = 0; t < TURNS; t++) {
        for (int i = 0; i < RING; i++) {
            ring[i].size = 5000 + 10 * t + i;
            ring[i].block = victim_take(ring[i].size);
        }
        pthread_barrier_wait(&turn);
        pthread_barrier_wait(&turn);
    }
    pthread_join(thread, NULL);
    for (long i = 0; i < 10; i++) victim_take(1000 + i);
    expect();
    return 0;
}
