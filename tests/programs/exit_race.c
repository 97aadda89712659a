/* Calls exit while four threads allocate as fast as they can.
 *
 * Proves: nothing is torn down under threads that are still in a hook.
 *
 * usage: exit_race [exit|_exit|quick_exit]
 *
 * build: -pthread */
#include "victim.h"
#include <pthread.h>

static volatile int started;

static void *busy(void *unused) {
    __atomic_add_fetch(&started, 1, __ATOMIC_SEQ_CST);
    for (long i = 0;; i++) free(victim_take(some_size(i)));
    return unused;
}

int main(int argc, char **argv) {
    const char *how = argc > 1 ? argv[1] : "exit";
    for (int i = 0; i < 4; i++) {
        pthread_t thread;
        pthread_create(&thread, NULL, busy, NULL);
    }
    while (started < 4) usleep(1000);
    usleep(20000);
    print("leaving\n");
    if (!strcmp(how, "_exit")) _exit(5);
    if (!strcmp(how, "quick_exit")) quick_exit(6);
    exit(7);
}
