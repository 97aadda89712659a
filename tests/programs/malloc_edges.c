/* The edge cases of an allocator that the C library's own tests check: sizes of zero, sizes beyond
 * all memory, invalid alignments, failures that must keep blocks and errno, and the allocator's
 * statistics.
 *
 * Proves: each case has the same result as without a profiler, allocations are counted once, and
 * the profiler puts nothing into the heap.
 *
 * usage: malloc_edges [expect] */
#include "victim.h"
#include <malloc.h>
#include <sys/resource.h>

static const volatile size_t nothing = 0, huge = (size_t)PTRDIFF_MAX, all = SIZE_MAX;

/* Calls that must fail, with the errno that they set. */
#define FAILS(call)                                                          \
    do {                                                                     \
        errno = 0;                                                           \
        void *got = (call);                                                  \
        print("%s: %s, errno %d\n", #call, got ? "a block" : "none", errno);   \
        check(got == NULL, #call);                                           \
    } while (0)

NOINLINE static void victim_failures(void) {
    FAILS(malloc(huge));
    FAILS(malloc(huge + 1));
    FAILS(malloc(all));
    FAILS(malloc(all - 4096));
    FAILS(calloc(all, 1));
    FAILS(calloc(all, all));
    FAILS(calloc(all / 2 + 1, 2));
    FAILS(realloc(NULL, all));
    FAILS(reallocarray(NULL, all, 2));
    FAILS(reallocarray(NULL, all / 2 + 1, 2));
    FAILS(memalign(64, all - 64));
    FAILS(memalign(all / 2 + 2, 64));
    FAILS(aligned_alloc(4096, all));
    FAILS(valloc(all));
    FAILS(pvalloc(all));
    FAILS(pvalloc(all - 4095));
    size_t wrong[] = {0, 1, 4, 7, 24, sizeof(void *) + 1, all};
    for (unsigned i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        void *out = &sums;
        errno = 55;
        int error = posix_memalign(&out, wrong[i], 16);
        print("posix_memalign by %zu: %d, errno %d, %s\n", wrong[i], error, errno,
            out == &sums ? "untouched" : "touched");
    }
    void *out = &sums;
    errno = 55;
    int error = posix_memalign(&out, 64, all);
    print("posix_memalign of all: %d, errno %d, %s\n", error, errno, out == &sums ? "untouched" : "touched");
}

NOINLINE static void *victim_realloc(void *old, size_t before, size_t size) {
    void *block = realloc(old, size);
    check(block != NULL, "realloc");
    if (old) count_out(before);
    count_in(size);
    return block;
}

NOINLINE static void victim_nothing(void) {
    /* Blocks of zero bytes are blocks, each with an address of its own. */
    void *blocks[] = {malloc(nothing), calloc(nothing, 8), calloc(8, nothing), realloc(NULL, nothing),
                      memalign(32, nothing), aligned_alloc(64, nothing), reallocarray(NULL, nothing, 8)};
    enum { N = sizeof blocks / sizeof *blocks };
    for (int i = 0; i < N; i++) {
        check(blocks[i] != NULL, "a block of nothing");
        count_in(0);
        for (int k = 0; k < i; k++) check(blocks[k] != blocks[i], "an address of its own");
    }
    for (int i = 0; i < N; i++) victim_give(blocks[i], 0);
    /* A realloc to size 0 frees the block. */
    void *block = victim_take(40);
    check(realloc(block, nothing) == NULL, "realloc to nothing");
    count_out(40);
    block = victim_take(40);
    check(reallocarray(block, 5, nothing) == NULL, "reallocarray to nothing");
    count_out(40);
}

NOINLINE static void victim_kept(void) {
    /* A realloc that fails leaves the block, its content and its size alone. */
    for (size_t size = 24; size < 1 << 21; size *= 7) {
        unsigned char *block = victim_take(size);
        memset(block, 0xa5, size);
        check(realloc(block, all) == NULL && realloc(block, huge) == NULL, "realloc of too much");
        check(reallocarray(block, all, 3) == NULL, "reallocarray of too much");
        for (size_t i = 0; i < size; i++) check(block[i] == 0xa5, "content");
        block = victim_realloc(block, size, size); /* the same size again */
        block = victim_realloc(block, size, size + 9000);
        check(block[size - 1] == 0xa5, "content that moved");
        victim_give(block, size + 9000);
    }
}

NOINLINE static void victim_aligned(void) {
    for (size_t align = 1; align <= 1 << 16; align *= 2)
        for (size_t size = 1; size < 40000; size = size * 3 + 5) {
            void *block = memalign(align, size);
            check(block && (uintptr_t)block % align == 0, "memalign");
            check(malloc_usable_size(block) >= size, "usable");
            count_in(size);
            memset(block, 1, malloc_usable_size(block));
            block = victim_realloc(block, size, size * 2);
            victim_give(block, size * 2);
        }
    /* The C library rounds an alignment that is no power of two up. */
    void *block = memalign(48, 100);
    check(block && (uintptr_t)block % 64 == 0, "memalign by 48");
    count_in(100);
    victim_give(block, 100);
}

NOINLINE static void victim_zeroed(void) {
    /* calloc must clear memory that is used again. */
    for (size_t size = 10; size < 1 << 19; size *= 3) {
        unsigned char *block = victim_take(size);
        memset(block, 0xff, malloc_usable_size(block));
        victim_give(block, size);
        block = calloc(1, size);
        count_in(size);
        for (size_t i = 0; i < size; i++) check(block[i] == 0, "calloc");
        victim_give(block, size);
    }
}

NOINLINE static void victim_of_libc(void) {
    /* libc allocates on a caller's behalf through the same functions. */
    for (int i = 0; i < 20; i++) {
        char *copy = strdup("twenty-two characters!");
        count_in(23);
        victim_give(copy, 23);
        copy = strndup("twenty-two characters!", 6);
        count_in(7);
        victim_give(copy, 7);
    }
}

static void errno_of_free(void) {
    for (size_t size = 8; size < 1 << 23; size *= 5) {
        void *block = victim_take(size);
        errno = 4711;
        victim_give(block, size);
        check(errno == 4711, "errno after free");
    }
    errno = 4711;
    free(NULL);
    check(errno == 4711, "errno after free(NULL)");
}

/* Blocks must have the same distances as without tprof, and the heap the same size. */
static void places(void) {
    char *blocks[64];
    struct mallinfo2 before = mallinfo2();
    for (long i = 0; i < 64; i++) blocks[i] = victim_take(some_size(i));
    struct mallinfo2 after = mallinfo2();
    uint64_t sum = 0;
    for (long i = 1; i < 64; i++) sum = sum * 31 + (uint64_t)(blocks[i] - blocks[i - 1]);
    print("distances %llx, %zu more bytes in use\n", (unsigned long long)sum, after.uordblks - before.uordblks);
    for (long i = 0; i < 64; i++) victim_give(blocks[i], some_size(i));
    print("trim %d\n", malloc_trim(0) >= 0);
}

/* Memory runs out, is freed, and can be allocated again. */
NOINLINE static void victim_limited(void) {
    struct rlimit none, little = {4096, 0};
    getrlimit(RLIMIT_DATA, &none);
    little.rlim_max = none.rlim_max;
    check(setrlimit(RLIMIT_DATA, &little) == 0, "setrlimit");
    static void *blocks[4096];
    int n = 0;
    errno = 0;
    while (n < 4096 && (blocks[n] = malloc(100000))) {
        count_in(100000);
        n++;
    }
    print("memory runs out: %s, errno %d\n", n < 4096 ? "yes" : "no", errno);
    errno = 0;
    void *large = malloc(64 << 20);
    print("a large block: %s, errno %d\n", large ? "yes" : "no", errno);
    while (n > 0) victim_give(blocks[--n], 100000);
    check(setrlimit(RLIMIT_DATA, &none) == 0, "setrlimit back");
    victim_give(victim_take(64 << 20), 64 << 20);
}

int main(int argc, char **argv) {
    (void)argv;
    places(); /* first, while the heap does not depend on where it begins */
    errno_of_free();
    victim_failures();
    victim_nothing();
    victim_kept();
    victim_aligned();
    victim_zeroed();
    victim_of_libc();
    victim_limited();
    /* The machine decides how many blocks fit under a limit, so that number is counted and not
     * printed. */
    print("done\n");
    if (argc > 1) expect();
    return 0;
}
