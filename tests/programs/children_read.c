/* Makes steps of some 10 ms while a child reads 64 MiB, ends, and is reaped, each a hundred steps
 * later: `children_read [nested|ignores]`. nested: the child's own child reads them, and both are
 * reaped one after the other. ignores: SIGCHLD is ignored, so that the kernel reaps the child and
 * adds nothing. It reads 16 MiB itself before it reaps.
 *
 * build: -ldl */
#define _GNU_SOURCE
#include "../../preload-shim/include/tprof.h"
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define MIB (1 << 20)

static char buffer[MIB];

static void steps(void) {
    const struct tprof_abi *tprof = dlsym(RTLD_DEFAULT, "tprof_abi");
    for (int i = 0; i < 100; i++) {
        if (tprof) tprof->step(TPROF_NO_NUMBER);
        usleep(10000);
    }
}

/* Waits until the other end writes a byte or is closed. */
static void waits(int fd) {
    char byte;
    if (read(fd, &byte, 1) < 0) _exit(97);
}

static void reads(int mib) {
    int zero = open("/dev/zero", O_RDONLY);
    for (int i = 0; i < mib; i++)
        if (read(zero, buffer, MIB) != MIB) _exit(98);
    close(zero);
}

int main(int count, char **arguments) {
    const char *how = count > 1 ? arguments[1] : "";
    int go[2];
    if (pipe(go) != 0) return 99;
    if (!strcmp(how, "ignores")) signal(SIGCHLD, SIG_IGN);
    pid_t pid = fork();
    if (pid == 0) {
        free(malloc(1000)); /* attaches */
        close(go[1]);
        waits(go[0]);
        pid_t own = !strcmp(how, "nested") ? fork() : 0;
        if (own == 0) {
            free(malloc(1000));
            waits(go[0]);
            reads(64);
            waits(go[0]);
            _exit(0);
        }
        waits(go[0]);
        waitpid(own, 0, 0);
        _exit(0);
    }
    close(go[0]);
    int bytes = !strcmp(how, "nested") ? 4 : 3;
    for (int i = 0; i < bytes; i++) {
        steps();
        if (write(go[1], "x", 1) != 1) return 96;
    }
    steps();
    reads(16);
    steps();
    waitpid(pid, 0, 0);
    steps();
    return 0;
}
