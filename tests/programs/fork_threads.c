/* Forks again and again while other threads allocate. Each child allocates and
 * ends by exit, whose atexit handler allocates as well, or by _exit.
 *
 * Proves: no lock of the profiler is held across fork, and exit in a forked
 * child does not hang.
 *
 * build: -pthread */
#include "victim.h"
#include <pthread.h>

static volatile int stop;

static void *busy(void *unused) {
    while (!stop)
        for (long i = 0; i < 64; i++) free(victim_take(some_size(i)));
    return unused;
}

static void at_end(void) { free(victim_take(77)); }

int main(void) {
    pthread_t threads[4];
    atexit(at_end);
    for (int i = 0; i < 4; i++) pthread_create(&threads[i], NULL, busy, NULL);
    for (int i = 0; i < 40; i++) {
        pid_t pid = fork();
        if (pid == 0) {
            for (long k = 0; k < 200; k++) free(victim_take(some_size(k)));
            if (i % 2) exit(30 + i % 7);
            _exit(30 + i % 7);
        }
        int status;
        check(waitpid(pid, &status, 0) == pid, "waitpid");
        print_status("child", status);
    }
    stop = 1;
    for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
    print("joined\n");
    return 0;
}
