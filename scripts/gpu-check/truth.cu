/* A CUDA program whose work is known exactly: how many kernels of which name run, for how long, and how many bytes are
 * copied, set and allocated. It prints these facts as JSON, to be compared with what a profiler recorded of it.
 *
 * truth work|rate|stalls|end=HOW [NAME=NUMBER…] OUT
 *   work      every part once: streams, threads, copies, graph, driver, memory, pools, virtual memory, peer, reset
 *   rate      short kernels at full rate and launches of a large graph, for what recording costs
 *   stalls    kernels of which it is known why their warps wait
 *   end=HOW   kernels, a rest of `rest` ms, then one that runs while the process ends by return, exit, _exit, abort,
 *             term, kill; or fork: a child is forked once the device is in use
 * NAME: launches, streams, threads, spin_us, nodes, replays, rest, stall_ms.
 *
 * Built by nvcc (`<<<>>>`; also -cudart static, --default-stream per-thread), or by a C++ compiler without CUDA's
 * headers: then the driver launches the kernels, from PTX, on the runtime's streams. Parts that the runtime or the
 * driver can't run are skipped, with the reason. */
#include "memory.h"
#include "rate.h"
#include "stalls.h"
#include "work.h"

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
        fputs("usage: truth work|rate|stalls|end=HOW [NAME=NUMBER...] OUT\n", stderr);
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
    } else if (!strcmp(mode, "stalls")) {
        stalls();
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
