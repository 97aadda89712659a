/* Runs itself through every form of exec.
 *
 * Proves: each form is followed, and keeps its arguments and environment.
 *
 * usage: exec_forms [leaf FORM] */
#include "victim.h"
#include <fcntl.h>
#include <sys/syscall.h>

extern char **environ;
static char self[4096], folder[4096 + 5];

static int leaf(const char *form) {
    victim_take(123);
    const char *mark = getenv("VICTIM_MARK");
    print("leaf by %s, mark %s\n", form, mark ? mark : "none");
    return 0;
}

static void run(const char *form, char **with_mark) {
    char *arguments[] = {"exec_forms", "leaf", (char *)form, NULL};
    if (!strcmp(form, "execl")) execl(self, "exec_forms", "leaf", form, (char *)NULL);
    if (!strcmp(form, "execlp")) execlp("exec_forms", "exec_forms", "leaf", form, (char *)NULL);
    if (!strcmp(form, "execle")) execle(self, "exec_forms", "leaf", form, (char *)NULL, with_mark);
    if (!strcmp(form, "execv")) execv(self, arguments);
    if (!strcmp(form, "execvp")) execvp("exec_forms", arguments);
    if (!strcmp(form, "execvpe")) execvpe("exec_forms", arguments, with_mark);
    if (!strcmp(form, "execve")) execve(self, arguments, with_mark);
    int fd = open(self, O_RDONLY | O_CLOEXEC);
    if (!strcmp(form, "fexecve")) fexecve(fd, arguments, with_mark);
    if (!strcmp(form, "execveat")) execveat(fd, "", arguments, with_mark, 0x1000 /* AT_EMPTY_PATH */);
    if (!strcmp(form, "syscall")) syscall(SYS_execve, self, arguments, with_mark);
    _exit(96);
}

int main(int argc, char **argv) {
    if (argc > 2) return leaf(argv[2]);
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    check(n > 0, "readlink");
    snprintf(folder, sizeof folder, "PATH=%s", self);
    *strrchr(folder, '/') = 0;
    putenv(folder);
    int count = 0;
    while (environ[count]) count++;
    char *with_mark[count + 2];
    memcpy(with_mark, environ, count * sizeof *environ);
    with_mark[count] = "VICTIM_MARK=set";
    with_mark[count + 1] = NULL;
    const char *forms[] = {"execl",  "execlp", "execle",  "execv",    "execvp",
                           "execvpe", "execve", "fexecve", "execveat", "syscall"};
    for (unsigned i = 0; i < sizeof forms / sizeof *forms; i++) {
        pid_t pid = fork();
        if (pid == 0) run(forms[i], with_mark);
        int status;
        check(waitpid(pid, &status, 0) == pid, "waitpid");
        print_status(forms[i], status);
    }
    return 0;
}
