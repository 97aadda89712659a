/* Parts of the program with a known truth (truth.cu) that take memory: allocated, managed, from a pool, virtual, on
 * another device, and held while the device is reset. */
#pragma once
#include "work.h"

static void memory()
{
    void *at[3], *managed;
    now_in = "memory";
    for (int i = 0; i < 3; i++) CHECK(cudaMalloc(&at[i], 3145728 + 4096 * i));
    for (int i = 0; i < 3; i++) CHECK(cudaFree(at[i]));
    member("{\"part\": \"memory\", \"allocations\": [{\"bytes\": 3145728}, {\"bytes\": 3149824}, {\"bytes\": 3153920}]}");
    if (!(malloc_managed)cudaMallocManaged) return skip("managed", "the runtime has no cudaMallocManaged");
    CHECK(cudaMallocManaged(&managed, 2105344, 1));
    CHECK(cudaFree(managed));
    member("{\"part\": \"managed\", \"allocations\": [{\"bytes\": 2105344}]}");
}

static void pool()
{
    void *at;
    now_in = "pool";
    for (int i = 0; i < 4; i++) {
        CHECK(cudaMallocAsync(&at, 5242880 + 4096 * i, 0));
        CHECK(cudaFreeAsync(at, 0));
    }
    CHECK(cudaDeviceSynchronize());
    member("{\"part\": \"pool\", \"allocations\": [{\"bytes\": 5242880}, {\"bytes\": 5246976}, {\"bytes\": 5251072}, {\"bytes\": 5255168}]}");
}

/* Takes virtual memory as PyTorch's expandable segments do. */
static void virtual_memory()
{
    struct { int type, handles, location, id; void *security; unsigned char flags[8]; } of = {1, 0, 1, 0, 0, {0}};
    struct { int location, id, flags; } access = {1, 0, 3};
    auto granularity = entry_point<int (*)(size_t *, const void *, int)>("cuMemGetAllocationGranularity");
    auto reserve = entry_point<int (*)(u64 *, size_t, size_t, u64, u64)>("cuMemAddressReserve");
    auto create = entry_point<int (*)(u64 *, size_t, const void *, u64)>("cuMemCreate");
    auto map = entry_point<int (*)(u64, size_t, size_t, u64, u64)>("cuMemMap");
    auto allow = entry_point<int (*)(u64, size_t, const void *, size_t)>("cuMemSetAccess");
    auto unmap = entry_point<int (*)(u64, size_t)>("cuMemUnmap");
    auto release = entry_point<int (*)(u64)>("cuMemRelease");
    auto give_back = entry_point<int (*)(u64, size_t)>("cuMemAddressFree");
    size_t bytes = 0;
    u64 at, handle;
    now_in = "virtual memory";
    if (!granularity || !reserve || !create || !map || !allow || !unmap || !release || !give_back)
        return skip("virtual memory", "the driver has no cuMemCreate");
    CHECK(granularity(&bytes, &of, 0));
    bytes *= 5;
    CHECK(reserve(&at, bytes, 0, 0, 0));
    CHECK(create(&handle, bytes, &of, 0));
    CHECK(map(at, bytes, 0, handle, 0));
    CHECK(allow(at, bytes, &access, 1));
    CHECK(cudaMemset((void *)at, 1, bytes));
    CHECK(cudaDeviceSynchronize());
    CHECK(unmap(at, bytes));
    CHECK(release(handle));
    CHECK(give_back(at, bytes));
    member("{\"part\": \"virtual memory\", \"found_by\": \"%s\", \"allocations\": [{\"bytes\": %zu}], "
        "\"copies\": [{\"kind\": \"memset\", \"bytes\": %zu, \"count\": 1}]}", has_entry_points ? "entry point" : "dlsym", bytes, bytes);
}

static void peer(int devices)
{
    enum { N = 777776 };
    void *here, *there;
    now_in = "peer";
    if (devices < 2) return skip("peer", "there is one device");
    CHECK(cudaMalloc(&here, N));
    CHECK(cudaSetDevice(1));
    CHECK(cudaMalloc(&there, N));
    CHECK(cudaSetDevice(0));
    for (int i = 0; i < 3; i++) CHECK(cudaMemcpyPeerAsync(there, 1, here, 0, N, 0));
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaFree(here));
    CHECK(cudaFree(there));
    member("{\"part\": \"peer\", \"copies\": [{\"kind\": \"p2p\", \"bytes\": %d, \"count\": 3}]}", N);
}

/* Resets the device while memory is held, and runs kernels afterwards. */
static void reset()
{
    void *held;
    now_in = "reset";
    CHECK(cudaMalloc(&held, 7340032));
    CHECK(cudaDeviceReset());
    CHECK(cudaMalloc((void **)&times_of, 2 * SLOTS * sizeof *times_of));
#ifndef __CUDACC__
    kernel_spin_reset = driver_kernel("spin_reset");
#endif
    for (int i = 0; i < 7; i++) LAUNCH(spin_reset, times_of, spin_ns(), 0);
    CHECK(cudaDeviceSynchronize());
    member("{\"part\": \"reset\", \"kernel\": \"spin_reset\", \"count\": 7, \"allocations\": [{\"bytes\": 7340032}], \"spin_ns\": %llu}",
        spin_ns());
}
