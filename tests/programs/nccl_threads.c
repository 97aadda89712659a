/* Moves data between threads as NCCL's transports do: in each of two steps, a thread
 * with a name of NCCL's own sends 4 MiB by a socket. It also maps a file of shared
 * memory with a name of NCCL's.
 *
 * build: -ldl -pthread */
#define _GNU_SOURCE
#include "../../preload-shim/include/tprof.h"
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

enum { BYTES = 4 << 20, PART = 1 << 16 };
static char part[PART];

static void *sends(void *end) {
    pthread_setname_np(pthread_self(), "NCCL Progress 0");
    for (int i = 0; i < BYTES / PART; i++)
        if (send(*(int *)end, part, PART, 0) != PART) _exit(97);
    return NULL;
}

static void step(long number) {
    const struct tprof_abi *tprof = dlsym(RTLD_DEFAULT, "tprof_abi");
    if (tprof) tprof->step(number);
}

int main(void) {
    for (int i = 0; i < 2; i++) {
        step(i);
        int ends[2];
        pthread_t thread;
        if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends)) return 1;
        if (pthread_create(&thread, NULL, sends, &ends[0])) return 2;
        for (long got = 0; got < BYTES;) {
            long more = recv(ends[1], part, PART, 0);
            if (more <= 0) return 3;
            got += more;
        }
        pthread_join(thread, NULL);
        close(ends[0]), close(ends[1]);
    }
    step(2);
    char path[64];
    snprintf(path, sizeof path, "/dev/shm/nccl-%d", getpid());
    int fd = open(path, O_RDWR | O_CREAT, 0600);
    if (fd < 0 || ftruncate(fd, PART)) return 4;
    void *shared = mmap(NULL, PART, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    unlink(path);
    return shared == MAP_FAILED;
}
