// children COUNT: starts /bin/true COUNT times, one after the other.
#include "loop.h"
#include <sys/wait.h>
#include <unistd.h>

int main(int argc, char **argv) {
    unsigned count = argc > 1 ? (unsigned)atoi(argv[1]) : 500;
    loop_begin();
    for (unsigned i = 0; i < count; i++) {
        pid_t child = fork();
        if (child == 0) {
            execl("/bin/true", "true", NULL);
            _exit(127);
        }
        int status;
        if (child < 0 || waitpid(child, &status, 0) != child || status) return 1;
    }
    loop_end(count);
}
