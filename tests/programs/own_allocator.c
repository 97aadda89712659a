/* Allocates with an allocator that is linked in under other names than malloc's, like a Rust
 * program's global allocator: 50 blocks of 1 MiB, which it keeps.
 *
 * Proves: allocations that bypass malloc are reported, and not counted as zero. */
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
