// malloc_tight PAIRS [THREADS]: calls malloc(64) and free PAIRS times, split over the threads. This
// is the cheapest path of the allocator, so additional cost shows most.
#include "loop.h"
#include <pthread.h>

static uintptr_t per_slice;

static void *pairs(void *is_first) {
    for (int slice = 0; slice < SLICES; slice++) {
        for (uintptr_t left = per_slice; left; left--) {
            char *volatile block = malloc(64);
            *block = 1;
            free(block);
        }
        if (is_first) slice_end();
    }
    return NULL;
}

int main(int argc, char **argv) {
    uintptr_t count = argc > 1 ? strtoul(argv[1], NULL, 10) : 10000000;
    unsigned threads = argc > 2 ? (unsigned)atoi(argv[2]) : 1;
    if (threads < 1 || threads > 64) return 2;
    per_slice = count / threads / SLICES;
    loop_begin();
    pthread_t others[64];
    for (unsigned i = 1; i < threads; i++) pthread_create(&others[i], NULL, pairs, NULL);
    pairs(&loop);
    for (unsigned i = 1; i < threads; i++) pthread_join(others[i], NULL);
    loop_end(2 * per_slice * SLICES * threads);
}
