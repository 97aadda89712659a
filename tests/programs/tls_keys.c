/* Thread-specific keys whose destructors allocate, free and set the key again,
 * round after round, until the C library gives up.
 *
 * Proves: events are counted even after the library's own destructor for the thread has run.
 *
 * usage: tls_keys THREADS
 *
 * build: -pthread */
#include "victim.h"
#include <limits.h>
#include <pthread.h>

static pthread_key_t keys[8];

static void again(void *value) {
    for (int i = 0; i < 8; i++)
        if (pthread_getspecific(keys[i]) == NULL) {
            victim_give(value, 64);
            pthread_setspecific(keys[i], victim_take(64));
            return;
        }
    victim_give(value, 64);
}

static void *work(void *unused) {
    for (int i = 0; i < 8; i++) pthread_setspecific(keys[i], victim_take(64));
    return unused;
}

int main(int argc, char **argv) {
    int n = argc > 1 ? atoi(argv[1]) : 50;
    for (int i = 0; i < 8; i++) pthread_key_create(&keys[i], again);
    for (int i = 0; i < n; i++) {
        pthread_t thread;
        check(pthread_create(&thread, NULL, work, NULL) == 0, "pthread_create");
        pthread_join(thread, NULL);
    }
    expect();
    return 0;
}
