/* Runs, sleeps, reads and waits within spans.
 *
 * `spin` computes for 0.3 s of its thread's CPU time, and `sleep` sleeps for 0.2 s. `read` reads a
 * pipe into which a thread writes once the reader has slept for 0.1 s in the kernel. `mixed` contains
 * one more `spin` and one more `sleep`. `naps` sleeps 400 times for 100 microseconds. `other` computes
 * for 0.1 s on a second thread. Any thread may end `handed`. For each span but the last, the program
 * prints the CPU time and the time in which it computed and was on a core, in ns. The second time is
 * longer if a hypervisor took the core away, which the thread's CPU time excludes and no switch
 * between threads shows.
 *
 * Proves: tprof divides the time within a span into running and waiting as the program does.
 *
 * build: -ldl -lpthread */
#define _GNU_SOURCE
#include "../../preload-shim/include/tprof.h"
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static const struct tprof_abi *tprof;
static struct tprof_name spin_name = TPROF_NAME("spin"), sleep_name = TPROF_NAME("sleep");
static struct tprof_name read_name = TPROF_NAME("read"), mixed_name = TPROF_NAME("mixed");
static struct tprof_name naps_name = TPROF_NAME("naps"), other_name = TPROF_NAME("other");
static struct tprof_name handed_name = TPROF_NAME("handed");
static int pipes[2];
static __thread int64_t on_core;

static int64_t now(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

/* The time that the thread waited for a core so far: the second number of its `schedstat`. Zero where the
 * kernel does not count it. */
static int64_t delayed(void) {
    char text[128];
    int file = open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC);
    ssize_t length = file < 0 ? -1 : read(file, text, sizeof text - 1);
    if (file >= 0) close(file);
    if (length < 0) return 0;
    text[length] = 0;
    char *second = strchr(text, ' ');
    return second ? strtoll(second, NULL, 10) : 0;
}

__attribute__((noinline)) static void compute(int64_t ns) {
    int64_t start = now(CLOCK_MONOTONIC), delay = delayed();
    int64_t end = now(CLOCK_THREAD_CPUTIME_ID) + ns;
    while (now(CLOCK_THREAD_CPUTIME_ID) < end) {
    }
    on_core += now(CLOCK_MONOTONIC) - start - (delayed() - delay);
}

static void nap(int64_t ns) {
    struct timespec t = {0, ns};
    nanosleep(&t, NULL);
}

static void *write_late(void *unused) {
    nap(100000000);
    if (write(pipes[1], "x", 1) != 1) return NULL;
    return unused;
}

static void spin(void) {
    tprof->push(&spin_name);
    compute(300000000);
    tprof->pop();
}

static void sleeps(void) {
    tprof->push(&sleep_name);
    nap(200000000);
    tprof->pop();
}

static void reads(void) {
    char byte;
    pthread_t writer;
    pthread_create(&writer, NULL, write_late, NULL);
    tprof->push(&read_name);
    if (read(pipes[0], &byte, 1) != 1) _exit(1);
    tprof->pop();
    pthread_join(writer, NULL);
}

static void mixed(void) {
    tprof->push(&mixed_name);
    spin();
    sleeps();
    tprof->pop();
}

static void naps(void) {
    tprof->push(&naps_name);
    for (int i = 0; i < 400; i++) nap(100000);
    tprof->pop();
}

static void timed(const char *name, void (*work)(void)) {
    int64_t cpu = now(CLOCK_THREAD_CPUTIME_ID);
    on_core = 0;
    work();
    cpu = now(CLOCK_THREAD_CPUTIME_ID) - cpu;
    printf("%s %lld %lld\n", name, (long long)cpu, (long long)on_core);
}

static void computes(void) {
    tprof->push(&other_name);
    compute(100000000);
    tprof->pop();
}

static void *second(void *unused) {
    timed("other", computes);
    return unused;
}

int main(void) {
    pthread_t thread;
    tprof = tprof_find();
    if (!tprof || pipe(pipes)) return 1;
    uint64_t handed = tprof->start(&handed_name);
    timed("spin", spin);
    timed("sleep", sleeps);
    timed("read", reads);
    timed("mixed", mixed);
    timed("naps", naps);
    pthread_create(&thread, NULL, second, NULL);
    pthread_join(thread, NULL);
    tprof->end(handed);
    return 0;
}
