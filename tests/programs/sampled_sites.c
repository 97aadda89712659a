/* A hundred places that allocate the same known number of bytes each.
 *
 * Proves: the estimate for a place lies within its stated error in 95 of 100 cases. Each place is one
 * trial, because it is sampled independently of the others.
 *
 * usage: sampled_sites BLOCKS SIZE */
#include "victim.h"

static long blocks;
static size_t size;

#define SITE(n)                                                    \
    NOINLINE static void victim_site_##n(void) {                   \
        for (long i = 0; i < blocks; i++) {                        \
            void *block = malloc(size);                            \
            __asm__ volatile("" : "+r"(block));                    \
            count_in(size);                                        \
            count_out(size);                                       \
            free(block);                                           \
        }                                                          \
    }
#define TEN(n) SITE(n##0) SITE(n##1) SITE(n##2) SITE(n##3) SITE(n##4) \
               SITE(n##5) SITE(n##6) SITE(n##7) SITE(n##8) SITE(n##9)
TEN(0) TEN(1) TEN(2) TEN(3) TEN(4) TEN(5) TEN(6) TEN(7) TEN(8) TEN(9)

#define CALL_TEN(n) victim_site_##n##0(); victim_site_##n##1(); victim_site_##n##2(); victim_site_##n##3(); \
    victim_site_##n##4(); victim_site_##n##5(); victim_site_##n##6(); victim_site_##n##7();                 \
    victim_site_##n##8(); victim_site_##n##9();

int main(int argc, char **argv) {
    blocks = argc > 1 ? atol(argv[1]) : 20000;
    size = argc > 2 ? atol(argv[2]) : 1000;
    CALL_TEN(0) CALL_TEN(1) CALL_TEN(2) CALL_TEN(3) CALL_TEN(4)
    CALL_TEN(5) CALL_TEN(6) CALL_TEN(7) CALL_TEN(8) CALL_TEN(9)
    expect();
    return 0;
}
