/* Allocates ten blocks of 4 MiB, and then one of 100 MiB that makes the peak: `peak_owner HOW`.
 *
 * Proves: the block that makes the peak is live at the peak, and so are the blocks before it.
 *
 * HOW is how the block of 100 MiB is allocated and freed. malloc, calloc, aligned: by that function;
 * freed at once. thread: in another thread, while three more threads allocate and free 1 MiB each.
 * resized: a block of 50 MiB grows to it, while another thread allocates and frees 1 MiB. again: five
 * times. end: never freed. small: 2,000 blocks of 50,000 bytes instead. late: freed at once; the program then waits for 3 s.
 *
 * build: -pthread */
#include "victim.h"
#include <pthread.h>

#define MIB ((size_t)1 << 20)

static volatile int over;

NOINLINE static char *victim_keeps(size_t size) {
    char *block = malloc(size);
    check(block != NULL, "malloc");
    block[0] = block[size - 1] = 1;
    return block;
}

NOINLINE static char *victim_peak(const char *how, char *from, size_t size) {
    void *block = NULL;
    if (!strcmp(how, "calloc")) block = calloc(size / 16, 16);
    else if (!strcmp(how, "aligned")) check(!posix_memalign(&block, 4096, size), "posix_memalign");
    else if (from) block = realloc(from, size);
    else block = malloc(size);
    check(block != NULL, "allocation");
    ((char *)block)[0] = ((char *)block)[size - 1] = 1;
    return block;
}

static void *comes_and_goes(void *size) {
    while (!over) {
        free(victim_keeps((size_t)size));
        usleep(200);
    }
    return NULL;
}

static void *takes(void *how) {
    free(victim_peak(how, NULL, 100 * MIB));
    return NULL;
}

int main(int count, char **arguments) {
    check(count == 2, "usage: peak_owner HOW");
    const char *how = arguments[1];
    char *kept[10], *small[2000];
    pthread_t others[3], taker;
    for (int i = 0; i < 10; i++) kept[i] = victim_keeps(4 * MIB);
    int threads = !strcmp(how, "thread") ? 3 : !strcmp(how, "resized");
    for (int i = 0; i < threads; i++) pthread_create(&others[i], NULL, comes_and_goes, (void *)MIB);
    usleep(20000);
    if (!strcmp(how, "thread")) {
        pthread_create(&taker, NULL, takes, (void *)how);
        pthread_join(taker, NULL);
    } else if (!strcmp(how, "small")) {
        for (int i = 0; i < 2000; i++) small[i] = victim_peak(how, NULL, 50000);
        for (int i = 0; i < 2000; i++) free(small[i]);
    } else if (!strcmp(how, "resized")) {
        free(victim_peak(how, victim_keeps(50 * MIB), 100 * MIB));
    } else {
        for (int i = 0; i < (strcmp(how, "again") ? 1 : 5); i++) {
            char *block = victim_peak(how, NULL, 100 * MIB);
            if (!strcmp(how, "end")) return 0;
            free(block);
        }
    }
    over = 1;
    for (int i = 0; i < threads; i++) pthread_join(others[i], NULL);
    if (!strcmp(how, "late")) usleep(3000000);
    for (int i = 0; i < 10; i++) free(kept[i]);
    return 0;
}
