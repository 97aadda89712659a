/* Allocates device memory in every way, on the stand-in for CUDA, and prints what it did.
 *
 * usage: memory WORD…
 *   workspace  A library with its own CUDA runtime allocates 1 and 2 MiB and frees 1. The program allocates 3 MiB of its
 *              own, at an address that the library had before.
 *   pool       Allocates 8 times 5 MiB in the order of a stream, frees 6 of them, and allocates 1 MiB.
 *   arrays     Allocates an array of 64 KiB and one of 128 KiB, and frees the first.
 *   register   Pins 1 MiB of its own memory twice, and unpins it once.
 *   ipc        Opens 1 MiB of another process twice, and closes one.
 *   levels     Allocates an array of three levels and frees it.
 *   drivers    Allocates two arrays and two blocks of a pool by the driver's functions and frees one of each. Also
 *              allocates 1 MiB of a named pool.
 *   virtual    Makes 4 times 2 MiB of physical memory by functions that the runtime looks up, and maps them. Releases two
 *              handles before their mappings end and two afterwards, and ends three.
 *   direct     Does the same as virtual, by the driver's symbols.
 *   entry, proc, proc1
 *              Look the functions for virtual up in other ways.
 *   reset      Resets the device by the driver.
 *   context    Makes a context on the last device, allocates 1, 3 and 5 MiB and an array in it and 7 MiB outside, frees
 *              the 3 MiB, and destroys the context.
 *   destroy    Makes a context at the end and destroys it.
 *   graphs     Makes two graphs that kernels may launch, one that they may not, and a condition, by the driver.
 *   greedy     Holds 3 and 5 MiB in two functions. Then requests more than the device has in every way, at first 1 PiB,
 *              and each time one MiB more than before.
 *   both       Does everything in two threads.
 *   wait       Ends only after NVML has been read a few times. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct { size_t width, height, depth; } extent_t;
typedef struct { int bits[4], kind; } channels_t;
typedef struct { char bytes[64]; } ipc_t;
typedef struct { int type, handle_types, place, number; void *rest[4]; } properties_t;
typedef unsigned long long handle_t, device_t;
extern int cudaSetDevice(int), cudaMalloc(void **, size_t), cudaFree(void *), cudaStreamCreateWithFlags(void **, unsigned);
extern int cudaMallocAsync(void **, size_t, void *), cudaFreeAsync(void *, void *), cudaDeviceSynchronize(void);
extern int cudaMallocArray(void **, const channels_t *, size_t, size_t, unsigned), cudaFreeArray(void *);
extern int cudaMalloc3DArray(void **, const channels_t *, extent_t, unsigned);
extern int cudaHostRegister(void *, size_t, unsigned), cudaHostUnregister(void *);
extern int cudaIpcGetMemHandle(ipc_t *, void *), cudaIpcOpenMemHandle(void **, ipc_t, unsigned), cudaIpcCloseMemHandle(void *);
extern int cudaGetDriverEntryPointByVersion(const char *, void **, unsigned, unsigned long long, int *);
extern int cuMemCreate(handle_t *, size_t, const properties_t *, unsigned long long), cuMemRelease(handle_t);
extern int cuMemMap(device_t, size_t, size_t, handle_t, unsigned long long), cuMemUnmap(device_t, size_t);
extern int cuMemRetainAllocationHandle(handle_t *, void *), cuMemAddressReserve(device_t *, size_t, size_t, device_t, unsigned long long);
extern int cuMemSetAccess(device_t, size_t, const void *, size_t), cuMemAddressFree(device_t, size_t);
extern int cudaMallocMipmappedArray(void **, const channels_t *, extent_t, unsigned, unsigned), cudaFreeMipmappedArray(void *);
extern int cudaMallocFromPoolAsync(void **, size_t, void *, void *), cudaMallocManaged(void **, size_t, unsigned);
extern int cudaGetDriverEntryPoint(const char *, void **, unsigned long long, int *);
extern int cuGetProcAddress_v2(const char *, void **, int, unsigned long long, int *), cuGetProcAddress(const char *, void **, int, unsigned long long);
typedef struct { size_t width, height; int format; unsigned channels; } flat_t;
typedef struct { size_t width, height, depth; int format; unsigned channels, flags; } deep_t;
extern int cuArrayCreate_v2(device_t *, const flat_t *), cuArray3DCreate_v2(device_t *, const deep_t *), cuArrayDestroy(device_t);
extern int cuMemAllocAsync(device_t *, size_t, void *), cuMemFreeAsync(device_t, void *);
extern int cuDevicePrimaryCtxReset_v2(int), cuCtxCreate_v2(void **, unsigned, int), cuCtxDestroy_v2(void *), cuCtxSetCurrent(void *);
extern int cudaStreamBeginCapture(void *, int), cudaStreamEndCapture(void *, void **);
extern int cuGraphInstantiateWithFlags(void **, void *, unsigned long long), cuGraphInstantiateWithParams(void **, void *, void *);
extern int cuGraphConditionalHandleCreate(unsigned long long *, void *, void *, unsigned, unsigned);
extern int cuCtxGetCurrent(void **), cuMemAlloc_v2(device_t *, size_t), cuMemFree_v2(device_t), cudaGetDeviceCount(int *);
extern void *workspace_take(size_t);
extern int workspace_give(void *);

#define MIB ((size_t)1 << 20)
#define CHECK(call) check(call, #call)
static void check(int error, const char *what)
{
    if (error) {
        fprintf(stderr, "memory: %s failed with %d\n", what, error);
        exit(1);
    }
}

static void workspace(void)
{
    void *first = workspace_take(MIB), *second = workspace_take(2 * MIB), *own;
    CHECK(workspace_give(first));
    CHECK(cudaMalloc(&own, 3 * MIB));
    CHECK(cudaFree(own));
    CHECK(cudaMalloc(&own, 3 * MIB));
    printf("workspace: %d of 2 blocks, %d of the program's own\n", second != 0, own != 0);
}

static void pool(void)
{
    void *stream, *blocks[8], *last;
    CHECK(cudaStreamCreateWithFlags(&stream, 1));
    for (int i = 0; i < 8; i++) CHECK(cudaMallocAsync(&blocks[i], 5 * MIB, stream));
    for (int i = 0; i < 6; i++) CHECK(cudaFreeAsync(blocks[i], stream));
    CHECK(cudaMallocAsync(&last, MIB, stream));
    puts("pool: 11 MiB of 64");
}

static void arrays(void)
{
    void *flat, *deep;
    channels_t channels = {{32, 32, 0, 0}, 2};
    CHECK(cudaMallocArray(&flat, &channels, 128, 64, 0));
    CHECK(cudaMalloc3DArray(&deep, &channels, (extent_t){32, 32, 16}, 0));
    CHECK(cudaFreeArray(flat));
    puts("arrays: 128 KiB");
}

static void levels(void)
{
    void *first, *second;
    channels_t channels = {{32, 32, 0, 0}, 2};
    CHECK(cudaMallocMipmappedArray(&first, &channels, (extent_t){64, 32, 0}, 3, 0));
    CHECK(cudaMallocMipmappedArray(&second, &channels, (extent_t){64, 32, 0}, 3, 0));
    CHECK(cudaFreeMipmappedArray(first));
    puts("levels: 21504 bytes of twice");
}

static void drivers(void)
{
    device_t flat, deep, first, second;
    void *stream, *last;
    CHECK(cudaStreamCreateWithFlags(&stream, 1));
    CHECK(cuArrayCreate_v2(&flat, &(flat_t){128, 64, 0x20, 2}));
    CHECK(cuArray3DCreate_v2(&deep, &(deep_t){32, 32, 16, 0x10, 4, 0}));
    CHECK(cuArrayDestroy(flat));
    CHECK(cuMemAllocAsync(&first, 5 * MIB, stream));
    CHECK(cuMemAllocAsync(&second, 5 * MIB, stream));
    CHECK(cuMemFreeAsync(first, stream));
    CHECK(cudaMallocFromPoolAsync(&last, MIB, 0, stream));
    puts("drivers: an array of 128 KiB, 6 MiB of a pool");
}

static void context(void)
{
    void *made, *before, *own, *outside;
    device_t first, second, array;
    int devices;
    CHECK(cudaGetDeviceCount(&devices));
    CHECK(cuCtxGetCurrent(&before));
    for (int round = 0; round < 2; round++) {
        CHECK(cuCtxCreate_v2(&made, 0, devices - 1));
        CHECK(cudaMalloc(&own, MIB));
        CHECK(cuMemAlloc_v2(&first, 3 * MIB));
        CHECK(cuMemAlloc_v2(&second, 5 * MIB));
        CHECK(cuArrayCreate_v2(&array, &(flat_t){128, 64, 0x20, 2}));
        CHECK(cuMemFree_v2(first));
        CHECK(cuCtxSetCurrent(before));
        if (!round) CHECK(cudaMalloc(&outside, 7 * MIB));
        CHECK(cuCtxDestroy_v2(made));
    }
    puts("context: 7 MiB");
}

static void graphs(void)
{
    /* cudaGraphInstantiateFlagDeviceLaunch: kernels may launch the graph. */
    struct { unsigned long long flags; void *upload, *error; int result; } parameters = {4, 0, 0, 0};
    void *stream, *graph, *executable;
    unsigned long long condition;
    CHECK(cudaStreamCreateWithFlags(&stream, 1));
    CHECK(cudaStreamBeginCapture(stream, 1));
    CHECK(cudaStreamEndCapture(stream, &graph));
    CHECK(cuGraphInstantiateWithFlags(&executable, graph, 2));
    CHECK(cuGraphInstantiateWithFlags(&executable, graph, 4));
    CHECK(cuGraphInstantiateWithParams(&executable, graph, &parameters));
    CHECK(cuGraphConditionalHandleCreate(&condition, graph, 0, 0, 0));
    puts("graphs: 2 for kernels, 1 condition");
}

__attribute__((noinline)) static void *hold(size_t bytes)
{
    void *held;
    CHECK(cudaMalloc(&held, bytes));
    return held;
}

__attribute__((noinline)) static void *keep(size_t bytes)
{
    void *kept;
    CHECK(cudaMalloc(&kept, bytes));
    return kept;
}

#define LACKS(call) check((call) != 2, #call)
static void greedy(void)
{
    const size_t most = (size_t)1 << 50;
    void *stream, *none, *held = hold(5 * MIB), *kept = keep(3 * MIB);
    device_t at;
    handle_t handle;
    properties_t properties = {.type = 1, .place = 1};
    CHECK(cudaStreamCreateWithFlags(&stream, 1));
    LACKS(cudaMalloc(&none, most));
    LACKS(cudaMallocAsync(&none, most + MIB, stream));
    LACKS(cudaMallocFromPoolAsync(&none, most + 2 * MIB, 0, stream));
    LACKS(cudaMallocManaged(&none, most + 3 * MIB, 1));
    LACKS(cuMemAlloc_v2(&at, most + 4 * MIB));
    LACKS(cuMemAllocAsync(&at, most + 5 * MIB, stream));
    LACKS(cuMemCreate(&handle, (size_t)1 << 63, &properties, 0));
    printf("greedy: %d of 2 held, 7 times more than there is\n", (held != 0) + (kept != 0));
}

static void pin(void)
{
    char *first = aligned_alloc(4096, 2 * MIB);
    memset(first, 1, 2 * MIB);
    CHECK(cudaHostRegister(first, MIB, 0));
    CHECK(cudaHostRegister(first + MIB, MIB, 0));
    CHECK(cudaHostUnregister(first));
    puts("register: 1 MiB");
}

static void ipc(void)
{
    ipc_t handle;
    void *own, *first, *second;
    CHECK(cudaMalloc(&own, MIB));
    CHECK(cudaIpcGetMemHandle(&handle, own));
    CHECK(cudaIpcOpenMemHandle(&first, handle, 1));
    CHECK(cudaIpcOpenMemHandle(&second, handle, 1));
    CHECK(cudaIpcCloseMemHandle(first));
    puts("ipc: 1 of 2");
}

static struct {
    int (*create)(handle_t *, size_t, const properties_t *, unsigned long long), (*release)(handle_t);
    int (*map)(device_t, size_t, size_t, handle_t, unsigned long long), (*unmap)(device_t, size_t);
    int (*retain)(handle_t *, void *), (*reserve)(device_t *, size_t, size_t, device_t, unsigned long long);
    int (*access)(device_t, size_t, const void *, size_t);
} driver;
static int argc_;
static char **argv_;
static int has(const char *word)
{
    for (int i = 1; i < argc_; i++)
        if (!strcmp(argv_[i], word)) return 1;
    return 0;
}

static void find(const char *name, void *to)
{
    int status = has("proc1") ? 0 : -1;
    if (has("entry")) CHECK(cudaGetDriverEntryPoint(name, to, 0, &status));
    else if (has("proc")) CHECK(cuGetProcAddress_v2(name, to, 12000, 0, &status));
    else if (has("proc1")) CHECK(cuGetProcAddress(name, to, 11030, 0));
    else CHECK(cudaGetDriverEntryPointByVersion(name, to, 12000, 0, &status));
    CHECK(status);
}

static void segments(void)
{
    const size_t each = 2 * MIB;
    properties_t properties = {.type = 1, .place = 1};
    handle_t handles[4], again;
    device_t at;
    CHECK(driver.reserve(&at, 4 * each, 0, 0, 0));
    for (int i = 0; i < 4; i++) {
        CHECK(driver.create(&handles[i], each, &properties, 0));
        CHECK(driver.map(at + i * each, each, 0, handles[i], 0));
    }
    CHECK(driver.access(at, 4 * each, 0, 0));
    memset((void *)at, 7, 4 * each);
    CHECK(driver.release(handles[0]));
    CHECK(driver.release(handles[1]));
    CHECK(driver.retain(&again, (void *)(at + 2 * each + 17)));
    CHECK(again != handles[2]);
    CHECK(driver.unmap(at, 3 * each));
    CHECK(driver.release(handles[2]));
    CHECK(driver.release(again));
    CHECK(driver.release(handles[3]));
    if (*(char *)(at + 3 * each) != 7) check(-1, "memory that is still mapped");
    puts("virtual: 2 MiB of 8");
}

static void *all(void *unused)
{
    CHECK(cudaSetDevice(0));
    if (has("workspace")) workspace();
    if (has("pool")) pool();
    if (has("arrays")) arrays();
    if (has("levels")) levels();
    if (has("drivers")) drivers();
    if (has("register")) pin();
    if (has("ipc")) ipc();
    if (has("context")) context();
    if (has("graphs")) graphs();
    if (has("greedy")) greedy();
    if (has("virtual") || has("direct")) segments();
    return unused;
}

int main(int argc, char **argv)
{
    argc_ = argc, argv_ = argv;
    CHECK(cudaSetDevice(0));
    if (has("direct")) {
        driver.create = cuMemCreate, driver.release = cuMemRelease, driver.map = cuMemMap;
        driver.unmap = cuMemUnmap, driver.retain = cuMemRetainAllocationHandle;
        driver.reserve = cuMemAddressReserve, driver.access = cuMemSetAccess;
    } else {
        find("cuMemCreate", &driver.create), find("cuMemRelease", &driver.release);
        find("cuMemMap", &driver.map), find("cuMemUnmap", &driver.unmap);
        find("cuMemRetainAllocationHandle", &driver.retain);
        find("cuMemAddressReserve", &driver.reserve), find("cuMemSetAccess", &driver.access);
    }
    pthread_t second;
    if (has("both")) pthread_create(&second, 0, all, 0);
    all(0);
    if (has("both")) pthread_join(second, 0);
    CHECK(cudaDeviceSynchronize());
    if (has("wait")) usleep(600000);
    void *made;
    if (has("destroy")) CHECK(cuCtxCreate_v2(&made, 0, 0));
    if (has("destroy")) CHECK(cuCtxDestroy_v2(made));
    if (has("reset")) CHECK(cuDevicePrimaryCtxReset_v2(0));
    return 0;
}
