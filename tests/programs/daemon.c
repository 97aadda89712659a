/* Leaves a daemon behind: two forks and a new session; the daemon writes a file
 * a little later.
 *
 * Proves: the launcher returns when the job does, and the processes that the job left behind go
 * on.
 *
 * usage: daemon FILE */
#include "victim.h"
#include <fcntl.h>

int main(int argc, char **argv) {
    check(argc > 1, "usage");
    if (fork() == 0) {
        setsid();
        if (fork() != 0) _exit(0);
        for (int fd = 0; fd < 3; fd++) close(fd);
        usleep(700000);
        for (long i = 0; i < 1000; i++) free(victim_take(some_size(i)));
        int fd = open(argv[1], O_WRONLY | O_CREAT, 0600);
        write(fd, "alive\n", 6);
        _exit(0);
    }
    int status;
    wait(&status);
    print_status("child", status);
    return 0;
}
