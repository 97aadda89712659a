/* Calls on files at the edges of what libc allows: streams in memory, errors,
 * bad addresses, a signal handler that reads while its thread reads, and a
 * coroutine on a stack of 8 KB with unmapped memory below it.
 *
 * Proves: with calls on files recorded, results and errno are as without. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <ucontext.h>
#include <unistd.h>

#define STACK 8192

/* Prints a call's result and what it left in errno. */
#define SHOW(call)                                            \
    do {                                                      \
        errno = 77;                                           \
        long result = (long)(call);                           \
        int left = errno;                                     \
        printf("%s: %ld, errno %d\n", #call, result, left);   \
    } while (0)

static void in_memory(void) {
    char bytes[64] = "0123456789";
    FILE *stream = fmemopen(bytes, 10, "r");
    char to[16];
    SHOW(fread(to, 1, 4, stream));
    SHOW(fread(to, 1, 16, stream));
    SHOW(fclose(stream));
    char *text;
    size_t size;
    stream = open_memstream(&text, &size);
    SHOW(fwrite(bytes, 1, 10, stream));
    SHOW(fflush(stream));
    SHOW(fclose(stream));
    SHOW(memcmp(text, "0123456789", size));
    free(text);
}

/* Compilers warn of a wrong address that they know. */
static void *volatile wrong = (void *)1;

static void with_errors(void) {
    char byte;
    SHOW(read(-1, &byte, 1));
    SHOW(write(-1, &byte, 1));
    SHOW(read(999, &byte, 1));
    SHOW(close(-1));
    SHOW(close(999));
    SHOW(open("/no/such/file", O_RDONLY));
    SHOW(openat(-1, "relative", O_RDONLY));
    SHOW(open(wrong, O_RDONLY));
    SHOW(fopen("/no/such/file", "r"));
    SHOW(lseek(999, 0, SEEK_SET));
    SHOW(fsync(999));
    int zero = open("/dev/zero", O_RDONLY);
    SHOW(read(zero, wrong, 1));
    SHOW(read(zero, wrong, 0));
    SHOW(lseek(zero, -5, SEEK_SET));
    SHOW(dup2(zero, -1));
    SHOW(fcntl(999, F_GETFD));
    close(zero);
}

static void with_bad_lengths(void) {
    struct sockaddr_un name = {.sun_family = AF_UNIX, .sun_path = "\0of file_edges"};
    snprintf(name.sun_path + 1, sizeof name.sun_path - 1, "file_edges %d", getpid());
    int server = socket(AF_UNIX, SOCK_STREAM, 0);
    bind(server, (struct sockaddr *)&name, sizeof name);
    listen(server, 5);
    for (int i = 0; i < 3; i++) {
        int client = socket(AF_UNIX, SOCK_STREAM, 0);
        SHOW(connect(client, (struct sockaddr *)&name, sizeof name));
    }
    struct sockaddr_un peer;
    SHOW(accept(server, (struct sockaddr *)&peer, wrong) < 0);
    SHOW(accept(server, NULL, NULL) < 0);
    socklen_t length = 0;
    SHOW(accept4(server, (struct sockaddr *)&peer, &length, SOCK_CLOEXEC) < 0);
    SHOW(connect(server, wrong, 5));
    SHOW(connect(server, NULL, 0));
}

static int ends[2];
static volatile long in_handler;
static void handle(int signal) {
    (void)signal;
    int kept = errno;
    char byte;
    in_handler += read(ends[0], &byte, 1);
    errno = kept;
}

static void in_a_handler(void) {
    char bytes[64];
    int zero = open("/dev/zero", O_RDONLY);
    SHOW(pipe(ends));
    signal(SIGUSR1, handle);
    for (int i = 0; i < 1000; i++) {
        write(ends[1], "x", 1);
        raise(SIGUSR1);
        read(zero, bytes, sizeof bytes);
    }
    printf("%ld\n", in_handler);
    close(zero);
}

static ucontext_t outside, inside;
static long sums[4];
static void coroutine(void) {
    char bytes[64];
    for (int i = 0; i < 100; i++) {
        int fd = open("/dev/zero", O_RDONLY);
        sums[0] += fd >= 0;
        sums[1] += read(fd, bytes, sizeof bytes);
        sums[2] += pread(fd, bytes, sizeof bytes, 100);
        sums[3] += close(fd);
        swapcontext(&inside, &outside);
    }
}

static void on_a_small_stack(void) {
    char *area = mmap(NULL, 3 * STACK, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    mprotect(area + STACK, STACK, PROT_READ | PROT_WRITE);
    getcontext(&inside);
    inside.uc_stack.ss_sp = area + STACK;
    inside.uc_stack.ss_size = STACK;
    inside.uc_link = &outside;
    makecontext(&inside, coroutine, 0);
    for (int i = 0; i < 100; i++) swapcontext(&outside, &inside);
    printf("%ld %ld %ld %ld\n", sums[0], sums[1], sums[2], sums[3]);
}

int main(void) {
    in_memory();
    with_errors();
    with_bad_lengths();
    in_a_handler();
    on_a_small_stack();
    return 0;
}
