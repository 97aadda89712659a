/* A job's own profiler plugin for NCCL. It counts collectives, and appends the count to the file that
 * OWN_PLUGIN_COUNTS names when its process ends. -DVERSION=N exports ncclProfiler_vN. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

static int collectives;

static int set_up(void **context, int *mask)
{
    *context = &collectives;
    *mask = 1 << 1;
    return 0;
}
#if VERSION <= 3
static int init(void **context, int *mask) { return set_up(context, mask); }
#elif VERSION == 4
static int init(void **context, int *mask, const char *name, uint64_t hash, int nodes, int ranks, int rank, void *log)
{
    (void)name, (void)hash, (void)nodes, (void)ranks, (void)rank, (void)log;
    return set_up(context, mask);
}
#else
static int init(void **context, uint64_t hash, int *mask, const char *name, int nodes, int ranks, int rank, void *log)
{
    (void)name, (void)hash, (void)nodes, (void)ranks, (void)rank, (void)log;
    return set_up(context, mask);
}
#endif

static int start(void *context, void **event, unsigned char *description)
{
    (void)context;
    /* The type is one byte before version 5, and eight since. */
    uint64_t kind = VERSION <= 4 ? *description : *(uint64_t *)description;
    if (kind == 1 << 1) collectives++;
    *event = 0;
    return 0;
}
static int stop(void *event) { return (void)event, 0; }
static int state(void *event, int state, void *arguments) { return (void)event, (void)state, (void)arguments, 0; }
static int finalize(void *context) { return (void)context, 0; }

__attribute__((destructor)) static void write_count(void)
{
    const char *path = getenv("OWN_PLUGIN_COUNTS");
    FILE *file = path ? fopen(path, "a") : 0;
    if (!file) return;
    fprintf(file, "%d\n", collectives);
    fclose(file);
}

struct table {
    const char *name;
    void *init, *start, *stop, *state, *finalize;
};
#define JOIN(a, b) a##b
#define NAME(version) JOIN(ncclProfiler_v, version)
struct table NAME(VERSION) = {"own", init, start, stop, state, finalize};
