// A stand-in for libc10: the functions by which PyTorch's allocators report to a profiler. They sum
// up what reaches them. SIGNATURE is the version: 0 until PyTorch 1.9, 1 until 2.1, then 2.
#include "c10.h"
#include <cstddef>
#include <cstdio>

static int64_t reports, bytes, failures;

namespace c10 {
#if SIGNATURE == 0
void reportMemoryUsageToProfiler(Device, int64_t size) {
#else
void reportMemoryUsageToProfiler(void *, int64_t size, Total, Total, Device) {
#endif
    reports++;
    bytes += size;
}
#if SIGNATURE != 0
void reportOutOfMemoryToProfiler(int64_t, Total, Total, Device) { failures++; }
#endif
} // namespace c10

extern "C" void print_reports() {
    printf("reports=%ld bytes=%ld failures=%ld\n", (long)reports, (long)bytes, (long)failures);
    fflush(stdout);
}
