// The least that a preloaded recorder can cost if nobody reads its records. Level 1 (-DLEVEL=1)
// only forwards to libc. Level 2 also writes the time-stamp counter, the address and the size (32
// bytes) into this thread's ring. Level 3 also walks the frame pointers of each allocation and
// writes the number of the interned stack. Level 4 walks the stack with libunwind instead
// (unw_backtrace). Don't use it on real programs: it lacks fork, signal handlers and aligned
// blocks.
#define _GNU_SOURCE
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>

void *__libc_malloc(size_t), *__libc_calloc(size_t, size_t), *__libc_realloc(void *, size_t);
void __libc_free(void *);

#define IN_HOOK static inline __attribute__((always_inline))
#if LEVEL >= 2
enum { RING_BYTES = 1 << 20, STACKS = 1 << 16, DEEPEST = 64 };

struct record {
    uint64_t ticks, address, bytes, stack;
};

static __thread __attribute__((tls_model("initial-exec"))) struct {
    struct record *next, *end, *ring;
    uintptr_t stack_top;
    struct {
        uint64_t hash, id;
    } *stacks;
    uint64_t known;
} here;

IN_HOOK uint64_t ticks(void) {
#ifdef __x86_64__
    return __builtin_ia32_rdtsc();
#else
    uint64_t now;
    __asm__ volatile("mrs %0, cntvct_el0" : "=r"(now));
    return now;
#endif
}

static void *pages(size_t bytes) {
    return mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
}

static __attribute__((cold, noinline)) void enter(void) {
    here.ring = pages(RING_BYTES);
    here.next = here.ring;
    here.end = here.ring + RING_BYTES / sizeof *here.ring;
#if LEVEL >= 3
    here.stacks = pages(STACKS * sizeof *here.stacks);
    pthread_attr_t attributes;
    void *low;
    size_t bytes;
    if (pthread_getattr_np(pthread_self(), &attributes) == 0) {
        pthread_attr_getstack(&attributes, &low, &bytes);
        here.stack_top = (uintptr_t)low + bytes;
        pthread_attr_destroy(&attributes);
    }
#endif
}

#if LEVEL >= 3
IN_HOOK uint64_t with(uint64_t hash, uintptr_t address) {
    hash = (hash ^ address) * 0xff51afd7ed558ccdu;
    return hash ^ hash >> 32;
}

#if LEVEL >= 4
// Declared here, because the library comes with profilers, but its headers don't.
int unw_backtrace(void **, int);

static uint64_t walked(uintptr_t frame) {
    static __thread __attribute__((tls_model("initial-exec"))) int is_within;
    void *frames[DEEPEST];
    uint64_t hash = 1;
    (void)frame;
    // unw_backtrace allocates when it is first called.
    if (is_within) return 0;
    is_within = 1;
    int found = unw_backtrace(frames, DEEPEST);
    is_within = 0;
    for (int at = 0; at < found; at++) hash = with(hash, (uintptr_t)frames[at]);
    return hash;
}
#else
IN_HOOK uint64_t walked(uintptr_t frame) {
    uint64_t hash = 1;
    for (unsigned depth = 0; depth < DEEPEST; depth++) {
        uintptr_t *pair = (uintptr_t *)frame;
        if (frame & 7 || frame + 16 > here.stack_top || !pair[1]) break;
        hash = with(hash, pair[1]);
        if (pair[0] <= frame) break;
        frame = pair[0];
    }
    return hash;
}
#endif

IN_HOOK uint64_t stack_id(uintptr_t frame) {
    uint64_t hash = walked(frame);
    for (uint64_t at = hash;; at++) {
        uint64_t slot = at % STACKS;
        if (here.stacks[slot].hash == hash) return here.stacks[slot].id;
        if (!here.stacks[slot].hash) {
            if (here.known == STACKS / 2) return 0;
            here.stacks[slot].hash = hash;
            return here.stacks[slot].id = ++here.known;
        }
    }
}
#endif
#endif

IN_HOOK void record(void *block, size_t bytes, void *frame) {
    (void)block, (void)bytes, (void)frame;
#if LEVEL >= 2
    if (__builtin_expect(!here.ring, 0)) enter();
    if (__builtin_expect(here.next == here.end, 0)) here.next = here.ring;
    uint64_t stack = 0;
#if LEVEL >= 3
    if (frame) stack = stack_id((uintptr_t)frame);
#endif
    *here.next++ = (struct record){ticks(), (uintptr_t)block, bytes, stack};
#endif
}

void *malloc(size_t bytes) {
    void *block = __libc_malloc(bytes);
    record(block, bytes, __builtin_frame_address(0));
    return block;
}

void *calloc(size_t count, size_t each) {
    void *block = __libc_calloc(count, each);
    record(block, count * each, __builtin_frame_address(0));
    return block;
}

void free(void *block) {
    if (!block) return;
    record(block, 0, NULL);
    __libc_free(block);
}

void *realloc(void *old, size_t bytes) {
    if (old) record(old, 0, NULL);
    void *block = __libc_realloc(old, bytes);
    record(block, bytes, __builtin_frame_address(0));
    return block;
}
