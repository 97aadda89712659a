/* A job with a profiler of its own, which uses CUPTI as Kineto (torch.profiler) does. In each session the profiler registers its
 * callbacks, enables kinds and leaves out calls. At the end it disables the kinds, forces a flush and reads the records.
 *
 * profiled SESSIONS [WORD…]: `ticks` has the processor's ticks as timestamps, `threads` asks for buffers by thread, `zeroed` lends
 * zeroed buffers and sets the attribute of that, `finalize` detaches CUPTI after each session, `dlsym` finds CUPTI's functions by name, `bypass` finds
 * them where no hook is, `small` lends buffers of three records, `mean` lends none, `refused` asks for the interface of CUDA 13.3, `graph` runs a graph of
 * four kernels twice in each stretch of work, `domain` switches a callback domain off after each session; `early` begins the first
 * session before the driver starts, `loaded` loads the library of the tool for NVTX, and `injected` has a library call `profiled_begin` for that while it does.
 * `long` waits after each session until the kinds of another client are collected again.
 * The program prints what each session saw, which must not depend on other tools. The memory that it lends is not zeroed. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <x86intrin.h>

typedef struct { unsigned x, y, z; } dim3_t;
extern void **__cudaRegisterFatBinary(void *);
extern void __cudaRegisterFatBinaryEnd(void **);
extern void __cudaRegisterFunction(void **, const char *, char *, const char *, int, void *, void *, void *, void *, int *);
extern int cudaSetDevice(int), cudaDeviceSynchronize(void), cudaGetLastError(void), cudaGetDevice(int *);
extern int cudaMalloc(void **, size_t), cudaFree(void *), cudaMemcpy(void *, const void *, size_t, int);
extern int cudaMemsetAsync(void *, int, size_t, void *);
extern int cudaLaunchKernel(const void *, dim3_t, dim3_t, void **, size_t, void *);
extern int cudaStreamCreateWithFlags(void **, unsigned), cudaStreamBeginCapture(void *, int), cudaStreamEndCapture(void *, void **);
extern int cudaGraphInstantiate(void **, void *, unsigned long long), cudaGraphLaunch(void *, void *);

#define CUPTI(F) \
    F(cuptiActivityRegisterCallbacks, (void *, void *)) F(cuptiActivityEnable, (int)) F(cuptiActivityDisable, (int)) \
    F(cuptiActivityFlushAll, (unsigned)) F(cuptiActivitySetAttribute, (int, size_t *, void *)) \
    F(cuptiActivityGetAttribute, (int, size_t *, void *)) F(cuptiActivityGetNextRecord, (unsigned char *, size_t, void **)) \
    F(cuptiActivityGetNumDroppedRecords, (void *, unsigned, size_t *)) F(cuptiActivityRegisterTimestampCallback, (void *)) \
    F(cuptiActivityEnableRuntimeApi, (unsigned, unsigned char)) F(cuptiGetTimestamp, (uint64_t *)) F(cuptiFinalize, (void)) F(cuptiEnableDomain, (unsigned, void *, int)) \
    F(cuptiActivityPushExternalCorrelationId, (int, uint64_t)) F(cuptiActivityPopExternalCorrelationId, (int, uint64_t *))
#define DECLARE(name, arguments) extern int name arguments; static int (*name##_) arguments = name;
CUPTI(DECLARE)

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
    fprintf(stderr, "profiled: %s failed with %d\n", what, error);
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

/* The buffers, under a lock like Kineto's. */
enum { MOST = 4096 };
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct { unsigned char *at; size_t valid; int done; } lent[MOST];
static unsigned buffers;
static int unknown;

static void request(unsigned char **buffer, size_t *bytes, size_t *records)
{
    pthread_mutex_lock(&lock);
    *bytes = has("small") ? 1024 : 1 << 22;
    *records = has("small") ? 3 : 0;
    *buffer = malloc(*bytes);
    memset(*buffer, has("zeroed") ? 0 : 0xa5, *bytes);
    if (buffers < MOST) lent[buffers++].at = *buffer;
    if (has("mean")) *buffer = 0;
    pthread_mutex_unlock(&lock);
}

static void complete(void *context, unsigned stream, unsigned char *buffer, size_t bytes, size_t valid)
{
    (void)bytes;
    size_t dropped = 0;
    pthread_mutex_lock(&lock);
    unsigned i = 0;
    while (i < buffers && (lent[i].at != buffer || lent[i].done)) i++;
    if (i == buffers) unknown++; else lent[i].valid = valid, lent[i].done = 1;
    pthread_mutex_unlock(&lock);
    cuptiActivityGetNumDroppedRecords_(context, stream, &dropped);
}

static uint64_t ticks(void) { return __rdtsc(); }

/* Kinds: copies, fills, kernels, calls, waits, external ids. */
static const int kinds[] = {1, 2, 10, 5, 38, 39};
enum { KINDS = sizeof kinds / sizeof *kinds };
enum { GET_DEVICE = 17, STEPS = 12 };
static uint64_t word(const unsigned char *record, size_t at) { uint64_t w; memcpy(&w, record + at, 8); return w; }
static unsigned half(const unsigned char *record, size_t at) { unsigned w; memcpy(&w, record + at, 4); return w; }

static void launch(void *stream) { CHECK(cudaLaunchKernel(&stub, (dim3_t){64, 1, 1}, (dim3_t){128, 1, 1}, 0, 0, stream)); }

static void run_graph(void)
{
    static void *stream, *graph, *executable;
    if (!stream) {
        CHECK(cudaStreamCreateWithFlags(&stream, 1));
        CHECK(cudaStreamBeginCapture(stream, 1));
        for (int node = 0; node < 4; node++) launch(stream);
        CHECK(cudaStreamEndCapture(stream, &graph));
        CHECK(cudaGraphInstantiate(&executable, graph, 0));
    }
    for (int run = 0; run < 2; run++) CHECK(cudaGraphLaunch(executable, stream));
}

static void work(int session)
{
    static void *block;
    float host[256] = {0};
    int device;
    CHECK(cudaMalloc(&block, sizeof host));
    for (int step = 0; step < STEPS; step++) {
        cuptiActivityPushExternalCorrelationId_(3, 100 * session + step);
        CHECK(cudaMemcpy(block, host, sizeof host, 1));
        CHECK(cudaGetDevice(&device));
        for (int kernel = 0; kernel < 3; kernel++) {
            launch(0);
            CHECK(cudaGetLastError());
        }
        CHECK(cudaMemsetAsync(block, 0, sizeof host, 0));
        cuptiActivityPopExternalCorrelationId_(3, 0);
    }
    if (has("graph")) run_graph();
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaFree(block));
}

/* Asks the stand-in for the kinds that clients of CUPTI collect. */
static uint64_t collected(void)
{
    uint64_t (*kinds)(void) = (uint64_t (*)(void))dlsym(RTLD_DEFAULT, "tprof_fake_kinds");
    return kinds ? kinds() : 0;
}

/* Waits long enough for another client to notice, and until these kinds are collected again, for a minute at most. */
static void rest(uint64_t kinds)
{
    usleep(1200000);
    for (int round = 0; (collected() & kinds) != kinds && round < 6000; round++) usleep(10000);
}

static void begin(void)
{
    size_t size = 1;
    unsigned char on = 1;
    if (has("ticks")) CHECK(cuptiActivityRegisterTimestampCallback_(ticks));
    if (has("threads")) CHECK(cuptiActivitySetAttribute_(9, &size, &on));
    if (has("zeroed")) CHECK(cuptiActivitySetAttribute_(5, &size, &on));
    CHECK(cuptiActivityRegisterCallbacks_(request, complete));
    for (int i = 0; i < KINDS; i++) {
        CHECK(cuptiActivityEnable_(kinds[i]));
        if (kinds[i] == 5) CHECK(cuptiActivityEnableRuntimeApi_(GET_DEVICE, 0));
    }
}

static uint64_t from;
static int is_begun;

void profiled_begin(void)
{
    begin();
    CHECK(cuptiGetTimestamp_(&from));
    is_begun = 1;
}

static void end(int session)
{
    size_t size = 1;
    unsigned char on = 0;
    uint64_t until;
    int seen[64] = {0}, wild = 0, dirty = 0, early = 0, calls = 0, get_device = 0, get_error = 0, lost = 0;
    CHECK(cuptiGetTimestamp_(&until));
    /* Like Kineto: if there is no buffer, there is nothing to flush. */
    pthread_mutex_lock(&lock);
    if (!buffers) puts("no buffer was asked for");
    pthread_mutex_unlock(&lock);
    for (int i = 0; i < KINDS; i++) CHECK(cuptiActivityDisable_(kinds[i]));
    int flushed = cuptiActivityFlushAll_(1);
    if (has("domain")) CHECK(cuptiEnableDomain_(0, 0, 2));
    if (has("threads")) CHECK(cuptiActivityGetAttribute_(9, &size, &on));
    if (has("threads") && !on) puts("the attribute was forgotten");
    on = 0;
    if (has("threads")) CHECK(cuptiActivitySetAttribute_(9, &size, &on));
    pthread_mutex_lock(&lock);
    for (unsigned i = 0; i < buffers; i++) {
        void *at = 0;
        lost += !lent[i].done;
        while (lent[i].done && !cuptiActivityGetNextRecord_(lent[i].at, lent[i].valid, &at)) {
            unsigned char *record = at;
            unsigned kind = half(record, 0);
            seen[kind & 63]++;
            size_t start = kind == 39 ? 0 : kind == 5 || kind == 38 ? 8 : 16;
            if (start && (word(record, start) + (1 << 20) < from || word(record, start + 8) > until + (1 << 20))) wild++;
            if (start && word(record, start + 8) < word(record, start)) wild++;
            if (kind == 10) dirty += word(record, 144) != 0 || half(record, 156) != 0;
            if (kind == 5) calls++, get_device += half(record, 4) == GET_DEVICE, get_error += half(record, 4) == 10;
            if (kind == 39) early += word(record, 8) / 100 != (uint64_t)session;
        }
        if (lent[i].done) free(lent[i].at);
    }
    if (has("mean")) lost = 0;
    int other = 0;
    for (int kind = 0; kind < 64; kind++) {
        int mine = 0;
        for (int i = 0; i < KINDS; i++) mine |= kinds[i] == kind;
        other += mine ? 0 : seen[kind];
    }
    printf("session %d: %d kernels, %d copies, %d fills, %d calls (%d and %d), %d waits, %d ids; flush %d\n", session, seen[10], seen[1],
           seen[2], calls, get_device, get_error, seen[38], seen[39], flushed);
    printf("  %d of other kinds, %d at wrong times, %d dirty, %d of another session, %d unknown buffers, %d lost\n", other, wild, dirty,
           early, unknown, lost);
    memset(lent, 0, sizeof lent);
    buffers = 0;
    is_begun = 0;
    pthread_mutex_unlock(&lock);
    if (has("finalize")) CHECK(cuptiFinalize_());
}

int main(int argc, char **argv)
{
    argc_ = argc, argv_ = argv;
    if (has("dlsym") || has("bypass")) {
        void *cupti = dlopen("libcupti.so.13", RTLD_NOW | RTLD_NOLOAD);
        const char *version = cupti ? "libcupti.so.13" : "libcupti.so.12";
        if (!cupti) cupti = dlopen("libcupti.so.12", RTLD_NOW | RTLD_NOLOAD);
#define FIND(name, arguments) name##_ = has("bypass") ? dlvsym(cupti, #name, version) : dlsym(cupti, #name);
        CUPTI(FIND)
    }
    /* NVTX does this at its first use. */
    if (has("loaded") && getenv("NVTX_INJECTION64_PATH")) dlopen(getenv("NVTX_INJECTION64_PATH"), RTLD_NOW);
    if (has("early")) {
        /* CUPTI wants the driver to be loaded. */
        if (!dlopen("libcuda.so.1", RTLD_NOW)) return 2;
        profiled_begin();
    }
    CHECK(cudaSetDevice(0));
    if (has("refused")) {
        int (*subscribe)(void *, void *, void *, void *) = dlsym(RTLD_DEFAULT, "cuptiSubscribe_v2");
        printf("the newer interface: %d\n", subscribe ? subscribe(&subscribe, 0, 0, 0) : -1);
    }
    work(0);
    uint64_t before = has("finalize") && !is_begun ? collected() : 0;
    for (int session = 1; session <= atoi(argv[1]); session++) {
        if (!is_begun) profiled_begin();
        work(session);
        end(session);
        work(0);
        if (has("long")) rest(before);
    }
    work(0);
    return 0;
}
