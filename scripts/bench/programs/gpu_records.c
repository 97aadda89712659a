/* Lets the stand-in make records of N kernels and their launches, R kernels a second (0: as fast
 * as buffers come), and prints the time that the agent's thread took for one record, in
 * nanoseconds. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

extern int cuInit(unsigned);
extern long bench_feed(long kernels, long rate);

/* Returns the CPU time of the thread with this name. */
static double thread_ns(const char *name) {
    double found = 0;
    DIR *tasks = opendir("/proc/self/task");
    for (struct dirent *entry; tasks && (entry = readdir(tasks));) {
        char path[300], text[64] = "";
        snprintf(path, sizeof path, "/proc/self/task/%s/comm", entry->d_name);
        FILE *file = fopen(path, "r");
        if (!file) continue;
        if (fgets(text, sizeof text, file)) text[strcspn(text, "\n")] = 0;
        fclose(file);
        if (strcmp(text, name)) continue;
        snprintf(path, sizeof path, "/proc/self/task/%s/schedstat", entry->d_name);
        file = fopen(path, "r");
        if (file && fscanf(file, "%lf", &found) != 1) found = 0;
        if (file) fclose(file);
    }
    closedir(tasks);
    return found;
}

int main(int argc, char **argv) {
    long kernels = argc > 1 ? atol(argv[1]) : 1000000, rate = argc > 2 ? atol(argv[2]) : 0;
    if (cuInit(0)) return fprintf(stderr, "no agent was injected\n"), 1;
    struct timespec from, to;
    clock_gettime(CLOCK_MONOTONIC, &from);
    long lost = bench_feed(kernels, rate);
    clock_gettime(CLOCK_MONOTONIC, &to);
    double seconds = (double)(to.tv_sec - from.tv_sec) + (double)(to.tv_nsec - from.tv_nsec) / 1e9;
    /* Wait until the flush thread has nothing more to do. */
    for (double before = -1, at; (at = thread_ns("tprof-cupti")) > before + 3e6; before = at) usleep(300000);
    printf("record_ns=%.1f\nlost=%ld\nmade_per_s=%.0f\n", thread_ns("tprof-cupti") / (2.0 * kernels), lost, 2.0 * kernels / seconds);
    return 0;
}
