/* The table `tprof_abi` of another version: it ends 8 bytes before its first functions would end,
 * and contains none of them. For LD_PRELOAD.
 *
 * Proves: a program that was built for another version doesn't call missing functions.
 *
 * build: -shared -fPIC */
#include <stddef.h>

struct {
    size_t bytes;
    void *functions[10];
} tprof_abi = {80, {0}};
