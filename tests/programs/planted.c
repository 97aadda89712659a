/* A compiled job that spends its time in one known way, and measures it itself.
 *
 * Proves: `tprof report findings` names the line of a program without Python. The first argument
 * chooses the way. The report must name the line that ends in "HERE" and the way. The job prints
 * lines `expect KEY=SECONDS`. With `calm` as second argument it does the same without the cause.
 * build: -pthread */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define PASSES 40
#define PAUSE_US 30000

static int calm;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static volatile int is_held, is_over;

static double now(clockid_t clock)
{
    struct timespec at;
    clock_gettime(clock, &at);
    return at.tv_sec + at.tv_nsec / 1e9;
}

__attribute__((noinline)) static unsigned victim_mixes(unsigned state, int rounds)
{
    for (int i = 0; i < rounds; i++)
        state = (state ^ (state >> 3)) * 2654435761u + (state % 17) / 3; /* HERE hot */
    return state;
}

static void hot(void)
{
    double began = now(CLOCK_THREAD_CPUTIME_ID);
    unsigned state = 1;
    while (now(CLOCK_THREAD_CPUTIME_ID) - began < (calm ? 0.02 : 1.0))
        state = victim_mixes(state, 100000);
    if (calm)
        usleep(1000000);
    printf("expect cpu=%f\n# %u\n", now(CLOCK_THREAD_CPUTIME_ID) - began, state);
}

__attribute__((noinline)) static long victim_reads(int end)
{
    char byte;
    long got = read(end, &byte, 1); /* HERE file */
    return got + (byte == 'x');
}

static void file(void)
{
    int ends[2];
    double waited = 0;
    pipe(ends);
    if (fork() == 0) {
        for (int i = 0; i < PASSES; i++) {
            if (!calm)
                usleep(PAUSE_US);
            write(ends[1], "x", 1);
        }
        _exit(0);
    }
    for (int i = 0; i < PASSES; i++) {
        double began = now(CLOCK_MONOTONIC);
        victim_reads(ends[0]);
        waited += now(CLOCK_MONOTONIC) - began;
        if (calm)
            usleep(PAUSE_US);
    }
    printf("expect file_io=%f\n", waited);
}

__attribute__((noinline)) static int victim_holds(void)
{
    pthread_mutex_lock(&mutex);
    is_held = 1;
    usleep(calm ? 0 : PAUSE_US); /* HELD */
    pthread_mutex_unlock(&mutex);
    return 0;
}

static void *holder(void *unused)
{
    while (!is_over) {
        victim_holds();
        while (is_held && !is_over)
            usleep(500);
    }
    return unused;
}

__attribute__((noinline)) static int victim_locks(void)
{
    int failed = pthread_mutex_lock(&mutex); /* HERE lock */
    return failed + pthread_mutex_unlock(&mutex);
}

static void lock(void)
{
    double waited = 0;
    pthread_t thread;
    pthread_create(&thread, NULL, holder, NULL);
    for (int i = 0; i < PASSES; i++) {
        while (!is_held)
            usleep(500);
        double began = now(CLOCK_MONOTONIC);
        victim_locks();
        waited += now(CLOCK_MONOTONIC) - began;
        is_held = 0;
        if (calm)
            usleep(PAUSE_US);
    }
    is_over = 1;
    pthread_join(thread, NULL);
    printf("expect lock=%f\n", waited);
}

__attribute__((noinline)) static void *victim_allocates(void *old, size_t size)
{
    free(old);
    return malloc(size);
}

static void churn(void)
{
    static void *kept[256];
    /* More than a thread caches of freed blocks, and with different sizes. */
    unsigned state = 1;
    double began = now(CLOCK_THREAD_CPUTIME_ID);
    while (now(CLOCK_THREAD_CPUTIME_ID) - began < (calm ? 0.02 : 1.0)) {
        for (int i = 0; i < 10000; i++) {
            state = state * 1664525u + 1013904223u;
            unsigned at = state >> 24;
            kept[at] = victim_allocates(kept[at], 1100 + (state >> 8) % 30000);
        }
    }
    if (calm)
        usleep(1000000);
    printf("expect allocated=%f\n", now(CLOCK_THREAD_CPUTIME_ID) - began);
}

int main(int argc, char **argv)
{
    calm = argc > 2 && strcmp(argv[2], "calm") == 0;
    if (strcmp(argv[1], "hot") == 0)
        hot();
    if (strcmp(argv[1], "file") == 0)
        file();
    if (strcmp(argv[1], "lock") == 0)
        lock();
    if (strcmp(argv[1], "churn") == 0)
        churn();
    return 0;
}
