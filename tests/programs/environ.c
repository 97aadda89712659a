/* Prints its environment, from `environ` and from /proc/self/environ, without LD_PRELOAD,
 * CUDA_INJECTION64_PATH, NVTX_INJECTION64_PATH, INTEL_LIBITTNOTIFY64, NCCL_PROFILER_PLUGIN and
 * TPROF_*.
 *
 * Proves: no other variable is changed, and the order stays the same. */
#include "victim.h"
#include <fcntl.h>

extern char **environ;
static char text[1 << 20];

static int ours(const char *entry) {
    return !strncmp(entry, "TPROF_", 6) || !strncmp(entry, "LD_PRELOAD=", 11)
        || !strncmp(entry, "CUDA_INJECTION64_PATH=", 22)
        || !strncmp(entry, "NVTX_INJECTION64_PATH=", 22) || !strncmp(entry, "NCCL_PROFILER_PLUGIN=", 21)
        || !strncmp(entry, "INTEL_LIBITTNOTIFY64=", 21);
}

int main(int argc, char **argv) {
    (void)argv;
    for (char **entry = environ; *entry; entry++)
        if (!ours(*entry)) print("%s\n", *entry);
    print("--\n");
    int fd = open("/proc/self/environ", O_RDONLY);
    ssize_t n = 0, more;
    while ((more = read(fd, text + n, sizeof text - 1 - n)) > 0) n += more;
    for (char *entry = text; entry < text + n; entry += strlen(entry) + 1)
        if (!ours(entry)) print("%s\n", entry);
    const char *preload = getenv("LD_PRELOAD");
    if (argc > 1) print("LD_PRELOAD=%s\n", preload ? preload : "");
    return 0;
}
