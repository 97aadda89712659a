/* Allocates until its standard input ends, then prints its sums. Tests watch and disturb this job
 * while it runs.
 *
 * usage: steady [PAUSE_US]     reads commands, one letter each:
 *   a  allocate 1,000 blocks, keeping them      f  free all that is kept
 *   c  fork a child that allocates and exits    t  the same on a thread
 *   e  run `short` beside this program          end of input: finish
 *
 * Every command is answered by its letter, so that a test knows it is done.
 *
 * build: -pthread */
#include "victim.h"
#include <poll.h>
#include <pthread.h>

#define MOST 100000
static void *kept[MOST];
static size_t kept_size[MOST];
static long count;

NOINLINE static void victim_keep(long n) {
    for (long i = 0; i < n && count < MOST; i++) {
        kept_size[count] = some_size(count);
        kept[count] = victim_take(some_size(count));
        count++;
    }
}
static void *on_thread(void *unused) {
    for (long i = 0; i < 1000; i++) victim_give(victim_take(some_size(i)), some_size(i));
    return unused;
}
static void obey(char command, const char *self) {
    pid_t pid;
    int status;
    pthread_t thread;
    if (command == 'a') victim_keep(1000);
    if (command == 'f')
        while (count > 0) {
            count--;
            victim_give(kept[count], kept_size[count]);
        }
    if (command == 'c') {
        if ((pid = fork()) == 0) {
            on_thread(NULL);
            exit(0);
        }
        waitpid(pid, &status, 0);
        check(status == 0, "child");
    }
    if (command == 't') {
        check(pthread_create(&thread, NULL, on_thread, NULL) == 0, "pthread_create");
        pthread_join(thread, NULL);
    }
    if (command == 'e') {
        if ((pid = fork()) == 0) {
            execl(self, self, "9", (char *)NULL);
            _exit(96);
        }
        waitpid(pid, &status, 0);
        check(WIFEXITED(status) && WEXITSTATUS(status) == 9, "exec");
    }
    if (command != '\n') print("%c\n", command);
}

int main(int argc, char **argv) {
    int pause_us = argc > 1 ? atoi(argv[1]) : 0;
    print("ready\n");
    for (;;) {
        for (long i = 0; i < 50; i++) victim_give(victim_take(some_size(i)), some_size(i));
        if (pause_us) usleep(pause_us);
        struct pollfd input = {0, POLLIN, 0};
        if (poll(&input, 1, 0) <= 0) continue;
        char command;
        if (read(0, &command, 1) <= 0) break;
        obey(command, argc > 2 ? argv[2] : "");
    }
    expect();
    print("end\n");
    return 48;
}
