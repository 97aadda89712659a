/* Takes its memory from an allocator that is linked in under names of its own, as a
 * Rust program's global allocator is: 50 blocks of 1 MiB, held.
 *
 * Proves: what goes round malloc is reported, not counted as nothing. */
#include "victim.h"

void *_rjem_malloc(size_t size);

int main(void) {
    long sum = 0;
    for (int i = 0; i < 50; i++) {
        char *block = _rjem_malloc(1 << 20);
        check(block != NULL, "_rjem_malloc");
        memset(block, i, 1 << 20);
        sum += block[i];
    }
    print("held 50 MiB, %ld\n", sum);
    return 0;
}
