// A thread that ends early, one that only waits, and a main thread that works: all go on while
// recording is off at the beginning or at the end.
#include <pthread.h>
#include <stdint.h>
#include <time.h>
#include <unistd.h>

static uint64_t now_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000ull + t.tv_nsec / 1000000;
}

static void *ends_early(void *unused) {
    (void)unused;
    usleep(200 * 1000);
    return 0;
}

static void *only_waits(void *unused) {
    (void)unused;
    sleep(3);
    return 0;
}

static volatile uint64_t sum;

__attribute__((noinline)) static void works(uint64_t until_ms) {
    while (now_ms() < until_ms) {
        for (int i = 0; i < 1000; i++) sum += i;
    }
}

int main(void) {
    pthread_t early, waits;
    uint64_t began_ms = now_ms();
    pthread_create(&early, 0, ends_early, 0);
    pthread_create(&waits, 0, only_waits, 0);
    pthread_join(early, 0);
    works(began_ms + 2500);
    pthread_join(waits, 0);
    return 0;
}
