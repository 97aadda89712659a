/* A library that contains an allocator under other names than malloc's.
 *
 * build: -shared -fPIC */
#include <stdlib.h>
#include <string.h>

void *_rjem_malloc(size_t size);

long hold(void) {
    long sum = 0;
    for (int i = 0; i < 50; i++) {
        char *block = _rjem_malloc(1 << 20);
        if (block == NULL) abort();
        memset(block, i, 1 << 20);
        sum += block[i];
    }
    return sum;
}
