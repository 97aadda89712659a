/* posix_spawn and posix_spawnp, with attributes and file actions, and a spawn
 * that fails.
 *
 * Proves: spawned children are followed and a failed spawn reports its error.
 *
 * usage: spawn [child N] */
#include "victim.h"
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>

extern char **environ;

int main(int argc, char **argv) {
    if (argc > 2) {
        for (long i = 0; i < 20; i++) victim_take(some_size(i));
        struct sigaction usr1;
        sigaction(SIGUSR1, NULL, &usr1);
        sigset_t mask;
        sigprocmask(SIG_BLOCK, NULL, &mask);
        print("child %s usr1 %s usr2 %s\n", argv[2], usr1.sa_handler == SIG_IGN ? "ignored" : "default",
            sigismember(&mask, SIGUSR2) ? "blocked" : "open");
        return atoi(argv[2]);
    }
    char self[4096] = {0}, path[4096 + 5];
    check(readlink("/proc/self/exe", self, sizeof self - 1) > 0, "readlink");
    snprintf(path, sizeof path, "PATH=%s", self);
    *strrchr(path, '/') = 0;
    putenv(path);
    signal(SIGUSR1, SIG_IGN);

    posix_spawnattr_t attributes;
    posix_spawnattr_init(&attributes);
    sigset_t none, both;
    sigemptyset(&none);
    sigemptyset(&both);
    sigaddset(&both, SIGUSR1);
    posix_spawnattr_setsigdefault(&attributes, &both);
    sigaddset(&none, SIGUSR2);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK);

    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);

    for (int i = 0; i < 8; i++) {
        char text[8];
        snprintf(text, sizeof text, "%d", 50 + i);
        char *arguments[] = {"spawn", "child", text, NULL};
        pid_t pid;
        int error = i % 2 ? posix_spawnp(&pid, "spawn", &actions, i < 4 ? NULL : &attributes, arguments, environ)
                          : posix_spawn(&pid, self, NULL, i < 4 ? NULL : &attributes, arguments, environ);
        check(error == 0, "posix_spawn");
        int status;
        check(waitpid(pid, &status, 0) == pid, "waitpid");
        print_status("child", status);
    }
    pid_t pid = -7;
    char *arguments[] = {"nothing", NULL};
    int error = posix_spawn(&pid, "/does/not/exist", NULL, NULL, arguments, environ);
    print("a missing file gives %d, wait gives %d\n", error, (int)waitpid(-1, NULL, WNOHANG));
    return 0;
}
