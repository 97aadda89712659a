/* Names threads in every way.
 *
 * Proves: tprof reads the names from the kernel, and doesn't change them.
 *
 * build: -pthread */
#include "victim.h"
#include <fcntl.h>
#include <pthread.h>
#include <sys/prctl.h>

static void *work(void *how) {
    if (how == (void *)1) prctl(PR_SET_NAME, "by-prctl");
    if (how == (void *)2) pthread_setname_np(pthread_self(), "by-itself");
    if (how == (void *)4) {
        int fd = open("/proc/thread-self/comm", O_WRONLY);
        write(fd, "by-proc", 7);
        close(fd);
    }
    victim_give(victim_take(30), 30);
    if (how == (void *)3) usleep(50000);
    char name[16];
    pthread_getname_np(pthread_self(), name, sizeof name);
    print("%s\n", name);
    victim_take(30);
    return NULL;
}

int main(void) {
    for (long how = 0; how < 5; how++) {
        pthread_t thread;
        pthread_create(&thread, NULL, work, (void *)how);
        if (how == 3) check(pthread_setname_np(thread, "by-another") == 0, "setname");
        pthread_join(thread, NULL);
    }
    prctl(PR_SET_NAME, "main-renamed");
    expect();
    return 0;
}
