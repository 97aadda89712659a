/* The table `tprof_abi` of another version: 8 bytes less than the functions that it had first, and
 * none of them there. To be preloaded.
 *
 * Proves: a program that was built for another version does not call what is not there.
 *
 * build: -shared -fPIC */
#include <stddef.h>

struct {
    size_t bytes;
    void *functions[10];
} tprof_abi = {80, {0}};
