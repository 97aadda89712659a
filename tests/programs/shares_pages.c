/* Touches 64 MiB, then forks workers that read them and stay for a while.
 *
 * Proves: resident memory of several processes counts a page that they share once.
 *
 * usage: shares_pages WORKERS MS
 *
 * build: */
#include "victim.h"
#include <sys/mman.h>

#define BYTES (64l << 20)

int main(int argc, char **argv) {
    int workers = argc > 1 ? atoi(argv[1]) : 4;
    useconds_t stay = (argc > 2 ? atoi(argv[2]) : 2500) * 1000;
    int flags = MAP_PRIVATE | MAP_ANONYMOUS;
    volatile char *pages = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, flags, -1, 0);
    check(pages != MAP_FAILED, "mmap");
    for (long i = 0; i < BYTES; i += 4096) pages[i] = 1;
    usleep(300000);
    for (int i = 0; i < workers; i++)
        if (fork() == 0) {
            long sum = 0;
            for (long at = 0; at < BYTES; at += 4096) sum += pages[at];
            /* The allocation makes the process attach; tprof reads no memory of a process that allocates nothing. */
            victim_give(victim_take(100), 100);
            usleep(stay);
            _exit(sum == BYTES / 4096 ? 0 : 1);
        }
    for (int i = 0, status; i < workers; i++) {
        wait(&status);
        check(status == 0, "worker");
    }
    return 0;
}
