/* Allocates under a function without unwind information.
 *
 * Proves: a stack that can't be followed is marked as cut and not made up.
 *
 * build: stacks_bare.S */
#include "victim.h"

void victim_bare(void (*call)(void));

NOINLINE static void victim_beneath(void) {
    victim_take(333);
    __asm__ volatile("" ::: "memory");
}

int main(void) {
    for (int i = 0; i < 100; i++) victim_bare(victim_beneath);
    expect();
    return 0;
}
