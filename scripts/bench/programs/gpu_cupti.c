/* A driver and a CUPTI that make records as fast as they are asked to: one for each kernel, and
 * one for the call that launched it, in the layout of CUDA 12.0 to 12.9. This file is built
 * twice: as libcuda.so.1 with -DDRIVER, and as libcupti.so.12 without. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#ifdef DRIVER
int cuDriverGetVersion(int *version) { return *version = 12080, 0; }
int cuDeviceGetCount(int *count) { return *count = 1, 0; }
int cuCtxGetCurrent(void **context) { return *context = (void *)1, 0; }

/* The agent's thread calls it too, to wait until the driver has started. */
int cuInit(unsigned flags) {
    static int called;
    (void)flags;
    if (called++) return 0;
    const char *path = getenv("CUDA_INJECTION64_PATH");
    void *library = path ? dlopen(path, RTLD_NOW) : 0;
    int (*begin)(void) = library ? dlsym(library, "InitializeInjection") : 0;
    return begin ? !begin() : 1;
}
#else
enum { KERNEL = 10, RUNTIME = 5, KERNEL_BYTES = 208, CALL_BYTES = 40, END = 12 };
typedef void (*request_t)(uint8_t **, size_t *, size_t *);
typedef void (*complete_t)(void *, uint32_t, uint8_t *, size_t, size_t);
static request_t request;
static complete_t complete;

static uint64_t now(void) {
    struct timespec at;
    clock_gettime(CLOCK_REALTIME, &at);
    return at.tv_sec * 1000000000ull + at.tv_nsec;
}

int cuptiGetVersion(uint32_t *version) { return *version = 28, 0; }
int cuptiGetTimestamp(uint64_t *time) { return *time = now(), 0; }
int cuptiActivityEnable(int kind) { return (void)kind, 0; }
int cuptiActivityFlushAll(uint32_t how) { return (void)how, 0; }
int cuptiActivitySetAttribute(int which, size_t *bytes, void *value) { return (void)which, (void)bytes, (void)value, 0; }
int cuptiActivityEnableRuntimeApi(uint32_t call, uint8_t on) { return (void)call, (void)on, 0; }
int cuptiActivityEnableDriverApi(uint32_t call, uint8_t on) { return (void)call, (void)on, 0; }
int cuptiGetContextId(void *context, uint32_t *id) { return (void)context, *id = 1, 0; }
int cuptiGetStreamIdEx(void *context, void *stream, uint8_t by_thread, uint32_t *id) { return (void)context, (void)stream, (void)by_thread, *id = 7, 0; }
int cuptiSetThreadIdType(int kind) { return (void)kind, 0; }
int cuptiActivityGetNumDroppedRecords(void *context, uint32_t stream, size_t *dropped) { return (void)context, (void)stream, *dropped = 0, 0; }
int cuptiGetCallbackName(int domain, uint32_t number, const char **name) { return (void)domain, (void)number, *name = "cudaLaunchKernel_v7000", 0; }
int cuptiActivityRegisterCallbacks(request_t lend, complete_t take) { return request = lend, complete = take, 0; }

int cuptiActivityGetNextRecord(uint8_t *buffer, size_t valid, uint8_t **record) {
    uint8_t *next = buffer;
    if (*record) {
        uint32_t kind;
        memcpy(&kind, *record, 4);
        next = *record + (kind == KERNEL ? KERNEL_BYTES : CALL_BYTES);
    }
    if (next >= buffer + valid) return END;
    *record = next;
    return 0;
}

static void put32(uint8_t *at, uint32_t value) { memcpy(at, &value, 4); }
static void put64(uint8_t *at, uint64_t value) { memcpy(at, &value, 8); }

/* Makes the records of `kernels` kernels at `rate` kernels a second, or as fast as buffers come
 * if `rate` is 0. Returns the number of kernels that found no buffer. */
long bench_feed(long kernels, long rate) {
    static const char *names[] = {
        "_ZN2at6native29vectorized_elementwise_kernelILi4EEEviT0_T1_", "_Z4gemmPKfS0_Pfiii",
        "ampere_sgemm_128x64_tn", "_Z12softmax_lossILi128EEvPKfPKiPfi", "_ZN9optimizer8sgd_stepIfEEvPT_PKS1_fi"};
    uint64_t begin = now(), time = begin;
    long lost = 0, made = 0;
    uint64_t random = 88172645463325252;
    while (made < kernels) {
        uint8_t *buffer = 0;
        size_t bytes = 0, most = 0, used = 0;
        request(&buffer, &bytes, &most);
        if (!buffer) {
            if (rate) lost++, made++;
            nanosleep(&(struct timespec){0, 100000}, 0);
            continue;
        }
        for (; made < kernels && used + CALL_BYTES + KERNEL_BYTES <= bytes; made++) {
            uint8_t *call = buffer + used, *kernel = call + CALL_BYTES;
            /* Times are as irregular as real ones; with regular times a trace would compress too
             * well. */
            random ^= random << 13, random ^= random >> 7, random ^= random << 17;
            time += 1500 + random % 2000;
            put32(call, RUNTIME), put32(call + 4, 211), put64(call + 8, time), put64(call + 16, time + 900 + (random >> 16) % 900);
            put32(call + 28, 77), put32(call + 32, made);
            put32(kernel, KERNEL), put64(kernel + 16, time + 5000 + (random >> 32) % 500), put64(kernel + 24, time + 6200 + (random >> 44) % 9000);
            put32(kernel + 44, 1), put32(kernel + 48, 7), put32(kernel + 92, made);
            for (int i = 0; i < 3; i++) put32(kernel + 52 + 4 * i, 1 + made % 3), put32(kernel + 64 + 4 * i, i ? 1 : 256);
            put64(kernel + 104, (uint64_t)(uintptr_t)names[(random >> 8) % 5]);
            used += CALL_BYTES + KERNEL_BYTES;
        }
        complete(0, 0, buffer, bytes, used);
        uint64_t due = rate ? begin + made * 1000000000ull / rate : 0, at = now();
        if (due > at) nanosleep(&(struct timespec){(due - at) / 1000000000, (due - at) % 1000000000}, 0);
    }
    return lost;
}
#endif
