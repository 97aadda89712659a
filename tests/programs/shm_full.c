/* Fills /dev/shm to the last page and goes on allocating, with new threads and
 * children.
 *
 * Proves: recording takes none of the container's shared memory, and needs none.
 *
 * build: -pthread */
#include "victim.h"
#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>

static void *work(void *unused) {
    for (int round = 0; round < 20; round++)
        for (long i = 0; i < 1000; i++) victim_give(victim_take(some_size(i)), some_size(i));
    return unused;
}

int main(void) {
    static char page[4096];
    work(NULL);
    int fd = open("/dev/shm/fill", O_RDWR | O_CREAT | O_EXCL, 0600);
    check(fd >= 0, "open");
    long pages = 0;
    while (write(fd, page, sizeof page) == sizeof page) pages++;
    print("full after %ld pages, errno %d\n", pages, errno);
    pthread_t threads[8];
    for (int i = 0; i < 8; i++) check(pthread_create(&threads[i], NULL, work, NULL) == 0, "pthread_create");
    for (int i = 0; i < 8; i++) pthread_join(threads[i], NULL);
    for (int i = 0; i < 5; i++) {
        pid_t pid = fork();
        if (pid == 0) {
            work(NULL);
            _exit(3);
        }
        int status;
        waitpid(pid, &status, 0);
        print_status("child", status);
    }
    unlink("/dev/shm/fill");
    print("expect allocations=%ld frees=%ld bytes=-1 live=-1 peak=-1\n", sums.allocations + 5 * 20000,
        sums.frees + 5 * 20000);
    return 0;
}
