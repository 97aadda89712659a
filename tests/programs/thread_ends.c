/* Ends threads by return, pthread_exit and cancellation, with cleanup handlers
 * that free; some are detached.
 *
 * Proves: the events of a thread are counted in whichever way it ends.
 *
 * build: -pthread */
#include "victim.h"
#include <pthread.h>
#include <semaphore.h>

static sem_t ready, ended;

static void clean(void *block) { victim_give(block, 90); }

static void *work(void *how) {
    void *block = victim_take(90);
    pthread_cleanup_push(clean, block);
    for (long i = 0; i < 100; i++) victim_give(victim_take(some_size(i)), some_size(i));
    if (how == (void *)1) pthread_exit((void *)5);
    if (how == (void *)2) {
        sem_post(&ready);
        for (;;) pause();
    }
    if (how == (void *)3) {
        int old;
        pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, &old);
        sem_post(&ready);
        for (volatile long spin = 0;; spin++) {
        }
    }
    pthread_cleanup_pop(1);
    if (how == (void *)4) sem_post(&ended);
    return (void *)6;
}

int main(void) {
    sem_init(&ready, 0, 0);
    sem_init(&ended, 0, 0);
    for (long i = 0; i < 50; i++) {
        long how = i % 5;
        pthread_t thread;
        pthread_create(&thread, NULL, work, (void *)how);
        if (how == 4) {
            pthread_detach(thread);
            sem_wait(&ended);
            continue;
        }
        if (how == 2 || how == 3) {
            sem_wait(&ready);
            pthread_cancel(thread);
        }
        void *result;
        pthread_join(thread, &result);
        print("%ld gave %ld\n", how, (long)result);
    }
    expect();
    return 0;
}
