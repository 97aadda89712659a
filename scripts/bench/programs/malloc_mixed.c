// malloc_mixed OPERATIONS [THREADS]: each operation frees a random live block and allocates another
// one of 16 B to 64 KiB, mostly small. It allocates below 5 to 30 calls of eight functions that
// call one another, which makes about 2,000 different stacks. 100,000 blocks are live, split over
// the threads. Allocating the first blocks and freeing the last ones is not timed.
#include "loop.h"
#include <pthread.h>

enum { LIVE = 100000, FUNCTIONS = 8 };

typedef void *call(unsigned depth, size_t bytes);
static call *const step[FUNCTIONS];
static volatile unsigned after_call; // keeps every call from being a tail call

#define STEP(n)                                                                \
    static __attribute__((noinline)) void *step##n(unsigned depth, size_t bytes) { \
        void *block = depth ? step[(depth * 3 + n * 5 + (bytes & 7)) % FUNCTIONS](depth - 1, bytes) : malloc(bytes); \
        after_call = n;                                                        \
        return block;                                                          \
    }
STEP(0) STEP(1) STEP(2) STEP(3) STEP(4) STEP(5) STEP(6) STEP(7)
static call *const step[FUNCTIONS] = {step0, step1, step2, step3, step4, step5, step6, step7};

struct share {
    uint64_t random;
    size_t per_slice, live;
    int is_first;
};

static pthread_barrier_t filled, timed;

static uint64_t draw(struct share *share) {
    uint64_t x = share->random;
    x ^= x << 13;
    x ^= x >> 7;
    return share->random = x ^ x << 17;
}

static inline __attribute__((always_inline)) void replace(struct share *share, char **place) {
    uint64_t random = draw(share);
    free(*place);
    // Each doubling of the size is half as likely as the one before it.
    size_t least = (size_t)16 << __builtin_ctzl((random >> 20 & 0x7ff) | 0x800);
    size_t bytes = least + (random >> 32 & (least - 1));
    *place = step[random >> 48 & 7](4 + (random >> 51) % 26, bytes);
    **place = 1;
}

static void *work(void *argument) {
    struct share *share = argument;
    char **blocks = calloc(share->live, sizeof *blocks);
    for (size_t i = 0; i < share->live; i++) replace(share, &blocks[i]);
    pthread_barrier_wait(&filled);
    if (share->is_first) loop_begin();
    for (int slice = 0; slice < SLICES; slice++) {
        for (size_t i = 0; i < share->per_slice; i++) replace(share, &blocks[draw(share) % share->live]);
        if (share->is_first) slice_end();
    }
    pthread_barrier_wait(&timed);
    if (share->is_first) {
        uint64_t events = 2 * share->per_slice * SLICES * (LIVE / share->live);
        loop_end(events);
        fprintf(stderr, "all_events=%lu\n", events + 2 * LIVE);
    }
    for (size_t i = 0; i < share->live; i++) free(blocks[i]);
    free(blocks);
    return NULL;
}

int main(int argc, char **argv) {
    size_t operations = argc > 1 ? strtoul(argv[1], NULL, 10) : 2000000;
    unsigned threads = argc > 2 ? (unsigned)atoi(argv[2]) : 1;
    if (threads < 1 || threads > 16 || LIVE % threads) return 2;
    pthread_barrier_init(&filled, NULL, threads);
    pthread_barrier_init(&timed, NULL, threads);
    struct share shares[16];
    pthread_t others[16];
    for (unsigned i = 0; i < threads; i++) {
        shares[i] = (struct share){0x9e3779b97f4a7c15u * (i + 1), operations / threads / SLICES, LIVE / threads, i == 0};
        if (i) pthread_create(&others[i], NULL, work, &shares[i]);
    }
    work(&shares[0]);
    for (unsigned i = 1; i < threads; i++) pthread_join(others[i], NULL);
}
