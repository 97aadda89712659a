/* Parts of the program of known truth (truth.cu) that run kernels and copies: on streams, from threads, in a graph, by
 * the driver. Each writes what it did as one member of the JSON. */
#pragma once
#include "kernels.h"

static u64 spin_ns() { return setting("spin_us") * 1000ull; }

static u64 elapsed(cudaEvent_t begin, cudaEvent_t end)
{
    float ms = 0;
    CHECK(cudaEventElapsedTime(&ms, begin, end));
    return (u64)(ms * 1e6);
}

/* Runs kernels on several streams at the same time; the first stream's are between two events. */
static void streams()
{
    long launches = setting("launches"), n = setting("streams");
    cudaStream_t stream[64];
    cudaEvent_t begin, end;
    now_in = "streams";
    CHECK(cudaEventCreateWithFlags(&begin, 0));
    CHECK(cudaEventCreateWithFlags(&end, 0));
    for (long s = 0; s < n; s++) CHECK(cudaStreamCreateWithFlags(&stream[s], 1));
    CHECK(cudaEventRecord(begin, stream[0]));
    for (long i = 0; i < launches; i++)
        for (long s = 0; s < n; s++) LAUNCH(spin_streams, times_of + 2 * (s * launches + i), spin_ns(), stream[s]);
    CHECK(cudaEventRecord(end, stream[0]));
    for (long s = 0; s < n; s++) CHECK(cudaStreamSynchronize(stream[s]));
    member("{\"part\": \"streams\", \"kernel\": \"spin_streams\", \"count\": %ld, \"streams\": %ld, \"measured_ns\": %llu, "
        "\"events_ns\": %llu, \"launches_between_events\": %ld, \"spin_ns\": %llu}",
        count_spin_streams, n, measured(0, n * launches), elapsed(begin, end), launches, spin_ns());
    for (long s = 0; s < n; s++) CHECK(cudaStreamDestroy(stream[s]));
}

static void *thread(void *number)
{
    long launches = setting("launches"), at = (long)number;
    cudaStream_t stream = 0;
    CHECK(cudaSetDevice(0));
#ifndef PER_THREAD
    CHECK(cudaStreamCreateWithFlags(&stream, 1));
#endif
    for (long i = 0; i < launches; i++) LAUNCH(spin_threads, times_of + 2 * (at * launches + i), spin_ns() / 5, stream);
    CHECK(cudaStreamSynchronize(stream));
    return 0;
}
static void threads()
{
    long n = setting("threads");
    pthread_t of[64];
    now_in = "threads";
    for (long i = 0; i < n; i++) pthread_create(&of[i], 0, thread, (void *)i);
    for (long i = 0; i < n; i++) pthread_join(of[i], 0);
    member("{\"part\": \"threads\", \"kernel\": \"spin_threads\", \"count\": %ld, \"threads\": %ld, \"measured_ns\": %llu, "
        "\"spin_ns\": %llu}",
        count_spin_threads, n, measured(0, n * setting("launches")), spin_ns() / 5);
}

/* Copies numbers of bytes that no other part copies. */
static void copies()
{
    enum { N = 1234568 };
    char *pageable = (char *)calloc(1, N);
    void *pinned, *one, *two;
    now_in = "copies";
    CHECK(cudaMallocHost(&pinned, N));
    CHECK(cudaMalloc(&one, N));
    CHECK(cudaMalloc(&two, N));
    CHECK(cudaMemcpy(one, pageable, N, cudaMemcpyHostToDevice));
    for (int i = 0; i < 3; i++) CHECK(cudaMemcpyAsync(one, pinned, N - 8, cudaMemcpyHostToDevice, 0));
    for (int i = 0; i < 2; i++) CHECK(cudaMemcpyAsync(two, one, N - 16, cudaMemcpyDeviceToDevice, 0));
    for (int i = 0; i < 4; i++) CHECK(cudaMemcpyAsync(pinned, two, N - 24, cudaMemcpyDeviceToHost, 0));
    for (int i = 0; i < 5; i++) CHECK(cudaMemsetAsync(one, 7, N - 32, 0));
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaFree(one));
    CHECK(cudaFree(two));
    CHECK(cudaFreeHost(pinned));
    free(pageable);
    member("{\"part\": \"copies\", \"copies\": [{\"kind\": \"h2d\", \"bytes\": %d, \"count\": 1, \"pinned\": false}, "
        "{\"kind\": \"h2d\", \"bytes\": %d, \"count\": 3}, {\"kind\": \"d2d\", \"bytes\": %d, \"count\": 2}, "
        "{\"kind\": \"d2h\", \"bytes\": %d, \"count\": 4}, {\"kind\": \"memset\", \"bytes\": %d, \"count\": 5}]}",
        N, N - 8, N - 16, N - 24, N - 32);
}

static cudaGraphExec_t graph_of(cudaStream_t stream, long nodes, u64 ns)
{
    cudaGraph_t graph;
    cudaGraphExec_t executable;
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    for (long i = 0; i < nodes; i++) LAUNCH(spin_graph, times_of + 2 * (i % SLOTS), ns, stream);
    CHECK(cudaStreamEndCapture(stream, &graph));
    CHECK(cudaGraphInstantiate(&executable, graph, 0));
    return executable;
}
static void graph()
{
    long nodes = setting("nodes"), replays = setting("replays");
    cudaStream_t stream;
    now_in = "graph";
    CHECK(cudaStreamCreateWithFlags(&stream, 1));
    cudaGraphExec_t executable = graph_of(stream, nodes, spin_ns() / 10);
    for (long i = 0; i < replays; i++) CHECK(cudaGraphLaunch(executable, stream));
    CHECK(cudaStreamSynchronize(stream));
    member("{\"part\": \"graph\", \"kernel\": \"spin_graph\", \"count\": %ld, \"nodes\": %ld, \"replays\": %ld, \"spin_ns\": %llu}",
        nodes * replays, nodes, replays, spin_ns() / 10);
}

/* Launches kernels with cuLaunchKernel, from PTX. */
static void driver_part()
{
    long launches = setting("launches");
    now_in = "driver";
    void *kernel = driver_kernel("spin_driver");
    if (!kernel) return skip("driver", "the driver has no cuModuleLoadData");
    for (long i = 0; i < launches; i++) driver_launch(kernel, 1, times_of + 2 * i, spin_ns(), 0);
    CHECK(cudaDeviceSynchronize());
    member("{\"part\": \"driver\", \"kernel\": \"spin_driver\", \"count\": %ld, \"measured_ns\": %llu, \"spin_ns\": %llu}",
        launches, measured(0, launches), spin_ns());
}
