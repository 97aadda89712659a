// What libc10 and libc10_cuda share.
#pragma once
#include <cstdint>

namespace c10 {
struct Device {
    int8_t type, index;
};
#if SIGNATURE == 0
void reportMemoryUsageToProfiler(Device, int64_t size);
#else
#if SIGNATURE == 1
using Total = int64_t;
#else
using Total = unsigned long;
#endif
void reportMemoryUsageToProfiler(void *, int64_t size, Total allocated, Total reserved, Device);
void reportOutOfMemoryToProfiler(int64_t size, Total allocated, Total reserved, Device);
#endif
} // namespace c10
