/* Exports its own malloc from the executable, as programs with a bundled allocator do.
 *
 * Proves: the program runs on its own allocator, and the run reports that its
 * allocations could not be recorded. */
#include "victim.h"
#include <malloc.h>

#define ARENA (64 << 20)
static char arena[ARENA] __attribute__((aligned(16)));
static size_t used;
static long calls;

void *malloc(size_t size) {
    size_t whole = (size + 31) & ~15ul;
    if (whole < size || whole > ARENA - used) {
        errno = ENOMEM;
        return NULL;
    }
    char *block = arena + used;
    used += whole;
    calls++;
    *(size_t *)block = size;
    return block + 16;
}
void free(void *block) {
    if (block && ((char *)block < arena || (char *)block >= arena + ARENA)) {
        write(2, "a foreign block was freed\n", 26);
        _exit(95);
    }
}
void *calloc(size_t n, size_t size) {
    void *block = malloc(n * size);
    return block ? memset(block, 0, n * size) : NULL;
}
void *realloc(void *block, size_t size) {
    void *grown = malloc(size);
    if (block && grown) {
        size_t old = ((size_t *)block)[-2];
        memcpy(grown, block, old < size ? old : size);
    }
    return grown;
}
void *memalign(size_t align, size_t size) {
    char *block = malloc(size + align);
    return block ? (void *)(((uintptr_t)block + align - 1) & ~(align - 1)) : NULL;
}
void *aligned_alloc(size_t align, size_t size) { return memalign(align, size); }
int posix_memalign(void **out, size_t align, size_t size) {
    *out = memalign(align, size);
    return *out ? 0 : ENOMEM;
}

int main(void) {
    long before = calls;
    for (long i = 0; i < 1000; i++) free(victim_take(some_size(i)));
    char *text = strdup("copied");
    print("%s, %ld calls\n", text, calls - before);
    return 0;
}
