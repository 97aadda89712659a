/* Touches and waits a known number of times, in threads and a child.

   Proves: context switches are counted for the thread that makes them. Page faults are counted
   for long-lived threads, and missing for others. */
#define _GNU_SOURCE
#include <pthread.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static void touch(long pages) {
    long size = sysconf(_SC_PAGESIZE);
    volatile char *at =
        mmap(0, pages * size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    madvise((void *)at, pages * size, MADV_NOHUGEPAGE);
    for (long i = 0; i < pages; i++) at[i * size] = 1;
}

/* Long enough for the sampler to see the thread's name. */
static void spin(void) {
    struct timespec now;
    do clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    while (now.tv_nsec < 30000000 && !now.tv_sec);
}

static void *toucher(void *unused) {
    prctl(PR_SET_NAME, "toucher");
    touch(3000);
    spin();
    return unused;
}

static void *sleeper(void *unused) {
    prctl(PR_SET_NAME, "sleeper");
    struct timespec short_time = {0, 2000000};
    for (int i = 0; i < 50; i++) nanosleep(&short_time, 0);
    spin();
    return unused;
}

int main(void) {
    pthread_t threads[2];
    pthread_create(&threads[0], 0, toucher, 0);
    pthread_create(&threads[1], 0, sleeper, 0);
    for (int i = 0; i < 2; i++) pthread_join(threads[i], 0);
    if (fork() == 0) {
        prctl(PR_SET_NAME, "forked");
        touch(2000);
        spin();
        _exit(0);
    }
    wait(0);
    return 0;
}
