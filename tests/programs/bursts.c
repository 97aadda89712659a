/* Allocates and frees in bursts, on the first thread and on others that stay,
 * each burst in a function of its own. Tests stop and resume its collector.
 *
 * usage: bursts [PAIRS [THREADS]]     reads commands, one letter each:
 *   1, 2, 3  PAIRS pairs on each thread, in victim_first, _second, _third
 *   c        the same by a forked child, 100 pairs in victim_child
 *   end of input: finish
 *
 * Every command is answered by its letter, so that a test knows it is done.
 *
 * build: -pthread */
#include "victim.h"
#include <pthread.h>

static long pairs = 150000;
static int threads = 2;
static char command;
static pthread_barrier_t begin, done;

#define BURST(NAME)                            \
    NOINLINE static void NAME(long n) {        \
        for (long i = 0; i < n; i++) {         \
            void *block = malloc(some_size(i)); \
            check(block != NULL, "malloc");    \
            __asm__ volatile("" : : "r"(block)); \
            free(block);                       \
        }                                      \
    }
BURST(victim_first)
BURST(victim_second)
BURST(victim_third)
BURST(victim_child)

static void burst(void) {
    if (command == '1') victim_first(pairs);
    if (command == '2') victim_second(pairs);
    if (command == '3') victim_third(pairs);
}
static void *work(void *unused) {
    for (;;) {
        pthread_barrier_wait(&begin);
        burst();
        pthread_barrier_wait(&done);
    }
    return unused;
}

int main(int argc, char **argv) {
    if (argc > 1) pairs = atol(argv[1]);
    if (argc > 2) threads = atoi(argv[2]);
    pthread_barrier_init(&begin, NULL, threads + 1);
    pthread_barrier_init(&done, NULL, threads + 1);
    for (int i = 0; i < threads; i++) {
        pthread_t thread;
        check(pthread_create(&thread, NULL, work, NULL) == 0, "pthread_create");
    }
    print("ready\n");
    while (read(0, &command, 1) == 1) {
        if (command == 'c') {
            int status;
            pid_t pid = fork();
            if (pid == 0) {
                victim_child(100);
                _exit(0);
            }
            check(waitpid(pid, &status, 0) == pid && status == 0, "child");
        } else if (command >= '1' && command <= '3') {
            pthread_barrier_wait(&begin);
            burst();
            pthread_barrier_wait(&done);
        }
        if (command != '\n') print("%c\n", command);
    }
    print("end\n");
    _exit(48);
}
