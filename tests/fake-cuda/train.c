/* Trains a little on the stand-in for CUDA. A step copies a batch to the device, runs forward and backward kernels, reduces
 * gradients between ranks, updates, and copies the loss back. The interface is the runtime's own. What nvcc would make of
 * kernels (stubs, registration) is written out, so no header of CUDA's is needed.
 *
 * usage: train STEPS [WORD…]
 *   graph      Captures the kernels of a step once and replays them. With device, kernels may launch the graph; with
 *              conditions, it has a condition.
 *   nested     Sets a limit for kernels that launch kernels.
 *   overlap    Copies on a second stream.
 *   nccl       Joins as RANK of WORLD_SIZE. The ranks pass the id through the file that MEETING names.
 *   threads    Trains in a second thread, too.
 *   spans      Records spans by tprof's table: `step` for each step, `forward` within it, `nothing` after it.
 *   steps      Marks its steps, too.
 *   external   Pushes external ids as a profiler of operators does.
 *   peer       Copies each batch to the second device.
 *   queue      Leaves 50 launches behind a kernel that never ends.
 *   memory     Allocates and frees in each step.
 *   tool       For the middle third of the steps, another client of CUPTI that bypasses all hooks takes over.
 *   fork       Forks a child that allocates and ends by exit.
 *   profiler   Calls cudaProfilerStart before step 2 and cudaProfilerStop after step 3.
 *   reset      Resets the first device while it, the host and a second device have live memory.
 *   children   Children leave by `_exit` while the program goes on.
 *   exit, _exit, quick_exit, abort, kill
 *              End the program in this way. Without such a word, main returns.
 *   handler, both
 *              End the program by `_exit` in a signal handler, or in two threads at once. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include "../../preload-shim/include/tprof.h"

typedef struct { unsigned x, y, z; } dim3_t;
typedef struct { char bytes[128]; } nccl_id;
extern void **__cudaRegisterFatBinary(void *);
extern void __cudaRegisterFatBinaryEnd(void **);
extern void __cudaRegisterFunction(void **, const char *, char *, const char *, int, void *, void *, void *, void *, int *);
extern int cudaGetDeviceCount(int *), cudaSetDevice(int), cudaDeviceSynchronize(void), cudaGetLastError(void);
extern int cudaDeviceSetLimit(int, size_t), cudaGraphInstantiateWithFlags(void **, void *, unsigned long long);
extern int cudaGraphConditionalHandleCreate(unsigned long long *, void *, unsigned, unsigned);
extern int cudaProfilerStart(void), cudaProfilerStop(void), cudaDeviceReset(void), cudaMalloc(void **, size_t), cudaFree(void *), cudaMallocHost(void **, size_t), cudaFreeHost(void *);
extern int cudaMemcpyAsync(void *, const void *, size_t, int, void *), cudaMemcpy(void *, const void *, size_t, int);
extern int cudaMemcpyPeerAsync(void *, int, const void *, int, size_t, void *);
extern int cudaMemsetAsync(void *, int, size_t, void *);
#if MAJOR >= 13 /* as nvcc has compiled <<<>>> since 12.9 */
extern int __cudaGetKernel(void **, const void *), __cudaLaunchKernel(void *, dim3_t, dim3_t, void **, size_t, void *);
#else
extern int cudaLaunchKernel(const void *, dim3_t, dim3_t, void **, size_t, void *);
#endif
extern int cudaStreamCreateWithFlags(void **, unsigned), cudaStreamDestroy(void *), cudaStreamSynchronize(void *);
extern int cudaStreamWaitEvent(void *, void *, unsigned), cudaEventCreateWithFlags(void **, unsigned);
extern int cudaEventRecord(void *, void *), cudaEventSynchronize(void *), cudaEventDestroy(void *);
extern int cudaStreamBeginCapture(void *, int), cudaStreamEndCapture(void *, void **);
extern int cudaGraphInstantiate(void **, void *, unsigned long long), cudaGraphLaunch(void *, void *);
extern int cudaGraphDestroy(void *), cudaGraphExecDestroy(void *);
extern int ncclGetUniqueId(nccl_id *), ncclCommInitRank(void **, int, nccl_id, int), ncclCommDestroy(void *);
extern int ncclAllReduce(const void *, void *, size_t, int, int, void *, void *);
extern int ncclBroadcast(const void *, void *, size_t, int, int, void *, void *);
extern int ncclGroupStart(void), ncclGroupEnd(void);

static void end_at_once(int signal) { (void)signal; _exit(3); }
static void *end_in_thread(void *unused) { (void)unused; _exit(3); }

/* The stubs. A kernel is identified by the address of its stub. */
#define KERNELS(K) \
    K(gemm, "_Z4gemmPKfS0_Pfiii") \
    K(relu, "_Z4reluPfi") \
    K(softmax, "_Z12softmax_lossILi128EEvPKfPKiPfi") \
    K(gemm_grad, "_Z9gemm_gradPKfS0_Pfiii") \
    K(sgd, "_ZN9optimizer8sgd_stepIfEEvPT_PKS1_fi")
#define STUB(name, mangled) static char name##_stub;
KERNELS(STUB)

static void check(int error, const char *what)
{
    if (error) {
        fprintf(stderr, "train: %s failed with %d\n", what, error);
        exit(1);
    }
}
#define CHECK(call) check(call, #call)

__attribute__((constructor)) static void register_kernels(void)
{
    void **handle = __cudaRegisterFatBinary(0);
#define REGISTER(name, mangled) __cudaRegisterFunction(handle, &name##_stub, 0, mangled, -1, 0, 0, 0, 0, 0);
    KERNELS(REGISTER)
    __cudaRegisterFatBinaryEnd(handle);
}

/* The program's own spans. */
static struct tprof_name step_span = TPROF_NAME("step"), forward_span = TPROF_NAME("forward"), no_span = TPROF_NAME("nothing");
static const struct tprof_abi *tprof;
static void begin(struct tprof_name *name) { if (tprof) tprof->push(name); }
static void end(void) { if (tprof) tprof->pop(); }

static int argc_, steps;
static char **argv_;
static int has(const char *word)
{
    for (int i = 2; i < argc_; i++)
        if (!strcmp(argv_[i], word)) return 1;
    return 0;
}

static void launch(const void *stub, unsigned blocks, unsigned threads, size_t shared, void *stream)
{
    const dim3_t grid = {blocks, 1, 1}, block = {threads, 1, 1};
#if MAJOR >= 13
    static __thread struct { const void *stub; void *handle; } known[8], *kernel;
    for (kernel = known; kernel->stub && kernel->stub != stub;) kernel++;
    if (!kernel->stub) CHECK(__cudaGetKernel(&kernel->handle, stub));
    kernel->stub = stub;
    CHECK(__cudaLaunchKernel(kernel->handle, grid, block, 0, shared, stream));
#else
    CHECK(cudaLaunchKernel(stub, grid, block, 0, shared, stream));
#endif
}

static void forward_backward(void *stream)
{
    launch(&gemm_stub, 64, 256, 16384, stream);
    launch(&relu_stub, 16, 128, 0, stream);
    launch(&gemm_stub, 32, 256, 16384, stream);
    launch(&softmax_stub, 8, 128, 512, stream);
    launch(&gemm_grad_stub, 96, 256, 32768, stream);
}

/* Another client of CUPTI registers its own callbacks for activity buffers, as a profiler inside the job would. */
static void lend(unsigned char **buffer, size_t *bytes, size_t *records)
{
    *bytes = 1 << 16;
    *buffer = calloc(1, *bytes);
    *records = 0;
}
static int taken;
static void take(void *context, unsigned stream, unsigned char *buffer, size_t bytes, size_t valid)
{
    (void)context, (void)stream, (void)bytes;
    taken += valid > 0;
    free(buffer);
}
static void *past_hooks(const char *name)
{
    void *cupti = dlopen("libcupti.so.12", RTLD_NOW | RTLD_NOLOAD);
    const char *version = cupti ? "libcupti.so.12" : "libcupti.so.13";
    if (!cupti) cupti = dlopen(version, RTLD_NOW | RTLD_NOLOAD);
    if (!cupti) cupti = dlopen(version, RTLD_NOW);
    if (!cupti) cupti = dlopen(version = "libcupti.so.12", RTLD_NOW);
    return dlvsym(cupti, name, version);
}
static void tool(int on)
{
    int (*callbacks)(void *, void *) = past_hooks("cuptiActivityRegisterCallbacks");
    int (*enable)(int) = past_hooks("cuptiActivityEnable"), (*disable)(int) = past_hooks("cuptiActivityDisable");
    int (*flush)(unsigned) = past_hooks("cuptiActivityFlushAll");
    if (on) CHECK(callbacks(lend, take));
    if (on) CHECK(enable(10)); else { CHECK(flush(1)); CHECK(disable(10)); }
    if (!on) printf("the tool saw %s\n", taken ? "kernels" : "nothing");
}

/* Pushes external ids of the first two kinds that any client of CUPTI may use; kind 3 is innermost. */
static int (*push_id)(int, unsigned long), (*pop_id)(int, unsigned long *);
static void find_external(void)
{
    void *cupti = dlopen("libcupti.so.12", RTLD_NOW | RTLD_NOLOAD);
    if (!cupti) cupti = dlopen("libcupti.so.13", RTLD_NOW | RTLD_NOLOAD);
    if (!cupti) return;
    push_id = dlsym(cupti, "cuptiActivityPushExternalCorrelationId");
    pop_id = dlsym(cupti, "cuptiActivityPopExternalCorrelationId");
}
static void push(int kind, unsigned long id)
{
    if (push_id) CHECK(push_id(kind, id));
}
static void pop(int kind, unsigned long wanted)
{
    unsigned long id = 0;
    if (pop_id) CHECK(pop_id(kind, &id));
    if (pop_id && id != wanted) check(-1, "the id that was pushed");
}

static void *train(void *communicator)
{
    enum { N = 4096 };
    float *host, *weights, *gradients, *batch, *loss, result = 0, x = 0;
    void *stream, *copies, *ready, *graph, *executable = 0, *scratch = 0, *other = 0;
    CHECK(cudaMallocHost((void **)&host, N * sizeof *host));
    CHECK(cudaMalloc((void **)&weights, N * sizeof *weights));
    CHECK(cudaMalloc((void **)&gradients, N * sizeof *gradients));
    CHECK(cudaMalloc((void **)&batch, N * sizeof *batch));
    CHECK(cudaMalloc((void **)&loss, sizeof *loss));
    CHECK(cudaStreamCreateWithFlags(&stream, 1));
    CHECK(cudaStreamCreateWithFlags(&copies, 1));
    CHECK(cudaEventCreateWithFlags(&ready, 2));
    CHECK(cudaMemsetAsync(weights, 0, N * sizeof *weights, stream));
    if (communicator) CHECK(ncclBroadcast(weights, weights, N, 7, 0, communicator, stream));
    if (has("peer")) {
        CHECK(cudaSetDevice(1));
        CHECK(cudaMalloc(&other, N * sizeof *batch));
        CHECK(cudaSetDevice(0));
    }
    if (has("graph")) {
        CHECK(cudaStreamBeginCapture(stream, 0));
        forward_backward(stream);
        CHECK(cudaStreamEndCapture(stream, &graph));
        unsigned long long condition;
        if (has("conditions")) CHECK(cudaGraphConditionalHandleCreate(&condition, graph, 0, 0));
        if (has("device")) CHECK(cudaGraphInstantiateWithFlags(&executable, graph, 4));
        else CHECK(cudaGraphInstantiate(&executable, graph, 0));
        CHECK(cudaGraphDestroy(graph));
    }
    for (int step = 0; step < steps; step++) {
        if (has("profiler") && step == 2) CHECK(cudaProfilerStart());
        if (tprof && has("steps")) tprof->step(TPROF_NO_NUMBER);
        begin(&step_span);
        if (has("tool") && step == steps / 3) tool(1);
        if (has("tool") && step == 2 * steps / 3) tool(0);
        for (int i = 0; i < N; i++) host[i] = (float)(i + step);
        if (has("memory")) CHECK(cudaMalloc(&scratch, 1 << (12 + step % 8)));
        void *with = has("overlap") ? copies : stream;
        push(4, 1000000 + step), push(3, 10 * step + 1);
        CHECK(cudaMemcpyAsync(batch, host, N * sizeof *batch, 1, with));
        if (with != stream) {
            CHECK(cudaEventRecord(ready, with));
            CHECK(cudaStreamWaitEvent(stream, ready, 0));
        }
        if (other) CHECK(cudaMemcpyPeerAsync(other, 1, batch, 0, N * sizeof *batch, stream));
        push(3, 10 * step + 2);
        begin(&forward_span);
        if (executable) CHECK(cudaGraphLaunch(executable, stream)); else forward_backward(stream);
        end();
        pop(3, 10 * step + 2), pop(3, 10 * step + 1), pop(4, 1000000 + step);
        if (communicator) {
            CHECK(ncclGroupStart());
            CHECK(ncclAllReduce(gradients, gradients, N, 7, 0, communicator, stream));
            CHECK(ncclAllReduce(loss, loss, 1, 7, 0, communicator, stream));
            CHECK(ncclGroupEnd());
        }
        launch(&sgd_stub, 16, 256, 0, stream);
        x = x * 0.9f + 0.1f;
        CHECK(cudaMemcpyAsync(&result, loss, sizeof result, 2, stream));
        if (step % 4 == 3) { CHECK(cudaEventRecord(ready, stream)); CHECK(cudaEventSynchronize(ready)); }
        CHECK(cudaStreamSynchronize(stream));
        if (scratch) CHECK(cudaFree(scratch));
        if (has("profiler") && step == 3) CHECK(cudaProfilerStop());
        end();
    }
    if (tprof && has("steps")) tprof->step(TPROF_NO_NUMBER);
    begin(&no_span), end();
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaMemcpy(host, weights, N * sizeof *host, 2));
    CHECK(cudaFree(weights));
    CHECK(cudaFree(gradients));
    CHECK(cudaFree(batch));
    CHECK(cudaFree(loss));
    CHECK(cudaFreeHost(host));
    printf("loss %.4f after %d steps\n", 1 - x, steps);
    return 0;
}

static void *join_ranks(int rank, int ranks)
{
    nccl_id id;
    void *communicator;
    char part[512];
    const char *path = getenv("MEETING");
    if (!path) path = "meeting";
    snprintf(part, sizeof part, "%s.part", path);
    if (rank == 0) {
        CHECK(ncclGetUniqueId(&id));
        FILE *file = fopen(part, "w");
        fwrite(&id, sizeof id, 1, file);
        fclose(file);
        rename(part, path);
    }
    FILE *file;
    while (!(file = fopen(path, "r"))) usleep(1000);
    if (fread(&id, sizeof id, 1, file) != 1) exit(1);
    fclose(file);
    CHECK(ncclCommInitRank(&communicator, ranks, id, rank));
    return communicator;
}

int main(int argc, char **argv)
{
    argc_ = argc, argv_ = argv;
    steps = argc > 1 ? atoi(argv[1]) : 10;
    int devices = 0, rank = getenv("RANK") ? atoi(getenv("RANK")) : 0;
    CHECK(cudaGetDeviceCount(&devices));
    if (!devices) {
        puts("there is no device");
        return 0;
    }
    CHECK(cudaSetDevice(rank % devices));
    if (has("nested")) CHECK(cudaDeviceSetLimit(4, 4096));
    if (has("external")) find_external();
    if (has("spans") || has("steps")) tprof = tprof_find();
    void *communicator = has("nccl") ? join_ranks(rank, atoi(getenv("WORLD_SIZE"))) : 0;
    pthread_t second;
    if (has("threads")) pthread_create(&second, 0, train, 0);
    train(communicator);
    if (has("threads")) pthread_join(second, 0);
    if (has("reset")) {
        void *block;
        CHECK(cudaMalloc(&block, 1 << 20));
        CHECK(cudaMalloc(&block, 1 << 20));
        CHECK(cudaMallocHost(&block, 1 << 16));
        if (devices > 1) {
            CHECK(cudaSetDevice(1));
            CHECK(cudaMalloc(&block, 2 << 20));
            CHECK(cudaSetDevice(0));
        }
        CHECK(cudaDeviceReset());
        CHECK(cudaMalloc(&block, 3 << 20));
    }
    if (has("fork")) {
        fflush(stdout);
        pid_t child = fork();
        if (child == 0) {
            free(malloc(100));
            puts("child done");
            exit(0);
        }
        waitpid(child, 0, 0);
    }
    if (has("children")) {
        pid_t child = fork();
        if (child == 0) _exit(0);
        waitpid(child, 0, 0);
        child = vfork();
        if (child == 0) _exit(0);
        waitpid(child, 0, 0);
        train(communicator);
    }
    if (communicator) CHECK(ncclCommDestroy(communicator));
    fflush(stdout);
    for (int i = 0; i < 50 && has("queue"); i++) launch(&gemm_stub, i ? 1 : 1 << 30, 32, 0, 0);
    if (has("queue")) exit(3);
    if (has("exit")) exit(3);
    if (has("_exit")) _exit(3);
    if (has("quick_exit")) quick_exit(3);
    if (has("handler")) { signal(SIGUSR1, end_at_once); raise(SIGUSR1); }
    if (has("both")) {
        pthread_create(&second, 0, end_in_thread, 0);
        _exit(3);
    }
    if (has("abort")) abort();
    if (has("kill")) raise(SIGKILL);
    return 0;
}
