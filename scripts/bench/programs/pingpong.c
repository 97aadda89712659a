// Measures how long a cache line takes from one core to another, one way, in ns.
// Prints the least of many short rounds: other programs only ever make a round longer.
#include "loop.h"
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

enum { ROUNDS = 200, TURNS = 2000 };
static _Alignas(128) atomic_uint ball;

static void pin(int core) {
    cpu_set_t cores;
    CPU_ZERO(&cores);
    CPU_SET(core, &cores);
    sched_setaffinity(0, sizeof cores, &cores);
}

static void *answer(void *core) {
    pin((int)(intptr_t)core);
    for (unsigned turn = 1; turn < 2 * ROUNDS * TURNS; turn += 2) {
        while (atomic_load_explicit(&ball, memory_order_acquire) != turn) {}
        atomic_store_explicit(&ball, turn + 1, memory_order_release);
    }
    return NULL;
}

int main(void) {
    cpu_set_t allowed;
    sched_getaffinity(0, sizeof allowed, &allowed);
    int cores[2], found = 0;
    for (int core = 0; core < CPU_SETSIZE && found < 2; core++)
        if (CPU_ISSET(core, &allowed)) cores[found++] = core;
    if (found < 2) return 1;
    pin(cores[0]);
    pthread_t other;
    pthread_create(&other, NULL, answer, (void *)(intptr_t)cores[1]);
    double least = 1e9;
    unsigned turn = 0;
    for (int round = 0; round < ROUNDS; round++) {
        uint64_t began = now_ns(CLOCK_MONOTONIC);
        for (int i = 0; i < TURNS; i++) {
            atomic_store_explicit(&ball, ++turn, memory_order_release);
            while (atomic_load_explicit(&ball, memory_order_acquire) == turn) {}
            turn++;
        }
        double one_way = (double)(now_ns(CLOCK_MONOTONIC) - began) / TURNS / 2;
        if (one_way < least) least = one_way;
    }
    pthread_join(other, NULL);
    fprintf(stderr, "one_way_ns=%.1f\n", least);
}
