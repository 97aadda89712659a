/* Gives a program another time of day than the machine's, as libfaketime does. A library for LD_PRELOAD.
 *
 * build: -shared -fPIC -ldl */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <time.h>

int clock_gettime(clockid_t clock, struct timespec *time) {
    int result = ((__typeof__(&clock_gettime))dlsym(RTLD_NEXT, "clock_gettime"))(clock, time);
    if (result == 0 && clock == CLOCK_REALTIME)
        time->tv_sec -= 86400 * 100;
    return result;
}
