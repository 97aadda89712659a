/* Replaces itself by itself ten times, and allocates before each time. A thread other than the main
 * one executes the last image.
 *
 * Proves: an exec is followed, and the last records of the old image are kept.
 *
 * usage: exec_self [round]
 *
 * build: -pthread */
#include "victim.h"
#include <pthread.h>

static char round_text[16];

static void *go(void *unused) {
    execl("/proc/self/exe", "exec_self", round_text, (char *)NULL);
    return unused;
}

int main(int argc, char **argv) {
    int round = argc > 1 ? atoi(argv[1]) : 0;
    for (long i = 0; i < 100; i++) victim_take(some_size(i));
    print("round %d\n", round);
    if (round == 10) {
        print("expect allocations=1100 frees=0 bytes=-1 live=-1 peak=-1\n");
        return 44;
    }
    snprintf(round_text, sizeof round_text, "%d", round + 1);
    if (round < 9) go(NULL);
    /* A failed exec first: the image goes on as before. */
    execl("/does/not/exist", "nothing", (char *)NULL);
    pthread_t thread;
    pthread_create(&thread, NULL, go, NULL);
    pthread_join(thread, NULL);
    return 1;
}
