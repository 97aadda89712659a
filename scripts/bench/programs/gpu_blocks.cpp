// Reports blocks of device memory as PyTorch's allocator does, and prints what a report takes:
// `blocks COUNT`. The blocks are of 4 KiB, too small for a stack.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>

namespace c10 {
struct Device {
    int8_t type, index;
};
void reportMemoryUsageToProfiler(void *, int64_t, size_t, size_t, Device);
} // namespace c10

static uint64_t now() {
    timespec time;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return time.tv_sec * 1000000000ull + time.tv_nsec;
}

int main(int, char **words) {
    long count = atol(words[1]);
    uint64_t begun = now();
    for (long number = 0; number < count; number += 2) {
        void *block = (void *)(0x7f0000000000 + (number % 4096) * 4096);
        c10::reportMemoryUsageToProfiler(block, 4096, 8192, 1 << 21, {1, 0});
        c10::reportMemoryUsageToProfiler(block, -4096, 4096, 1 << 21, {1, 0});
    }
    printf("call_ns=%.2f\n", double(now() - begun) / count);
}
