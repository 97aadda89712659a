/* Executes itself with an empty environment.
 *
 * Proves: the child sees an empty environment, as it was told; a run says that
 * it could not be seen.
 *
 * usage: exec_empty_env [leaf] */
#include "victim.h"

extern char **environ;

int main(int argc, char **argv) {
    (void)argv;
    if (argc > 1) {
        int count = 0;
        while (environ && environ[count]) count++;
        free(victim_take(5000));
        say("environment of %d\n", count);
        return 45;
    }
    victim_take(321);
    char *arguments[] = {"exec_empty_env", "leaf", NULL}, *nothing[] = {NULL};
    for (int i = 0; i < 2; i++) {
        pid_t pid = fork();
        if (pid == 0) {
            execve("/proc/self/exe", arguments, i ? NULL : nothing);
            _exit(96);
        }
        int status;
        check(waitpid(pid, &status, 0) == pid, "waitpid");
        say_status("child", status);
    }
    execve("/proc/self/exe", arguments, nothing);
    return 96;
}
