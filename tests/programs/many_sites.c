/* Allocates at 4,096 places. A piece of code has more return addresses than are looked up without
 * an unwind table, and more than 64 KiB of frame information.
 *
 * Proves: rows of cached tables, rows of new tables, and rows that are found in the code itself
 * give the same stacks.
 *
 * usage: many_sites */
#include "victim.h"

#define SITE(n)                                                                                   \
    __attribute__((noinline)) void victim_site_##n(void) {                                        \
        void *block = malloc(1 + 0x##n);                                                          \
        check(block != NULL, "malloc");                                                           \
        free(block);                                                                              \
    }
#define NAME(n) victim_site_##n,
#define SIXTEEN(each, n)                                                                          \
    each(n##0) each(n##1) each(n##2) each(n##3) each(n##4) each(n##5) each(n##6) each(n##7)       \
    each(n##8) each(n##9) each(n##a) each(n##b) each(n##c) each(n##d) each(n##e) each(n##f)
#define ROW(n) SIXTEEN(SITE, n)
#define NAMES(n) SIXTEEN(NAME, n)
#define PAGE(of, n)                                                                               \
    of(n##0) of(n##1) of(n##2) of(n##3) of(n##4) of(n##5) of(n##6) of(n##7)                       \
    of(n##8) of(n##9) of(n##a) of(n##b) of(n##c) of(n##d) of(n##e) of(n##f)
#define ALL(of)                                                                                   \
    PAGE(of, 0) PAGE(of, 1) PAGE(of, 2) PAGE(of, 3) PAGE(of, 4) PAGE(of, 5) PAGE(of, 6)           \
    PAGE(of, 7) PAGE(of, 8) PAGE(of, 9) PAGE(of, a) PAGE(of, b) PAGE(of, c) PAGE(of, d)           \
    PAGE(of, e) PAGE(of, f)

ALL(ROW)

static void (*const sites[])(void) = {ALL(NAMES)};

int main(void) {
    long count = sizeof sites / sizeof *sites;
    /* The table becomes available during the first round, so the second round uses it. */
    for (int round = 0; round < 2; round++) {
        for (long at = 0; at < count; at++) sites[at]();
    }
    print("sites %ld\n", count);
    return 0;
}
