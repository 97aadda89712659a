/* Calls on files of which it is easy to say wrong things: a vfork child opens another
 * file at its parent's descriptor, streams in memory, anonymous memory with a
 * descriptor, and streams whose bytes go out when they are closed. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static char bytes[100000];

int main(void) {
    int fd = open("input.bin", O_RDWR | O_CREAT | O_TRUNC, 0600);
    if (write(fd, bytes, sizeof bytes) != sizeof bytes || lseek(fd, 0, SEEK_SET)) return 1;
    if (dup2(fd, 0)) return 2;
    close(fd);
    pid_t child = vfork();
    if (child == 0) {
        close(0);
        if (open("/dev/null", O_RDONLY)) _exit(1);
        execl("/bin/true", "true", (char *)NULL);
        _exit(2);
    }
    int status;
    if (waitpid(child, &status, 0) != child || status) return 3;
    for (long got = 0; got < (long)sizeof bytes;) {
        long more = read(0, bytes, 1000);
        if (more <= 0) return 4;
        got += more;
    }

    FILE *stream = fmemopen(bytes, sizeof bytes, "r");
    char part[1000];
    while (fread(part, 1, sizeof part, stream) == sizeof part) {}
    fclose(stream);
    char *text;
    size_t length;
    stream = open_memstream(&text, &length);
    for (int i = 0; i < 100; i++) fwrite(part, 1, sizeof part, stream);
    fclose(stream);

    for (int i = 0; i < 5; i++)
        if (mmap(NULL, 1 << 20, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, 0, 0) == MAP_FAILED) return 5;

    for (int i = 0; i < 10; i++) {
        char path[] = "closed-XXXXXX";
        stream = fdopen(mkstemp(path), "w");
        fwrite(part, 1, 300, stream);
        fclose(stream);
    }
    stream = popen("cat > /dev/null", "w");
    fwrite(part, 1, 700, stream);
    return pclose(stream);
}
