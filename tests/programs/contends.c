/* Four threads that hold one lock in turn, and a first thread that waits for their end.
 *
 * Proves: waiting for a thread is not waiting for a lock, and a thread that a lock keeps from
 * its work is not idle.
 *
 * build: -pthread */
#include "victim.h"
#include <pthread.h>
#include <time.h>

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static volatile unsigned long sum;

__attribute__((noinline)) static void victim_works(void) {
    struct timespec pause = {0, 4000000}, rest = {0, 100000};
    pthread_mutex_lock(&mutex); /* HERE lock */
    nanosleep(&pause, NULL);
    sum++;
    pthread_mutex_unlock(&mutex);
    nanosleep(&rest, NULL);
}

static void *works(void *argument) {
    for (int i = 0; i < 60; i++) victim_works();
    return argument;
}

int main(void) {
    pthread_t threads[4];
    for (int i = 0; i < 4; i++) pthread_create(&threads[i], NULL, works, NULL);
    for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
    printf("%lu\n", sum);
    return sum == 240 ? 0 : 1;
}
