/* Allocates below stacks that share their outer part with the one before: random calls and returns
 * through functions with all kinds of frames, whose locals change between two calls of the same
 * function.
 *
 * Proves: a thread uses its remembered stack only for the frames that are still the same.
 *
 * usage: stacks_alike ALLOCATIONS
 *
 * build: -pthread */
#include "victim.h"
#include <alloca.h>
#include <pthread.h>

enum { DEEPEST = 40 };

struct walk {
    uint64_t random;
    long left;
    void *held[64];
};

typedef void step(struct walk *walk, int depth);
static step *const steps[6];

static unsigned draw(struct walk *walk, unsigned below) {
    walk->random = walk->random * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)(walk->random >> 33) % below;
}

NOINLINE static void victim_one(struct walk *walk) {
    void **place = &walk->held[draw(walk, 64)];
    free(*place);
    *place = malloc(1 + draw(walk, 500));
    walk->left--;
}

/* Calls on, allocates, or returns, a few times each. */
static inline __attribute__((always_inline)) void wander(struct walk *walk, int depth) {
    for (unsigned turns = 1 + draw(walk, 4); turns && walk->left > 0; turns--) {
        if (depth < DEEPEST && draw(walk, 5) < 3) steps[draw(walk, 6)](walk, depth + 1);
        else victim_one(walk);
    }
}

NOINLINE static void plain(struct walk *walk, int depth) { wander(walk, depth); }

NOINLINE static void with_locals(struct walk *walk, int depth) {
    volatile uint64_t locals[13];
    for (int i = 0; i < 13; i++) locals[i] = walk->random + i;
    wander(walk, depth);
    check(locals[0] <= locals[1] || locals[0] > UINT64_MAX - 13, "locals");
}

/* The frame is found by the frame pointer, and its size differs each time. */
NOINLINE static void with_alloca(struct walk *walk, int depth) {
    volatile char *room = alloca(16 + 16 * draw(walk, 8));
    room[0] = (char)depth;
    wander(walk, depth);
    check(room[0] == (char)depth, "room");
}

/* The frame has more than 32 KiB. */
NOINLINE static void large(struct walk *walk, int depth) {
    volatile char room[40000];
    room[0] = room[39999] = (char)depth;
    wander(walk, depth);
    check(room[0] == room[39999], "room");
}

/* The frame pointer's register is a variable, which changes while calls are under way. */
NOINLINE static void keeps_in_registers(struct walk *walk, int depth) {
    uint64_t a = walk->random, b = a * 3, c = a * 5, d = a * 7, e = a * 11, f = a * 13;
    __asm__ volatile("" : "+r"(a), "+r"(b), "+r"(c), "+r"(d), "+r"(e), "+r"(f));
    wander(walk, depth);
    __asm__ volatile("" : "+r"(a), "+r"(b), "+r"(c), "+r"(d), "+r"(e), "+r"(f));
    if (draw(walk, 2)) wander(walk, depth + 1);
    check(b == a * 3 && c == a * 5 && d == a * 7 && e == a * 11 && f == a * 13, "registers");
}

NOINLINE static void two_sites(struct walk *walk, int depth) {
    if (draw(walk, 2)) {
        plain(walk, depth + 1);
        __asm__ volatile("");
    } else {
        plain(walk, depth + 1);
        __asm__ volatile("" ::: "memory");
    }
}

static step *const steps[6] = {plain, with_locals, with_alloca, large, keeps_in_registers, two_sites};

static void *run(void *argument) {
    struct walk *walk = argument;
    while (walk->left > 0) wander(walk, 0);
    for (int i = 0; i < 64; i++) free(walk->held[i]);
    return NULL;
}

int main(int argc, char **argv) {
    static struct walk walks[2] = {{.random = 7}, {.random = 11}};
    check(argc == 2, "usage");
    for (int i = 0; i < 2; i++) walks[i].left = atol(argv[1]);
    pthread_t other;
    check(pthread_create(&other, NULL, run, &walks[1]) == 0, "thread");
    run(&walks[0]);
    pthread_join(other, NULL);
}
