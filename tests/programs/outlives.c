/* Starts a daemon in the usual way and ends: two forks, a new session, no descriptor left open. The
 * daemon allocates 1000 blocks, runs until the file GO exists, allocates 3000 more, and writes the
 * file DONE.
 *
 * Proves: a process that outlives the command is reported, and can be followed to its end.
 *
 * usage: outlives GO DONE */
#include "victim.h"
#include <fcntl.h>

int main(int argc, char **argv) {
    check(argc > 2, "usage");
    if (fork() == 0) {
        setsid();
        if (fork() != 0) _exit(0);
        for (int fd = 0; fd < 256; fd++) close(fd);
        for (long i = 0; i < 1000; i++) free(victim_take(some_size(i)));
        for (int i = 0; i < 6000 && access(argv[1], F_OK) != 0; i++) usleep(10000);
        for (long i = 0; i < 3000; i++) free(victim_take(some_size(i)));
        close(open(argv[2], O_WRONLY | O_CREAT, 0600));
        _exit(0);
    }
    int status;
    wait(&status);
    return 3;
}
