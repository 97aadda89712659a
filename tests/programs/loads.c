/* With an argument, makes a preloaded library allocate and hold 50 MiB.
 *
 * Proves: a library's own allocator is reported only if it is used.
 *
 * usage: LD_PRELOAD=LIBRARY loads [hold]
 * build: -ldl */
#include "victim.h"
#include <dlfcn.h>

int main(int argc, char **argv) {
    (void)argv;
    long (*hold)(void) = (long (*)(void))dlsym(RTLD_DEFAULT, "hold");
    check(hold != NULL, "the library is not there");
    if (argc > 1) print("%ld\n", hold());
    usleep(300000);
    return 0;
}
