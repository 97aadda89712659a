/* Prints everything that a process inherits except its environment.
 *
 * Proves: launcher and library leave signal dispositions, masks, limits and
 * the rest as they were. */
#include "victim.h"
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/time.h>

/* Prints the lines of /proc/self/status that begin with one of these words. */
static void status_lines(void) {
    static const char *wanted[] = {"Name:",    "Umask:",     "Threads:", "SigPnd:",   "ShdPnd:", "SigBlk:",
                                   "SigIgn:",  "SigCgt:",    "CapInh:",  "CapPrm:",   "CapEff:", "CapBnd:",
                                   "CapAmb:",  "NoNewPrivs:", "Seccomp:", "TracerPid:", "Cpus_allowed:",
                                   "THP_enabled:", "CoreDumping:", "Uid:", "Gid:", "Groups:"};
    static char text[16384];
    int fd = open("/proc/self/status", O_RDONLY);
    ssize_t n = read(fd, text, sizeof text - 1);
    close(fd);
    text[n > 0 ? n : 0] = 0;
    for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n"))
        for (unsigned i = 0; i < sizeof wanted / sizeof *wanted; i++)
            if (!strncmp(line, wanted[i], strlen(wanted[i]))) print("%s\n", line);
}

static void print_all(void) {
    for (int signal = 1; signal <= 64; signal++) {
        struct sigaction action;
        if (sigaction(signal, NULL, &action) != 0) continue;
        print("signal %d %s flags %x\n", signal,
            action.sa_handler == SIG_DFL   ? "default"
            : action.sa_handler == SIG_IGN ? "ignored"
                                           : "handled",
            (unsigned)action.sa_flags);
    }
    for (int resource = 0; resource < RLIM_NLIMITS; resource++) {
        struct rlimit limit;
        if (getrlimit(resource, &limit) == 0)
            print("limit %d %llx %llx\n", resource, (unsigned long long)limit.rlim_cur,
                (unsigned long long)limit.rlim_max);
    }
    char folder[4096];
    print("cwd %s\n", getcwd(folder, sizeof folder) ? folder : "?");
    mode_t mask = umask(0);
    umask(mask);
    struct itimerval timer;
    getitimer(ITIMER_REAL, &timer);
    int death = -1, reaper = -1;
    prctl(PR_GET_PDEATHSIG, &death);
    prctl(PR_GET_CHILD_SUBREAPER, &reaper);
    stack_t stack;
    sigaltstack(NULL, &stack);
    print("umask %o nice %d policy %d timer %ld pdeathsig %d subreaper %d dumpable %d slack %d\n", mask,
        getpriority(PRIO_PROCESS, 0), sched_getscheduler(0), (long)timer.it_value.tv_sec, death, reaper,
        prctl(PR_GET_DUMPABLE), prctl(PR_GET_TIMERSLACK));
    print("personality %x altstack %d tsc ok leader %d\n", (unsigned)personality(0xffffffff),
        (stack.ss_flags & SS_DISABLE) != 0, getsid(0) == getpid());
    status_lines();
}

int main(int argc, char **argv) {
    if (argc > 1 && !strcmp(argv[1], "group")) {
        print("%d\n", (int)getpgrp());
        return 0;
    }
    for (long i = 0; i < 2000; i++) free(victim_take(some_size(i)));
    print_all();
    return 0;
}
