/* A timer's signal handler maps and unmaps memory while main allocates.
 *
 * Proves: the same as handler_malloc, but with the C library's own allocator, because a handler
 * may map memory whatever it interrupts. */
#include "victim.h"
#include <signal.h>
#include <sys/mman.h>
#include <sys/time.h>

static volatile long handled;

static void on_alarm(int signal) {
    (void)signal;
    int kept = errno;
    char *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    page[0] = 1;
    page = mremap(page, 4096, 8192, MREMAP_MAYMOVE);
    munmap(page, 8192);
    handled++;
    errno = kept;
}

int main(void) {
    struct sigaction action = {.sa_handler = on_alarm, .sa_flags = SA_RESTART};
    sigaction(SIGALRM, &action, NULL);
    struct itimerval timer = {{0, 200}, {0, 200}};
    setitimer(ITIMER_REAL, &timer, NULL);
    void *blocks[64] = {0};
    for (long i = 0; handled < 500; i++) {
        free(blocks[i % 64]);
        blocks[i % 64] = victim_take(some_size(i));
    }
    setitimer(ITIMER_REAL, &(struct itimerval){{0, 0}, {0, 0}}, NULL);
    print("done\n");
    return 0;
}
