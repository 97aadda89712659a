/* Makes two context switches within a few microseconds, then naps 200 times for 5 ms.
 *
 * Proves: after a burst of switches the kernel samples one switch in hundreds, and the waits
 * that follow still keep their places. */
#include "victim.h"
#include <pthread.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <time.h>

static int asked, answered;

static void *answer(void *unused) {
    uint64_t word;
    for (;;) {
        if (read(asked, &word, sizeof word) < 0 || write(answered, &word, sizeof word) < 0)
            return unused;
    }
}

int main(void) {
    const struct timespec nap = {.tv_nsec = 5000000};
    uint64_t word = 1;
    cpu_set_t one;
    pthread_t thread;

    asked = eventfd(0, 0);
    answered = eventfd(0, 0);
    /* On one processor, each round trip switches between both threads. */
    CPU_ZERO(&one);
    CPU_SET((size_t)sched_getcpu(), &one);
    sched_setaffinity(0, sizeof one, &one);
    pthread_create(&thread, NULL, answer, NULL);
    for (int i = 0; i < 10; i++) {
        if (write(asked, &word, sizeof word) < 0 || read(answered, &word, sizeof word) < 0)
            return 1;
    }
    for (int i = 0; i < 200; i++) nanosleep(&nap, NULL);
    return 0;
}
