/* Runs on an allocator that the build links into the executable: jemalloc or tcmalloc.
 *
 * Proves: the run reports that allocations of such a program could not be recorded.
 *
 * build: -pthread */
#include "victim.h"
#include <pthread.h>

static void *work(void *unused) {
    void *blocks[100];
    for (int round = 0; round < 50; round++) {
        for (long i = 0; i < 100; i++) blocks[i] = victim_take(some_size(i));
        for (long i = 0; i < 100; i++) victim_give(blocks[i], some_size(i));
    }
    return unused;
}

int main(void) {
    pthread_t threads[4];
    for (int i = 0; i < 4; i++) pthread_create(&threads[i], NULL, work, NULL);
    for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
    pid_t pid = fork();
    if (pid == 0) {
        work(NULL);
        exit(3);
    }
    int status;
    waitpid(pid, &status, 0);
    print_status("child", status);
    print("allocations %ld frees %ld\n", sums.allocations, sums.frees);
    return 0;
}
