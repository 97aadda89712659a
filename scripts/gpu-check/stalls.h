/* Kernels of which it is known why their warps wait (truth.cu), for samples of instructions. The driver makes them from
 * PTX, so that each build has them. Each runs again and again for a known time.
 *
 * stall_memory      Each thread reads lines of memory that are in no cache, and adds them up: it waits for memory.
 * stall_math        Many warps multiply integers in eight chains each. Units for that take a warp's instruction every
 *                   second cycle, so warps wait for the units, and never for a result.
 * stall_dependency  A few warps, alone on their multiprocessors, multiply and add in one chain: they wait for the last
 *                   result. */
#pragma once
#include "kernels.h"

#define HEAD(name) \
    ".version 6.0\n.target sm_50\n.address_size 64\n.visible .entry " name "(.param .u64 data, .param .u32 rounds)\n{\n" \
    ".reg .pred %p<3>;\n.reg .b32 %r<20>;\n.reg .b64 %d<10>;\n.reg .f32 %f<4>;\n" \
    "ld.param.u64 %d1, [data];\nld.param.u32 %r1, [rounds];\ncvta.to.global.u64 %d2, %d1;\n" \
    "mov.u32 %r2, %ctaid.x;\nmov.u32 %r3, %ntid.x;\nmov.u32 %r4, %tid.x;\nmad.lo.u32 %r5, %r2, %r3, %r4;\n"
/* Repeats what comes before, as often as the kernel's second argument says. */
#define AGAIN "sub.u32 %r1, %r1, 1;\nsetp.ne.u32 %p1, %r1, 0;\n@%p1 bra AGAIN;\n"
/* Uses a result, so that no compiler leaves it out. No result is this number in practice. */
#define USE(type, value) \
    "setp.ne." type " %p2, " value ", 123456789;\n@%p2 bra END;\nst.global." type " [%d2], " value ";\nEND:\nret;\n}\n"

/* Bytes that stall_memory reads: several times what any cache holds. */
enum { MEMORY_BYTES = 256 << 20 };
static const char ptx_of_memory[] =
    HEAD("stall_memory")
    "mul.wide.u32 %d3, %r5, 128;\nmov.u64 %d4, 0;\n"
    "AGAIN:\nand.b64 %d5, %d3, 268435328;\nadd.u64 %d6, %d2, %d5;\nld.global.u64 %d7, [%d6];\nadd.u64 %d4, %d4, %d7;\n"
    "add.u64 %d3, %d3, 67108992;\n" AGAIN USE("u64", "%d4");

#define MULTIPLY(n) "mad.lo.u32 %r" #n ", %r" #n ", %r5, %r4;\n"
#define CHAINS MULTIPLY(6) MULTIPLY(7) MULTIPLY(8) MULTIPLY(9) MULTIPLY(10) MULTIPLY(11) MULTIPLY(12) MULTIPLY(13)
static const char ptx_of_math[] =
    HEAD("stall_math")
    "add.u32 %r6, %r5, 1;\nadd.u32 %r7, %r5, 2;\nadd.u32 %r8, %r5, 3;\nadd.u32 %r9, %r5, 4;\nadd.u32 %r10, %r5, 5;\n"
    "add.u32 %r11, %r5, 6;\nadd.u32 %r12, %r5, 7;\nadd.u32 %r13, %r5, 8;\n"
    "AGAIN:\n" CHAINS CHAINS CHAINS CHAINS AGAIN
    "xor.b32 %r6, %r6, %r7;\nxor.b32 %r8, %r8, %r9;\nxor.b32 %r10, %r10, %r11;\nxor.b32 %r12, %r12, %r13;\n"
    "xor.b32 %r6, %r6, %r8;\nxor.b32 %r10, %r10, %r12;\nxor.b32 %r6, %r6, %r10;\n" USE("u32", "%r6");

#define STEP "fma.rn.f32 %f1, %f1, %f2, %f3;\n"
#define STEPS STEP STEP STEP STEP STEP STEP STEP STEP
static const char ptx_of_dependency[] =
    HEAD("stall_dependency")
    "cvt.rn.f32.u32 %f1, %r5;\ncvt.rn.f32.u32 %f2, %r3;\ncvt.rn.f32.u32 %f3, %r4;\n"
    "AGAIN:\n" STEPS STEPS STEPS STEPS AGAIN
    "cvt.rzi.u32.f32 %r6, %f1;\n" USE("u32", "%r6");

/* Runs a kernel for about `ms`, and prints how often it ran and how long that took. */
static void stall_kernel(const char *name, const char *ptx, unsigned blocks, unsigned threads, unsigned rounds, void *data, long ms)
{
    auto load = driver_function<int (*)(void **, const void *)>("cuModuleLoadData");
    auto find = driver_function<int (*)(void **, void *, const char *)>("cuModuleGetFunction");
    auto launch = driver_function<cu_launch>("cuLaunchKernel");
    void *module, *kernel, *arguments[] = {&data, &rounds};
    now_in = name;
    if (!load || !find || !launch) return skip(name, "the driver lacks a function");
    CHECK(load(&module, ptx));
    CHECK(find(&kernel, module, name));
    u64 begin = now_ns(), end;
    long count = 0;
    do {
        CHECK(launch(kernel, blocks, 1, 1, threads, 1, 1, 0, nullptr, arguments, nullptr));
        CHECK(cudaDeviceSynchronize());
        count++;
        end = now_ns();
    } while (end - begin < (u64)ms * 1000000);
    member("{\"part\": \"stalls\", \"kernel\": \"%s\", \"count\": %ld, \"ns\": %llu}", name, count, end - begin);
}

static void stalls()
{
    const long ms = setting("stall_ms");
    void *data = nullptr;
    now_in = "stalls";
    CHECK(cudaMalloc(&data, MEMORY_BYTES));
    /* The blocks of the first two fill any device. */
    stall_kernel("stall_memory", ptx_of_memory, 2048, 512, 64, data, ms);
    stall_kernel("stall_math", ptx_of_math, 2048, 512, 512, data, ms);
    stall_kernel("stall_dependency", ptx_of_dependency, 16, 32, 100000, data, ms);
    now_in = "stalls";
    CHECK(cudaFree(data));
}
