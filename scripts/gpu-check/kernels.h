/* The basis of the program with a known truth (truth.cu): CUDA's functions, settings, its JSON, and kernels that
 * run for a known time, launched by `<<<>>>` or by the driver. */
#pragma once
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

typedef unsigned long long u64;
#ifdef __CUDACC__
#include <cuda_runtime_api.h>
#define COMPILER "nvcc"
#else
#define COMPILER "c++"
typedef int cudaError_t;
typedef struct CUstream_st *cudaStream_t;
typedef struct CUevent_st *cudaEvent_t;
typedef struct CUgraph_st *cudaGraph_t;
typedef struct CUgraphExec_st *cudaGraphExec_t;
typedef int cudaMemcpyKind, cudaStreamCaptureMode;
#define cudaSuccess 0
#define cudaMemcpyHostToDevice 1
#define cudaMemcpyDeviceToHost 2
#define cudaMemcpyDeviceToDevice 3
#define cudaStreamCaptureModeThreadLocal 1
extern "C" {
cudaError_t cudaSetDevice(int), cudaGetDeviceCount(int *), cudaDeviceSynchronize(), cudaDeviceReset();
cudaError_t cudaMalloc(void **, size_t), cudaFree(void *), cudaMallocHost(void **, size_t), cudaFreeHost(void *);
cudaError_t cudaMallocAsync(void **, size_t, cudaStream_t), cudaFreeAsync(void *, cudaStream_t);
cudaError_t cudaMallocManaged(void **, size_t, unsigned), cudaMemGetInfo(size_t *, size_t *);
cudaError_t cudaMemcpy(void *, const void *, size_t, cudaMemcpyKind);
cudaError_t cudaMemcpyAsync(void *, const void *, size_t, cudaMemcpyKind, cudaStream_t);
cudaError_t cudaMemcpyPeerAsync(void *, int, const void *, int, size_t, cudaStream_t);
cudaError_t cudaMemset(void *, int, size_t), cudaMemsetAsync(void *, int, size_t, cudaStream_t);
cudaError_t cudaStreamCreateWithFlags(cudaStream_t *, unsigned), cudaStreamSynchronize(cudaStream_t);
cudaError_t cudaStreamDestroy(cudaStream_t), cudaEventCreateWithFlags(cudaEvent_t *, unsigned);
cudaError_t cudaEventRecord(cudaEvent_t, cudaStream_t), cudaEventElapsedTime(float *, cudaEvent_t, cudaEvent_t);
cudaError_t cudaStreamBeginCapture(cudaStream_t, cudaStreamCaptureMode), cudaStreamEndCapture(cudaStream_t, cudaGraph_t *);
cudaError_t cudaGraphInstantiate(cudaGraphExec_t *, cudaGraph_t, u64), cudaGraphLaunch(cudaGraphExec_t, cudaStream_t);
cudaError_t cudaRuntimeGetVersion(int *), cudaDriverGetVersion(int *), cudaGetLastError();
}
#endif
/* The stand-ins for CUDA lack these functions, so the parts that use them are skipped there. */
#pragma weak cudaMemGetInfo
#pragma weak cudaMallocManaged
#pragma weak cudaDriverGetVersion
#pragma weak cudaGetDriverEntryPointByVersion
typedef cudaError_t (*malloc_managed)(void **, size_t, unsigned);
typedef cudaError_t (*get_info)(size_t *, size_t *);
#ifdef __CUDACC__
typedef cudaDriverEntryPointQueryResult entry_point_result;
#else
typedef int entry_point_result;
extern "C" cudaError_t cudaGetDriverEntryPointByVersion(const char *, void **, unsigned, u64, entry_point_result *);
#endif
typedef cudaError_t (*get_entry_point)(const char *, void **, unsigned, u64, entry_point_result *);

/* --- numbers ----------------------------------------------------------------------------------------------------- */

static struct { const char *name; long value; } settings[] = {
    {"launches", 20}, {"streams", 4}, {"threads", 4}, {"spin_us", 500}, {"nodes", 50}, {"replays", 5}, {"rest", 2500}, {"stall_ms", 2000},
};
static long setting(const char *name)
{
    for (auto &one : settings)
        if (!strcmp(one.name, name)) return one.value;
    abort();
}

static FILE *out;
static const char *comma = "";
static u64 now_ns()
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000ull + t.tv_nsec;
}

/* Prints a member of the JSON object, or of its list of parts. */
static void member(const char *format, ...)
{
    va_list list;
    fputs(comma, out);
    va_start(list, format);
    vfprintf(out, format, list);
    va_end(list);
    comma = ",\n ";
}
static void skip(const char *part, const char *why) { member("{\"part\": \"%s\", \"skipped\": \"%s\"}", part, why); }

static void check(int error, const char *what, const char *part)
{
    if (!error) return;
    fprintf(stderr, "truth: %s: %s returned %d\n", part, what, error);
    member("{\"part\": \"%s\", \"failed\": \"%s\", \"error\": %d}", part, what, error);
    fprintf(out, "]\n}\n");
    fclose(out);
    _exit(3);
}
static const char *now_in = "start";
#define CHECK(call) check((int)(call), #call, now_in)

/* --- kernels ----------------------------------------------------------------------------------------------------- */

/* Kernels that run for a given time by the device's own clock, and write when they began and ended. */
#define KERNELS(K) K(spin_streams) K(spin_threads) K(spin_graph) K(spin_rate) K(spin_end) K(spin_reset)
#ifdef __CUDACC__
#define GLOBALTIMER(into) asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(into))
#define KERNEL(name) \
    extern "C" __global__ void name(u64 *times, u64 ns) \
    { \
        u64 begin, now; \
        GLOBALTIMER(begin); \
        do GLOBALTIMER(now); while (now - begin < ns); \
        if (threadIdx.x == 0) times[0] = begin, times[1] = now; \
    }
KERNELS(KERNEL)
#endif

/* The driver's functions are found by name, so that no header and no library of it is needed. */
static void *driver;
template <typename F> static F driver_function(const char *name)
{
    if (!driver) driver = dlopen("libcuda.so.1", RTLD_NOW);
    return driver ? (F)dlsym(driver, name) : nullptr;
}
/* Finds the driver's functions as PyTorch does: through the runtime, if the runtime can (CUDA 12.5). */
static bool has_entry_points;
template <typename F> static F entry_point(const char *name)
{
    entry_point_result result;
    void *found = nullptr;
    has_entry_points = (get_entry_point)cudaGetDriverEntryPointByVersion != nullptr;
    if (!has_entry_points) return driver_function<F>(name);
    int error = cudaGetDriverEntryPointByVersion(name, &found, 12000, 0, &result);
    return error ? nullptr : (F)found;
}
typedef int (*cu_launch)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **);

static const char ptx_of_spin[] =
    ".version 6.0\n.target sm_50\n.address_size 64\n.visible .entry %s(.param .u64 times, .param .u64 ns)\n{\n"
    ".reg .pred %%p<3>;\n.reg .b32 %%r<2>;\n.reg .b64 %%d<8>;\n"
    "ld.param.u64 %%d1, [times];\nld.param.u64 %%d2, [ns];\ncvta.to.global.u64 %%d3, %%d1;\n"
    "mov.u64 %%d4, %%globaltimer;\nAGAIN:\nmov.u64 %%d5, %%globaltimer;\nsub.s64 %%d6, %%d5, %%d4;\n"
    "setp.lt.u64 %%p1, %%d6, %%d2;\n@%%p1 bra AGAIN;\nmov.u32 %%r1, %%tid.x;\nsetp.ne.s32 %%p2, %%r1, 0;\n"
    "@%%p2 bra END;\nst.global.u64 [%%d3], %%d4;\nst.global.u64 [%%d3+8], %%d5;\nEND:\nret;\n}\n";

static void *driver_kernel(const char *name)
{
    auto load = driver_function<int (*)(void **, const void *)>("cuModuleLoadData");
    auto find = driver_function<int (*)(void **, void *, const char *)>("cuModuleGetFunction");
    char text[2048];
    void *module, *kernel;
    if (!load || !find) return nullptr;
    snprintf(text, sizeof text, ptx_of_spin, name);
    CHECK(load(&module, text));
    CHECK(find(&kernel, module, name));
    return kernel;
}
static void driver_launch(void *kernel, unsigned blocks, u64 *times, u64 ns, cudaStream_t stream)
{
    static cu_launch launch = driver_function<cu_launch>("cuLaunchKernel");
    void *arguments[] = {&times, &ns};
    CHECK(launch(kernel, blocks, 1, 1, 32, 1, 1, 0, stream, arguments, nullptr));
}

#ifdef __CUDACC__
#define LAUNCH(name, times, ns, stream) \
    (name<<<1, 32, 0, stream>>>(times, ns), __atomic_fetch_add(&count_##name, 1, __ATOMIC_RELAXED))
#define COUNT(name) static long count_##name;
static void prepare_kernels() {}
#else
#define COUNT(name) static long count_##name; static void *kernel_##name;
#define LAUNCH(name, times, ns, stream) \
    (driver_launch(kernel_##name, 1, times, ns, stream), __atomic_fetch_add(&count_##name, 1, __ATOMIC_RELAXED))
#endif
KERNELS(COUNT)
#ifndef __CUDACC__
static void prepare_kernels()
{
#define PREPARE(name) kernel_##name = driver_kernel(#name);
    KERNELS(PREPARE)
}
#endif

/* The device memory where kernels write their two times. No part counts its size. */
enum { SLOTS = 4096 };
static u64 *times_of;

/* Returns the sum of the times that the kernels from a slot on measured themselves; 0 if they computed nothing, as
 * on the stand-ins. */
static u64 measured(long from, long count)
{
    static u64 host[2 * SLOTS];
    u64 sum = 0;
    CHECK(cudaMemcpy(host, times_of, sizeof host, cudaMemcpyDeviceToHost));
    for (long i = from; i < from + count && i < SLOTS; i++) sum += host[2 * i + 1] - host[2 * i];
    return sum;
}
