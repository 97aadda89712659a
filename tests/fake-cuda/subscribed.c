/* A job with a profiler of its own that uses CUPTI's interface of several clients (CUDA 13.3), as PyTorch's Cuspy does: in each
 * session it subscribes, registers its callbacks, enables kernels and calls of the runtime, flushes, reads and unsubscribes.
 *
 * subscribed SESSIONS [WORD…]: `early` subscribes before the driver starts, `alone` allows no other client, `finalize` detaches
 * CUPTI after each session, `older` also calls the older interface. The program prints what each session saw. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct { unsigned x, y, z; } dim3_t;
extern void **__cudaRegisterFatBinary(void *);
extern void __cudaRegisterFatBinaryEnd(void **);
extern void __cudaRegisterFunction(void **, const char *, char *, const char *, int, void *, void *, void *, void *, int *);
extern int cudaSetDevice(int), cudaDeviceSynchronize(void);
extern int cudaLaunchKernel(const void *, dim3_t, dim3_t, void **, size_t, void *);

typedef struct { size_t size; const char *name; char *old; size_t bytes; uint8_t allow, padding[7]; } parameters_t;
extern int cuptiSubscribe_v2(void **, void *, void *, parameters_t *), cuptiUnsubscribe(void *);
extern int cuptiActivityRegisterCallbacks_v2(void *, void *, void *);
extern int cuptiActivityEnable_v2(void *, int, void *), cuptiActivityDisable_v2(void *, int, void *);
extern int cuptiActivityGetNextRecord_v2(void *, uint8_t *, size_t, void **), cuptiActivityFlushAll(unsigned), cuptiFinalize(void);
extern int cuptiActivityRegisterCallbacks(void *, void *);

static char stub;
__attribute__((constructor)) static void register_kernels(void)
{
    void **handle = __cudaRegisterFatBinary(0);
    __cudaRegisterFunction(handle, &stub, 0, "_Z4gemmPKfS0_Pfiii", -1, 0, 0, 0, 0, 0);
    __cudaRegisterFatBinaryEnd(handle);
}

static void check(int error, const char *what)
{
    if (!error) return;
    printf("%s: %d\n", what, error);
    exit(1);
}
#define CHECK(call) check(call, #call)

static int argc_;
static char **argv_;
static int has(const char *word)
{
    for (int i = 2; i < argc_; i++)
        if (!strcmp(argv_[i], word)) return 1;
    return 0;
}

static void *subscriber;
static int seen[64];

static void request(uint8_t **buffer, size_t *bytes, size_t *records, void *info)
{
    (void)info;
    *bytes = 1 << 16;
    *records = 0;
    *buffer = aligned_alloc(8, *bytes);
}

static void complete(uint8_t *buffer, size_t bytes, size_t valid, void *info)
{
    void *record = 0;
    (void)bytes, (void)info;
    while (!cuptiActivityGetNextRecord_v2(subscriber, buffer, valid, &record)) seen[*(unsigned *)record & 63]++;
    free(buffer);
}

/* A callback that is never called, because no session enables callbacks. */
static void nothing(void) {}

enum { KERNEL = 10, RUNTIME = 5, LAUNCHES = 36 };

static void work(void)
{
    for (int i = 0; i < LAUNCHES; i++) CHECK(cudaLaunchKernel(&stub, (dim3_t){64, 1, 1}, (dim3_t){128, 1, 1}, 0, 0, 0));
    CHECK(cudaDeviceSynchronize());
}

static void begin(void)
{
    parameters_t parameters = {sizeof parameters, "subscribed", 0, 0, !has("alone"), {0}};
    CHECK(cuptiSubscribe_v2(&subscriber, nothing, 0, &parameters));
    CHECK(cuptiActivityRegisterCallbacks_v2(subscriber, request, complete));
    CHECK(cuptiActivityEnable_v2(subscriber, KERNEL, 0));
    CHECK(cuptiActivityEnable_v2(subscriber, RUNTIME, 0));
}

static void end(int session)
{
    int other = 0;
    CHECK(cuptiActivityDisable_v2(subscriber, KERNEL, 0));
    CHECK(cuptiActivityDisable_v2(subscriber, RUNTIME, 0));
    CHECK(cuptiActivityFlushAll(1));
    for (int kind = 0; kind < 64; kind++) other += kind != KERNEL && kind != RUNTIME ? seen[kind] : 0;
    printf("session %d: %d kernels, %d calls, %d of other kinds\n", session, seen[KERNEL], seen[RUNTIME], other);
    memset(seen, 0, sizeof seen);
    CHECK(cuptiUnsubscribe(subscriber));
    if (has("finalize")) CHECK(cuptiFinalize());
}

int main(int argc, char **argv)
{
    argc_ = argc, argv_ = argv;
    if (has("early")) {
        /* CUPTI wants the driver to be loaded. */
        if (!dlopen("libcuda.so.1", RTLD_NOW)) return 2;
        begin();
    }
    CHECK(cudaSetDevice(0));
    work();
    for (int session = 1; session <= atoi(argv[1]); session++) {
        if (session > 1 || !has("early")) begin();
        work();
        if (has("older")) printf("the older interface: %d\n", cuptiActivityRegisterCallbacks(nothing, nothing));
        end(session);
        work();
        if (has("finalize")) usleep(1200000);
    }
    work();
    return 0;
}
