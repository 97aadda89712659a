/* Measures the cost of recording: the part of the program with a known truth (truth.cu) that runs short
 * kernels at full rate. */
#pragma once
#include "work.h"

/* Returns the processor time of this process's thread with that name, in ns; 0 if there is none. */
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
