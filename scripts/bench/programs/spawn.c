// spawn COUNT: starts /bin/true COUNT times by posix_spawn, one after the other.
#include "loop.h"
#include <spawn.h>
#include <sys/wait.h>

extern char **environ;

int main(int argc, char **argv) {
    unsigned count = argc > 1 ? (unsigned)atoi(argv[1]) : 500;
    char *const words[] = {"true", NULL};
    loop_begin();
    for (unsigned i = 0; i < count; i++) {
        pid_t child;
        int status;
        if (posix_spawn(&child, "/bin/true", NULL, NULL, words, environ)) return 1;
        if (waitpid(child, &status, 0) != child || status) return 1;
    }
    loop_end(count);
}
