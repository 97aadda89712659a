/* Calls every function of the allocator a known number of times.
 *
 * Proves: each call is counted once, with the requested size; calls that fail and free(NULL) are
 * not counted; usable sizes are the C library's own.
 *
 * usage: families N */
#include "victim.h"
#include <malloc.h>

static volatile size_t huge = (size_t)PTRDIFF_MAX;

NOINLINE static void *victim_calloc(size_t n, size_t size) {
    char *block = calloc(n, size);
    check(block != NULL && block[0] == 0 && block[n * size - 1] == 0, "calloc");
    count_in(n * size);
    return block;
}
NOINLINE static void *victim_realloc(void *old, size_t before, size_t size) {
    void *block = realloc(old, size);
    check(block != NULL, "realloc");
    if (old) count_out(before);
    count_in(size);
    return block;
}
NOINLINE static void *victim_reallocarray(void *old, size_t before, size_t n, size_t size) {
    void *block = reallocarray(old, n, size);
    check(block != NULL, "reallocarray");
    if (old) count_out(before);
    count_in(n * size);
    return block;
}
NOINLINE static void *victim_posix_memalign(size_t align, size_t size) {
    void *block = NULL;
    check(posix_memalign(&block, align, size) == 0 && (uintptr_t)block % align == 0, "posix_memalign");
    count_in(size);
    return block;
}
NOINLINE static void *victim_aligned_alloc(size_t align, size_t size) {
    void *block = aligned_alloc(align, size);
    check(block != NULL && (uintptr_t)block % align == 0, "aligned_alloc");
    count_in(size);
    return block;
}
NOINLINE static void *victim_memalign(size_t align, size_t size) {
    void *block = memalign(align, size);
    check(block != NULL && (uintptr_t)block % align == 0, "memalign");
    count_in(size);
    return block;
}
NOINLINE static void *victim_valloc(size_t size) {
    void *block = valloc(size);
    check(block != NULL && (uintptr_t)block % 4096 == 0, "valloc");
    count_in(size);
    return block;
}
NOINLINE static void *victim_pvalloc(size_t size) {
    void *block = pvalloc(size);
    check(block != NULL && (uintptr_t)block % 4096 == 0, "pvalloc");
    /* pvalloc turns a request for 100 bytes into one for whole pages. */
    count_in(size);
    return block;
}
NOINLINE static void victim_failures(void) {
    check(malloc(huge) == NULL, "malloc of too much");
    check(calloc(huge, 16) == NULL, "calloc that overflows");
    check(reallocarray(NULL, huge, 16) == NULL, "reallocarray that overflows");
    check(aligned_alloc(64, huge) == NULL, "aligned_alloc of too much");
    void *untouched = &sums;
    check(posix_memalign(&untouched, 3, 10) == EINVAL && untouched == &sums, "posix_memalign by 3");
    free(NULL);
    /* A realloc that fails keeps the old block. */
    char *block = victim_take(100);
    block[50] = 42;
    check(realloc(block, huge) == NULL && block[50] == 42, "realloc of too much");
    check(reallocarray(block, huge, 16) == NULL && block[50] == 42, "reallocarray of too much");
    victim_give(block, 100);
    /* realloc to size 0 is a free. */
    block = victim_take(60);
    volatile size_t nothing = 0;
    check(realloc(block, nothing) == NULL, "realloc to nothing");
    count_out(60);
    /* malloc(0) is an allocation of no bytes. */
    block = malloc(nothing);
    count_in(0);
    check(block != NULL, "malloc(0)");
    victim_give(block, 0);
}

int main(int argc, char **argv) {
    long n = argc > 1 ? atol(argv[1]) : 100;
    for (long i = 0; i < n; i++) {
        void *p = victim_calloc(3, 50);
        p = victim_realloc(p, 150, 400);
        p = victim_realloc(p, 400, 20);
        victim_give(p, 20);
        p = victim_realloc(NULL, 0, 33);
        p = victim_reallocarray(p, 33, 10, 30);
        victim_give(p, 300);
        victim_give(victim_reallocarray(NULL, 0, 7, 8), 56);
        victim_give(victim_posix_memalign(64, 500), 500);
        victim_give(victim_aligned_alloc(128, 256), 256);
        victim_give(victim_memalign(32, 77), 77);
        victim_give(victim_valloc(100), 100);
        /* This block is large enough to be mapped; it is then moved, then shrunk. */
        p = victim_take(200000);
        p = victim_realloc(p, 200000, 3000000);
        p = victim_realloc(p, 3000000, 500);
        victim_give(p, 500);
        victim_failures();
        victim_take(10);
    }
    size_t usable = 0;
    for (size_t size = 0; size < 200; size++) {
        void *p = victim_take(size);
        usable += malloc_usable_size(p);
        victim_give(p, size);
    }
    print("usable %zu, of nothing %zu\n", usable, malloc_usable_size(NULL));
    expect();
    /* This block isn't part of the sums that `expect` printed, because tprof may count its requested
     * size or whole pages. */
    if (argc > 2) free(victim_pvalloc(100));
    return 0;
}
