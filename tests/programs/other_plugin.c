/* A second library, laid out differently, that may be loaded where the first
 * one was.
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
