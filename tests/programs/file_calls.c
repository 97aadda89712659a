// Calls on files, pipes and sockets of known number, in the directory of the first argument.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

static void check(int ok, const char *what) {
    if (!ok) {
        perror(what);
        exit(1);
    }
}

static char buffer[1 << 20];

// 40 writes of 64 KiB and one fsync.
static void write_large(void) {
    int fd = open("large.bin", O_CREAT | O_TRUNC | O_WRONLY, 0600);
    check(fd >= 0, "open");
    for (int i = 0; i < 40; i++)
        check(write(fd, buffer, 65536) == 65536, "write");
    check(fsync(fd) == 0, "fsync");
    close(fd);
}

// 640 reads of 4 KiB and one of nothing; then 20 of 1 KiB at other places, backwards.
static void read_large(void) {
    int fd = openat(AT_FDCWD, "large.bin", O_RDONLY);
    check(fd >= 0, "openat");
    while (read(fd, buffer, 4096) > 0) {
    }
    for (int i = 20; i-- > 0;)
        check(pread(fd, buffer, 1024, i * 100000) == 1024, "pread");
    close(fd);
}

// 30 files of 1,000 bytes, by stdio.
static void streams(void) {
    for (int i = 0; i < 30; i++) {
        char name[32];
        snprintf(name, sizeof name, "part-%d.txt", i);
        FILE *file = fopen(name, "w");
        check(file != NULL, "fopen");
        check(fwrite(buffer, 1, 1000, file) == 1000, "fwrite");
        check(fclose(file) == 0, "fclose");
        file = fopen(name, "r");
        check(file != NULL, "fopen");
        check(fread(buffer, 1, 1000, file) == 1000, "fread");
        check(fread(buffer, 1, 1, file) == 0, "fread at the end");
        fclose(file);
    }
}

static void copies(void) {
    int from = open("large.bin", O_RDONLY), to = open("copy.bin", O_CREAT | O_TRUNC | O_WRONLY, 0600);
    check(from >= 0 && to >= 0, "open");
    check(sendfile(to, from, NULL, 100000) == 100000, "sendfile");
    struct iovec parts[2] = {{buffer, 500}, {buffer, 700}};
    check(writev(to, parts, 2) == 1200, "writev");
    int second = dup(to);
    check(write(second, buffer, 300) == 300, "write to a duplicate");
    close(second);
    void *mapped = mmap(NULL, 8192, PROT_READ, MAP_PRIVATE, from, 0);
    check(mapped != MAP_FAILED, "mmap");
    munmap(mapped, 8192);
    close(from);
    close(to);
    check(open("missing.bin", O_RDONLY) == -1 && errno == ENOENT, "open of nothing");
    errno = 0;
    check(read(-1, buffer, 1) == -1 && errno == EBADF, "read of nothing");
    // The stream's descriptor stands for another file afterwards, and a directory's for none.
    FILE *file = fopen("copy.bin", "r");
    check(file != NULL && fread(buffer, 1, 1, file) == 1, "fread");
    file = freopen("again.bin", "w", file);
    check(file != NULL && fwrite(buffer, 1, 9000, file) == 9000 && fclose(file) == 0, "freopen");
    DIR *directory = opendir(".");
    check(directory != NULL && closedir(directory) == 0, "closedir");
    DIR *volatile none = NULL;
    check(closedir(none) == -1, "closedir of nothing");
    FILE *other = popen("echo popen", "r");
    check(other != NULL && fread(buffer, 1, 6, other) == 6 && pclose(other) == 0, "popen");
}

static void *serve(void *at) {
    int fd = accept(*(int *)at, NULL, NULL);
    check(fd >= 0, "accept");
    long all = 0, got;
    while ((got = recv(fd, buffer + 65536, 65536, 0)) > 0)
        all += got;
    check(all == 50000, "recv");
    close(fd);
    return NULL;
}

// 50 sends of 1,000 bytes to a thread of this process.
static void sockets(void) {
    int listening = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof at;
    check(bind(listening, (struct sockaddr *)&at, length) == 0, "bind");
    check(listen(listening, 1) == 0, "listen");
    check(getsockname(listening, (struct sockaddr *)&at, &length) == 0, "getsockname");
    pthread_t server;
    pthread_create(&server, NULL, serve, &listening);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    check(connect(fd, (struct sockaddr *)&at, length) == 0, "connect");
    for (int i = 0; i < 50; i++)
        check(send(fd, buffer, 1000, 0) == 1000, "send");
    close(fd);
    pthread_join(server, NULL);
    close(listening);
}

// A thread that is cancelled while it reads from an empty pipe.
static void *reads_for_ever(void *pipe) {
    char one;
    check(read(((int *)pipe)[0], &one, 1) == 1, "read");
    return NULL;
}

static void cancelled(void) {
    int ends[2];
    check(pipe(ends) == 0, "pipe");
    pthread_t reader;
    pthread_create(&reader, NULL, reads_for_ever, ends);
    usleep(20000);
    pthread_cancel(reader);
    void *result;
    pthread_join(reader, &result);
    check(result == PTHREAD_CANCELED, "cancellation");
    // A vfork child closes and moves descriptors of its own, which its parent's table mustn't follow.
    pid_t child = vfork();
    if (child == 0) {
        close(ends[0]);
        dup2(ends[1], 0);
        _exit(0);
    }
    check(waitpid(child, NULL, 0) == child, "waitpid");
    check(write(ends[1], "abc", 3) == 3, "write to a pipe");
    check(read(ends[0], buffer, 3) == 3, "read from a pipe");
    close(ends[0]);
    close(ends[1]);
    // A forked child has its own numbers of files.
    child = fork();
    if (child == 0) {
        int fd = open("child.bin", O_CREAT | O_WRONLY, 0600);
        check(write(fd, buffer, 777) == 777, "write of a child");
        close(fd);
        exit(0);
    }
    check(waitpid(child, NULL, 0) == child, "waitpid");
}

int main(int count, char **arguments) {
    check(count == 2 && chdir(arguments[1]) == 0, "chdir");
    write_large();
    read_large();
    streams();
    copies();
    sockets();
    cancelled();
    puts("done");
    return 0;
}
