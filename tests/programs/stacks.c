/* A chain of calls with known names and lines: victim_a is called by victim_b,
 * and so on to main; one of them is inlined.
 *
 * Proves: stacks are whole and named, with and without frame pointers. */
#include "victim.h"

static void *volatile sink;

#define AFTER __asm__ volatile("" ::: "memory")

NOINLINE static void victim_a(size_t size) {
    void *block = malloc(size); /* line: a */
    count_in(size);
    sink = block;
}
__attribute__((always_inline)) static inline void victim_inlined(size_t size) {
    victim_a(size + 1); /* line: inlined */
    AFTER;
}
NOINLINE static void victim_b(size_t size) {
    victim_inlined(size); /* line: b */
    AFTER;
}
NOINLINE static void victim_c(size_t size) {
    char room[3000];
    __asm__ volatile("" ::"r"(room) : "memory");
    victim_b(size); /* line: c */
    AFTER;
}
NOINLINE static void victim_d(size_t size) {
    char *room = __builtin_alloca(size + 100);
    __asm__ volatile("" ::"r"(room) : "memory");
    victim_c(size); /* line: d */
    AFTER;
}

static int compare(const void *a, const void *b) {
    if (*(const int *)a == 3) victim_d(700);
    return *(const int *)a - *(const int *)b;
}

int main(void) {
    for (int i = 0; i < 100; i++) {
        victim_d(500); /* line: main */
        AFTER;
    }
    /* The C library, which has no frame pointers, calls back. */
    int numbers[] = {3, 1};
    qsort(numbers, 2, sizeof *numbers, compare);
    expect();
    return 0;
}
