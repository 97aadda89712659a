/* Waits for any child, and ignores SIGCHLD.
 *
 * Proves: tprof adds no child to the job's own.
 *
 * usage: children any|ignored */
#include "victim.h"
#include <signal.h>

static volatile int signals;
static void on_child(int signal) { signals += signal == SIGCHLD; }

int main(int argc, char **argv) {
    int ignored = argc > 1 && !strcmp(argv[1], "ignored");
    signal(SIGCHLD, ignored ? SIG_IGN : on_child);
    pid_t got = waitpid(-1, NULL, WNOHANG);
    print("before: %d %s\n", (int)got, strerror(errno));
    for (int i = 0; i < 3; i++) {
        pid_t pid = fork();
        if (pid == 0) {
            free(victim_take(10));
            _exit(60 + i);
        }
        if (!ignored) {
            int status;
            got = wait(&status);
            print("%s ", got == pid ? "own child" : "a stranger");
            print_status("", status);
        }
    }
    int status;
    errno = 0;
    got = waitpid(-1, &status, 0);
    print("after: %d %s, %d signals\n", (int)got, strerror(errno), signals);
    return 0;
}
