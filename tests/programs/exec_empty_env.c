/* Executes itself with an empty environment.
 *
 * Proves: the child gets an empty environment, as it would natively; a run reports
 * that it could not be recorded.
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
        print("environment of %d\n", count);
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
        print_status("child", status);
    }
    execve("/proc/self/exe", arguments, nothing);
    return 96;
}
