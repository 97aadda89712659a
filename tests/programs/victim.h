/* Functions that the victims (programs that tests profile) share: output without
 * stdio, whose buffers would be allocations too, and sums over a victim's calls.
 *
 * Only functions whose names begin with `victim_` allocate, so that a report can be compared
 * site by site. The counted size is the requested size. A successful realloc of a block is a
 * free and an allocation. */
#ifndef VICTIM_H
#define VICTIM_H
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#define NOINLINE __attribute__((noinline, noclone))
#define MAYBE __attribute__((unused)) static

/* The sums of one process; threads add to them atomically. */
static struct {
    long allocations, frees, bytes, live, peak;
} sums;

MAYBE void print(const char *format, ...) {
    char line[1024];
    va_list arguments;
    va_start(arguments, format);
    int n = vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    for (int done = 0; done < n;) {
        ssize_t w = write(1, line + done, n - done);
        if (w < 0 && errno != EINTR) _exit(99);
        if (w > 0) done += w;
    }
}

MAYBE void check(int holds, const char *what) {
    if (holds) return;
    print("broken: %s (errno %d)\n", what, errno);
    _exit(98);
}

MAYBE void count_in(size_t size) {
    __atomic_add_fetch(&sums.allocations, 1, __ATOMIC_SEQ_CST);
    __atomic_add_fetch(&sums.bytes, (long)size, __ATOMIC_SEQ_CST);
    long live = __atomic_add_fetch(&sums.live, (long)size, __ATOMIC_SEQ_CST);
    long peak = __atomic_load_n(&sums.peak, __ATOMIC_SEQ_CST);
    while (live > peak &&
           !__atomic_compare_exchange_n(&sums.peak, &peak, live, 0, __ATOMIC_SEQ_CST,
                                        __ATOMIC_SEQ_CST)) {
    }
}

MAYBE void count_out(size_t size) {
    __atomic_add_fetch(&sums.frees, 1, __ATOMIC_SEQ_CST);
    __atomic_sub_fetch(&sums.live, (long)size, __ATOMIC_SEQ_CST);
}

/* Allocates a block and writes to its ends. */
MAYBE NOINLINE void *victim_take(size_t size) {
    char *block = (char *)malloc(size);
    check(block != NULL, "malloc");
    count_in(size);
    if (size > 0) {
        block[0] = 1;
        block[size - 1] = 2;
    }
    return block;
}

MAYBE NOINLINE void victim_give(void *block, size_t size) {
    count_out(size);
    free(block);
}

/* Returns a size between 16 and 515 bytes that differs from call to call. */
MAYBE size_t some_size(long i) { return 16 + (size_t)(i * 37 % 500); }

MAYBE void expect(void) {
    print("expect allocations=%ld frees=%ld bytes=%ld live=%ld peak=%ld\n", sums.allocations,
        sums.frees, sums.bytes, sums.live, sums.peak);
}

/* Prints how a child ended. */
MAYBE void print_status(const char *who, int status) {
    if (WIFEXITED(status))
        print("%s exited %d\n", who, WEXITSTATUS(status));
    else
        print("%s killed by %d\n", who, WTERMSIG(status));
}
#endif
