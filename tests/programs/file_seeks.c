/* Reads a file of 1 MiB at random places through a stream, and by the functions
 * that move one.
 *
 * Proves: the bytes that libc reads when a stream moves are recorded. */
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <unistd.h>

#define BYTES (1 << 20)

/* What the kernel counted as read by this process before this call, which reads
 * `*own` bytes. */
static long counted(long *own) {
    char text[512] = "";
    long bytes = -1;
    int fd = open("/proc/self/io", O_RDONLY);
    *own = read(fd, text, sizeof text - 1);
    close(fd);
    sscanf(text, "rchar: %ld", &bytes);
    return bytes;
}

static uint8_t expected(long at) { return (uint8_t)(at * 7 + (at >> 12)); }

int main(void) {
    static uint8_t all[BYTES];
    for (long i = 0; i < BYTES; i++) all[i] = expected(i);
    int fd = open("seeks.bin", O_WRONLY | O_CREAT | O_TRUNC, 0600);
    if (write(fd, all, BYTES) != BYTES) return 1;
    close(fd);

    long own, unused;
    long before = counted(&own) + own;
    FILE *stream = fopen("seeks.bin", "r+");
    long at = 1;
    for (int i = 0; i < 300; i++) {
        at = at * 1103515245L % BYTES & ~15L;
        if (at < 0) at = -at;
        uint8_t some[16];
        if (i % 3 ? fseek(stream, at, SEEK_SET) : fseeko(stream, at, SEEK_SET)) return 2;
        if (fread(some, 1, sizeof some, stream) != sizeof some) return 3;
        for (int b = 0; b < 16; b++)
            if (some[b] != expected(at + b)) return 4;
        at += 3;
    }
    fpos_t begin;
    rewind(stream);
    if (fgetpos(stream, &begin)) return 5;
    uint8_t first = expected(0);
    for (int i = 0; i < 50; i++) {
        if (fseek(stream, -1000, SEEK_END)) return 6;
        if (fread(all, 1, 10, stream) != 10) return 7;
        if (fsetpos(stream, &begin)) return 8;
        if (fwrite(&first, 1, 1, stream) != 1) return 9;
    }
    /* Moves that end where they began: what was written goes out, and the block comes in again. */
    for (int i = 0; i < 100; i++) {
        long place = i * 1000L;
        uint8_t some[40];
        if (fseek(stream, place, SEEK_SET)) return 10;
        uint8_t same = expected(place);
        if (fwrite(&same, 1, 1, stream) != 1) return 11;
        if (fseek(stream, place, SEEK_SET)) return 12;
        if (fread(some, 1, sizeof some, stream) != sizeof some || some[1] != expected(place + 1)) return 13;
    }
    fclose(stream);
    printf("%ld\n", counted(&unused) - before);
    return 0;
}
