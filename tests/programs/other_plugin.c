/* A library with another layout than plugin.c's, which may be loaded at the address that had that one.
 *
 * build: -shared -fPIC */
#include <stdlib.h>
#include <string.h>

__attribute__((noinline)) void victim_other_give(void *block) { free(block); }
__attribute__((noinline)) void *victim_other_take(size_t size) {
    char *block = calloc(1, size);
    block[0] = 3;
    return block;
}
