/* A library whose constructor spins for 0.6 s, before any other library's constructor has run.
 *
 * build: -shared -fPIC */
#include <time.h>

__attribute__((constructor)) static void spin(void) {
    struct timespec used;
    do clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
    while (used.tv_sec * 1000000000L + used.tv_nsec < 600000000L);
}
