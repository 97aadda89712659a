/* Calls cublasLtMatmul N times, with layouts and descriptors at 64 addresses in turn, like a framework that makes
 * new ones for each call. Prints the CPU time of a call, in nanoseconds. */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

extern int cublasLtMatmulDescCreate(void **, unsigned, unsigned);
extern int cublasLtMatrixLayoutCreate(void **, unsigned, uint64_t, uint64_t, int64_t);
extern int cublasLtMatmul(void *, void *, const void *, const void *, void *, const void *, void *, const void *,
                          const void *, void *, void *, void *, const void *, void *, size_t, void *);

static double cpu_ns(void) {
    struct timespec at;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &at);
    return at.tv_sec * 1e9 + at.tv_nsec;
}

enum { PLACES = 64 };

int main(int argc, char **argv) {
    long rounds = argc > 1 ? atol(argv[1]) : 1000000;
    void *how[PLACES], *a[PLACES], *b[PLACES], *d[PLACES];
    for (int i = 0; i < PLACES; i++) {
        uint64_t m = 128 + 8 * (uint64_t)i, n = 64, k = 256;
        cublasLtMatmulDescCreate(&how[i], 68, 0);
        cublasLtMatrixLayoutCreate(&a[i], 14, m, k, (int64_t)m);
        cublasLtMatrixLayoutCreate(&b[i], 14, k, n, (int64_t)k);
        cublasLtMatrixLayoutCreate(&d[i], 14, m, n, (int64_t)m);
    }
    double begin = 0;
    for (long i = -1000; i < rounds; i++) {
        if (i == 0) begin = cpu_ns();
        int at = (int)(i & (PLACES - 1));
        cublasLtMatmul(0, how[at], 0, 0, a[at], 0, b[at], 0, 0, d[at], 0, d[at], 0, 0, 0, 0);
    }
    printf("call_ns=%.1f\n", (cpu_ns() - begin) / (double)rounds);
    return 0;
}
