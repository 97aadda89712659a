/* Runs a command with an unusual inherited state: ignored and blocked signals,
 * a umask, limits, a nice value.
 *
 * usage: with_state COMMAND... */
#include "victim.h"
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>

int main(int argc, char **argv) {
    check(argc > 1, "usage");
    signal(SIGPIPE, SIG_IGN);
    signal(SIGUSR1, SIG_IGN);
    signal(SIGINT, SIG_IGN);
    signal(SIGRTMIN + 3, SIG_IGN);
    sigset_t mask;
    sigemptyset(&mask);
    sigaddset(&mask, SIGUSR2);
    sigaddset(&mask, SIGRTMIN + 5);
    sigprocmask(SIG_BLOCK, &mask, NULL);
    umask(027);
    setpriority(PRIO_PROCESS, 0, 3);
    setrlimit(RLIMIT_NOFILE, &(struct rlimit){300, 400});
    setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
    setrlimit(RLIMIT_STACK, &(struct rlimit){4 << 20, 16 << 20});
    execvp(argv[1], argv + 1);
    return 127;
}
