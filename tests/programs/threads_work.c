/* Threads that allocate: nearly all of their time is in the allocator and its hooks.
 *
 * Proves: in the stacks of threads, the C library's function that starts threads calls the job's
 * function, without a function of tprof between them. tprof's own time in these threads is
 * attributed to tprof.
 * build: -pthread */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdlib.h>
#include <time.h>

static double now(void)
{
    struct timespec at;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &at);
    return at.tv_sec + at.tv_nsec / 1e9;
}

__attribute__((noinline)) static void *victim_works(void *seconds)
{
    static _Thread_local void *kept[64];
    double end = now() + *(double *)seconds;
    unsigned at = 0;
    while (now() < end) {
        for (int i = 0; i < 1000; i++) {
            at = at * 1664525u + 1013904223u;
            void **place = &kept[at >> 26];
            *place = realloc(*place, 2000 + (at >> 8) % 20000);
        }
    }
    for (int i = 0; i < 64; i++)
        free(kept[i]);
    return seconds;
}

int main(void)
{
    double seconds = 0.5;
    pthread_t threads[2];
    for (int i = 0; i < 2; i++)
        pthread_create(&threads[i], NULL, victim_works, &seconds);
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    return 0;
}
