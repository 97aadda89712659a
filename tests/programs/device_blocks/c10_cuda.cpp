// A stand-in for libc10_cuda: a caching allocator that reports each block under its lock, as
// PyTorch's does. It rounds sizes to 512 bytes, takes segments of at least 2 MiB from cudaMalloc,
// splits them, and merges free neighbours. With C10_HIDDEN set, segments come from where no hook sees
// their addresses, as expandable segments do.
#include "c10.h"
#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>
#include <string>
#include <sys/mman.h>

extern "C" int cudaMalloc(void **, size_t), cudaFree(void *), cudaMemGetInfo(size_t *, size_t *);

namespace {
struct Block {
    size_t bytes;
    char *segment;
    bool used;
};
std::mutex lock;
std::map<char *, Block> blocks;
std::map<char *, size_t> segments;
size_t allocated, reserved, most_allocated, most_reserved, capacity = -1;
constexpr c10::Device CUDA{1, 0};
// The history and the segments, as `torch.cuda.memory._snapshot()` has them.
std::string trace;

void note(const char *action, const void *address, size_t size) {
    char entry[128];
    snprintf(entry, sizeof entry, "%s{\"action\":\"%s\",\"addr\":%zu,\"size\":%zu}", trace.empty() ? "" : ",",
             action, (size_t)address, size);
    trace += entry;
}

const bool hidden = getenv("C10_HIDDEN");

void report(char *block, int64_t size) {
    most_allocated = allocated > most_allocated ? allocated : most_allocated;
    most_reserved = reserved > most_reserved ? reserved : most_reserved;
#if SIGNATURE == 0
    (void)block;
    c10::reportMemoryUsageToProfiler(CUDA, size);
#else
    c10::reportMemoryUsageToProfiler(block, size, allocated, reserved, CUDA);
#endif
}

int take_segment(void **segment, size_t size) {
    if (!hidden) return cudaMalloc(segment, size);
    *segment = mmap(nullptr, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return *segment == MAP_FAILED;
}

void give_segment(void *segment, size_t size) {
    if (hidden)
        munmap(segment, size);
    else
        cudaFree(segment);
}

// Gives segments without a used block back to the driver.
void release() {
    for (auto it = segments.begin(); it != segments.end();) {
        auto block = blocks.find(it->first);
        if (block->second.used || block->second.bytes != it->second) {
            ++it;
            continue;
        }
        note("segment_free", it->first, it->second);
        give_segment(it->first, it->second);
        reserved -= it->second;
        blocks.erase(block);
        it = segments.erase(it);
    }
}

bool grow(size_t bytes) {
    size_t size = bytes < (2 << 20) ? 2 << 20 : bytes;
    void *segment = nullptr;
    if (reserved + size > capacity || take_segment(&segment, size) != 0) return false;
    note("segment_alloc", segment, size);
    segments[(char *)segment] = size;
    blocks[(char *)segment] = {size, (char *)segment, false};
    reserved += size;
    return true;
}

std::map<char *, Block>::iterator best(size_t bytes) {
    auto found = blocks.end();
    for (auto it = blocks.begin(); it != blocks.end(); ++it)
        if (!it->second.used && it->second.bytes >= bytes &&
            (found == blocks.end() || it->second.bytes < found->second.bytes))
            found = it;
    return found;
}
} // namespace

extern "C" void *take(size_t asked) {
    std::lock_guard<std::mutex> guard(lock);
    size_t bytes = (asked + 511) / 512 * 512;
    auto it = best(bytes);
    if (it == blocks.end()) {
        if (!grow(bytes)) {
            release();
            if (!grow(bytes)) {
                size_t free, all;
                cudaMemGetInfo(&free, &all);
#if SIGNATURE != 0
                c10::reportOutOfMemoryToProfiler(bytes, allocated, reserved, CUDA);
#endif
                return nullptr;
            }
        }
        it = best(bytes);
    }
    if (it->second.bytes > bytes)
        blocks[it->first + bytes] = {it->second.bytes - bytes, it->second.segment, false};
    it->second.bytes = bytes;
    it->second.used = true;
    allocated += bytes;
    note("alloc", it->first, asked);
    report(it->first, (int64_t)bytes);
    return it->first;
}

extern "C" void give(void *address) {
    std::lock_guard<std::mutex> guard(lock);
    auto it = blocks.find((char *)address);
    int64_t bytes = (int64_t)it->second.bytes;
    allocated -= it->second.bytes;
    it->second.used = false;
    note("free_requested", it->first, it->second.bytes);
    note("free_completed", it->first, it->second.bytes);
    report(it->first, -bytes);
    auto next = std::next(it);
    if (next != blocks.end() && !next->second.used && next->second.segment == it->second.segment) {
        it->second.bytes += next->second.bytes;
        blocks.erase(next);
    }
    if (it != blocks.begin()) {
        auto before = std::prev(it);
        if (!before->second.used && before->second.segment == it->second.segment) {
            before->second.bytes += it->second.bytes;
            blocks.erase(it);
        }
    }
}

extern "C" void empty_cache() {
    std::lock_guard<std::mutex> guard(lock);
    release();
}

// Writes what scripts/gpu-check/programs/blocks.py writes of PyTorch's own allocator.
extern "C" void write_snapshot(const char *path) {
    std::lock_guard<std::mutex> guard(lock);
    FILE *file = fopen(path, "w");
    fprintf(file, "{\"segments\":[");
    const char *comma = "";
    for (auto &[segment, size] : segments) {
        fprintf(file, "%s{\"device\":0,\"address\":%zu,\"total_size\":%zu,\"is_expandable\":false,\"blocks\":[", comma,
                (size_t)segment, size);
        const char *next = "";
        for (auto &[address, block] : blocks) {
            if (block.segment != segment) continue;
            fprintf(file, "%s{\"size\":%zu,\"state\":\"%s\"}", next, block.bytes,
                    block.used ? "active_allocated" : "inactive");
            next = ",";
        }
        fprintf(file, "]}");
        comma = ",";
    }
    fprintf(file,
            "],\"device_traces\":[[%s]],\"sums\":{\"allocated_bytes.all.current\":%zu,"
            "\"allocated_bytes.all.peak\":%zu,\"reserved_bytes.all.current\":%zu,\"reserved_bytes.all.peak\":%zu}}",
            trace.c_str(), allocated, most_allocated, reserved, most_reserved);
    fclose(file);
}

extern "C" void limit(size_t bytes) { capacity = bytes; }

// A report for memory of the host, which must not count as the device's.
extern "C" void report_host() {
#if SIGNATURE == 0
    c10::reportMemoryUsageToProfiler({0, -1}, 4096);
#else
    c10::reportMemoryUsageToProfiler(&lock, 4096, 1 << 30, 1 << 30, {0, -1});
#endif
}

extern "C" void print_stats() {
    printf("allocated=%zu reserved=%zu most_allocated=%zu most_reserved=%zu\n", allocated, reserved,
           most_allocated, most_reserved);
    fflush(stdout);
}
