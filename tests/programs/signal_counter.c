/* Counts the signals that reach it until its standard input ends.
 *
 * Proves: a signal sent to the launcher, or typed at the terminal, reaches the
 * job exactly once.
 *
 * usage: signal_counter [tty]     with tty, SIGUSR1 ends it instead */
#include "victim.h"
#include <poll.h>
#include <signal.h>

static const int watched[] = {SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGWINCH, SIGCONT, SIGUSR2};
static const char *names[] = {"HUP", "INT", "QUIT", "TERM", "WINCH", "CONT", "USR2"};
static volatile int counts[65];
static volatile int finish;

static void on_signal(int signal) {
    if (signal == SIGUSR1) finish = 1;
    counts[signal]++;
    if (signal != SIGUSR1) {
        char line[] = "got xx\n";
        line[4] = '0' + signal / 10;
        line[5] = '0' + signal % 10;
        write(1, line, 7);
    }
}

int main(int argc, char **argv) {
    (void)argv;
    struct sigaction action = {.sa_handler = on_signal};
    for (unsigned i = 0; i < 7; i++) sigaction(watched[i], &action, NULL);
    sigaction(SIGUSR1, &action, NULL);
    print("ready %d\n", (int)getpid());
    while (!finish) {
        free(victim_take(100));
        struct pollfd input = {0, POLLIN, 0};
        char c;
        if (argc > 1) usleep(1000);
        else if (poll(&input, 1, 1) > 0 && read(0, &c, 1) == 0) break;
    }
    print("counts");
    for (unsigned i = 0; i < 7; i++) print(" %s=%d", names[i], counts[watched[i]]);
    print("\n");
    return 49;
}
