/* Does a fixed amount of work, some calls deep, and prints what it cost this process. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>

static volatile unsigned long sink;

__attribute__((noinline)) static unsigned long leaf(unsigned long n) {
    for (int i = 0; i < 3000; i++) n = n * 2862933555777941757ul + 3037000493ul;
    return n;
}

__attribute__((noinline)) static unsigned long deep(int depth, unsigned long n) {
    return depth == 0 ? leaf(n) : deep(depth - 1, n) + 1;
}

int main(int argc, char **argv) {
    long rounds = argc > 1 ? atol(argv[1]) : 400000;
    for (long i = 0; i < rounds; i++) sink += deep(12, i);
    struct rusage r;
    getrusage(RUSAGE_SELF, &r);
    printf("%.6f\n", r.ru_utime.tv_sec + r.ru_stime.tv_sec + (r.ru_utime.tv_usec + r.ru_stime.tv_usec) / 1e6);
    return 0;
}
