/* A library whose threads allocate and never return; python_ends.py calls it.
 *
 * build: -shared -fPIC */
#include <stdatomic.h>
#include <sched.h>
#include <stdlib.h>

static atomic_int entered;

__attribute__((noreturn)) void victim_allocate_for_ever(void) {
    atomic_fetch_add(&entered, 1);
    for (size_t size = 100000;; size = 90000 + (size * 31) % 20000) {
        char *volatile block = malloc(size);
        free(block);
    }
}

/* Returns once this many threads are allocating. */
void victim_wait_for(int threads) {
    while (atomic_load(&entered) < threads) {
        sched_yield();
    }
}
