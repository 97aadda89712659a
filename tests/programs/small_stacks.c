/* Threads on stacks of 16 KB, with unmapped pages on both sides.
 *
 * Proves: a hook uses little stack, and the library uses little static TLS.
 *
 * build: -pthread */
#include "victim.h"
#include <limits.h>
#include <pthread.h>
#include <sys/mman.h>

#define BYTES 16384

NOINLINE static void victim_nested(int depth) {
    char local[64];
    __asm__ volatile("" ::"r"(local) : "memory");
    if (depth > 0) {
        victim_nested(depth - 1);
        __asm__ volatile("" ::: "memory");
        return;
    }
    for (long i = 0; i < 200; i++) {
        void *block = malloc(some_size(i));
        count_in(some_size(i));
        block = realloc(block, 700);
        count_out(some_size(i));
        count_in(700);
        count_out(700);
        free(block);
    }
}

static void *work(void *unused) {
    victim_nested(10);
    return unused;
}

int main(void) {
    for (int i = 0; i < 20; i++) {
        char *area = mmap(NULL, BYTES + 8192, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        mprotect(area + 4096, BYTES, PROT_READ | PROT_WRITE);
        pthread_attr_t attributes;
        pthread_attr_init(&attributes);
        check(pthread_attr_setstack(&attributes, area + 4096, BYTES) == 0, "setstack");
        pthread_t thread;
        check(pthread_create(&thread, &attributes, work, NULL) == 0, "pthread_create");
        pthread_join(thread, NULL);
        munmap(area, BYTES + 8192);
    }
    expect();
    return 0;
}
