/* A CUDA program of which everything is known: how many kernels of which name run, for how long, how many bytes
 * are copied, set, allocated. It prints that as JSON, to be compared with what a profiler recorded of it.
 *
 * truth work|rate|end=HOW [NAME=NUMBER…] OUT
 *   work      every part once: streams, threads, copies, graph, driver, memory, pools, virtual memory, peer, reset
 *   rate      short kernels at full rate and launches of a large graph, for what recording costs
 *   end=HOW   kernels, a rest of `rest` ms, then one that runs while the process ends by return, exit, _exit, abort,
 *             term, kill; or fork: a child is forked once the device is in use
 * NAME: launches, streams, threads, spin_us, nodes, replays, rest.
 *
 * Built by nvcc (`<<<>>>`; also -cudart static, --default-stream per-thread), or by a C++ compiler without CUDA's headers:
 * then kernels are launched by the driver, from PTX, on the runtime's streams. What the runtime or driver lacks is
 * skipped with the reason. */
#include "kernels.h"

/* --- parts ------------------------------------------------------------------------------------------------------- */

static u64 spin_ns() { return setting("spin_us") * 1000ull; }

static u64 elapsed(cudaEvent_t begin, cudaEvent_t end)
{
    float ms = 0;
    CHECK(cudaEventElapsedTime(&ms, begin, end));
    return (u64)(ms * 1e6);
}

/* Streams beside each other; the first between two events. */
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

/* Bytes that no other part copies. */
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

/* Launched by cuLaunchKernel, from PTX. */
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

/* Virtual memory, as expandable segments of PyTorch use it. */
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

/* The device is reset with memory held; kernels run behind it. */
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

/* --- what recording costs ---------------------------------------------------------------------------------------- */

/* Processor time of this process's thread of that name, ns; 0 if there is none. */
static u64 processor_time(const char *name)
{
    u64 ticks = 0;
    DIR *tasks = opendir("/proc/self/task");
    while (struct dirent *entry = tasks ? readdir(tasks) : nullptr) {
        char path[300], text[600];
        snprintf(path, sizeof path, "/proc/self/task/%s/stat", entry->d_name);
        FILE *file = fopen(path, "r");
        size_t n = file ? fread(text, 1, sizeof text - 1, file) : 0;
        if (file) fclose(file);
        text[n] = 0;
        char *open = strchr(text, '('), *close = strrchr(text, ')');
        u64 user, system;
        if (!open || !close || strncmp(open + 1, name, close - open - 1) || strlen(name) != (size_t)(close - open - 1)) continue;
        if (sscanf(close + 2, "%*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %llu %llu", &user, &system) == 2)
            ticks += user + system;
    }
    if (tasks) closedir(tasks);
    return ticks * (1000000000ull / sysconf(_SC_CLK_TCK));
}

static void rate()
{
    long launches = setting("launches"), nodes = setting("nodes"), replays = setting("replays");
    size_t unused = 0, all = 0;
    cudaStream_t stream;
    now_in = "rate";
    CHECK(cudaStreamCreateWithFlags(&stream, 1));
    for (long i = 0; i < 200; i++) LAUNCH(spin_rate, times_of, 5000, stream);
    CHECK(cudaStreamSynchronize(stream));
    u64 begin = now_ns();
    for (long i = 0; i < launches; i++) LAUNCH(spin_rate, times_of, 5000, stream);
    u64 launched = now_ns();
    CHECK(cudaStreamSynchronize(stream));
    u64 end = now_ns();
    member("{\"part\": \"rate\", \"kernel\": \"spin_rate\", \"count\": %ld, \"launch_ns\": %llu, \"kernel_ns\": %llu}",
        count_spin_rate, (launched - begin) / launches, (end - begin) / launches);
    cudaGraphExec_t executable = graph_of(stream, nodes, 5000);
    CHECK(cudaGraphLaunch(executable, stream));
    CHECK(cudaStreamSynchronize(stream));
    begin = now_ns();
    for (long i = 0; i < replays; i++) CHECK(cudaGraphLaunch(executable, stream));
    CHECK(cudaStreamSynchronize(stream));
    end = now_ns();
    member("{\"part\": \"graph rate\", \"kernel\": \"spin_graph\", \"count\": %ld, \"nodes\": %ld, \"node_ns\": %llu}",
        nodes * (replays + 1), nodes, (end - begin) / (replays * nodes));
    if ((get_info)cudaMemGetInfo) CHECK(cudaMemGetInfo(&unused, &all));
    member("{\"part\": \"host\", \"flush_thread_ns\": %llu, \"device_free_bytes\": %zu, \"device_bytes\": %zu}",
        processor_time("tprof-cupti"), unused, all);
}

/* --- ends -------------------------------------------------------------------------------------------------------- */

static void finish_json()
{
    fprintf(out, "]\n}\n");
    fflush(out);
    fsync(fileno(out));
}

static int end(const char *how)
{
    long launches = setting("launches");
    now_in = "end";
    for (long i = 0; i < launches; i++) LAUNCH(spin_end, times_of, spin_ns() / 5, 0);
    CHECK(cudaDeviceSynchronize());
    member("{\"part\": \"end\", \"how\": \"%s\", \"kernel\": \"spin_end\", \"count\": %ld, \"in_flight\": %d}",
        how, launches, strcmp(how, "fork") ? 1 : 0);
    finish_json();
    usleep(setting("rest") * 1000);
    if (!strcmp(how, "fork")) {
        pid_t child = fork();
        if (child == 0) {
            free(malloc(100));
            exit(0);
        }
        int status = 0;
        waitpid(child, &status, 0);
        return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
    }
    LAUNCH(spin_end, times_of, 50000000, 0);
    if (!strcmp(how, "exit")) exit(0);
    if (!strcmp(how, "_exit")) _exit(0);
    if (!strcmp(how, "abort")) abort();
    if (!strcmp(how, "term")) raise(SIGTERM);
    if (!strcmp(how, "kill")) raise(SIGKILL);
    return 0;
}

static void brought_up(const char *mode)
{
    int runtime = 0, driver_version = 0, devices = 0;
    auto init = driver_function<int (*)(unsigned)>("cuInit");
    u64 began = now_ns();
    int error = init ? init(0) : 999;
    u64 ended = now_ns();
    member("\"program\": \"truth\", \"mode\": \"%s\", \"compiler\": \"%s\", \"pid\": %d", mode, COMPILER, (int)getpid());
    member("\"cu_init\": [%llu, %llu], \"cu_init_result\": %d", began, ended, error);
    CHECK(cudaRuntimeGetVersion(&runtime));
    if (cudaDriverGetVersion) cudaDriverGetVersion(&driver_version);
    int counted = cudaGetDeviceCount(&devices);
    member("\"runtime\": %d, \"driver\": %d, \"devices\": %d, \"parts\": [", runtime, driver_version, devices);
    comma = "";
    check(counted, "cudaGetDeviceCount", "start");
    CHECK(cudaSetDevice(0));
    CHECK(cudaMalloc((void **)&times_of, 2 * SLOTS * sizeof *times_of));
    prepare_kernels();
}

int main(int argc, char **argv)
{
    if (argc < 3) {
        fputs("usage: truth work|rate|end=HOW [NAME=NUMBER...] OUT\n", stderr);
        return 2;
    }
    const char *mode = argv[1];
    for (int i = 2; i < argc - 1; i++)
        for (auto &one : settings)
            if (!strncmp(argv[i], one.name, strlen(one.name)) && argv[i][strlen(one.name)] == '=')
                one.value = atol(argv[i] + strlen(one.name) + 1);
    out = fopen(argv[argc - 1], "w");
    if (!out) {
        fprintf(stderr, "truth: %s: %s\n", argv[argc - 1], strerror(errno));
        return 2;
    }
    fputs("{", out);
    brought_up(mode);
    if (!strncmp(mode, "end=", 4)) return end(mode + 4);
    if (!strcmp(mode, "rate")) {
        rate();
    } else {
        int devices = 1;
        streams();
        threads();
        copies();
        graph();
        driver_part();
        memory();
        pool();
        virtual_memory();
        CHECK(cudaGetDeviceCount(&devices));
        peer(devices);
        reset();
    }
    int last = cudaGetLastError();
    member("{\"part\": \"last error\", \"error\": %d}", last);
    finish_json();
    return 0;
}
