/* Allocates at the bottom of 500 frames.
 *
 * Proves: deep stacks are recorded whole or marked as cut, and the job goes on. */
#include "victim.h"

NOINLINE static void *victim_deep(int depth) {
    if (depth == 0) return victim_take(64);
    void *block = victim_deep(depth - 1);
    __asm__ volatile("" : "+r"(block));
    return block;
}

int main(void) {
    for (int i = 0; i < 100; i++) {
        victim_give(victim_deep(500), 64);
        victim_deep(5);
    }
    expect();
    return 0;
}
