/* Two ranks that reduce on the stand-ins, step by step, and then stand still: `hang HOW`. They join as RANK of
 * WORLD_SIZE, and pass the id through the file that MEETING names.
 *
 * HOW is what rank 1 does in step 10. late: it waits in `loads` for ever. ends: it exits with status 3. apart: it calls
 * another operation than rank 0. kernel: it waits for a kernel of its own that takes half an hour, behind which
 * others wait. calm: nothing, and steps go on until the ranks are killed.
 * Before that step each rank prints `ready RANK PID`. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct { unsigned x, y, z; } dim3_t;
typedef struct { char bytes[128]; } nccl_id;
extern void **__cudaRegisterFatBinary(void *);
extern void __cudaRegisterFatBinaryEnd(void **);
extern void __cudaRegisterFunction(void **, const char *, char *, const char *, int, void *, void *, void *, void *, int *);
extern int cudaLaunchKernel(const void *, dim3_t, dim3_t, void **, size_t, void *);
extern int cudaMalloc(void **, size_t), cudaSetDevice(int), cudaStreamSynchronize(void *);
extern int ncclGetUniqueId(nccl_id *), ncclCommInitRank(void **, int, nccl_id, int);
extern int ncclAllReduce(const void *, void *, size_t, int, int, void *, void *);
extern int ncclBroadcast(const void *, void *, size_t, int, int, void *, void *);

enum { STEP = 10, COUNT = 1024, FLOAT = 7, BLOCKS = 2000000000 };
static const char *how;
static void *buffer;
static char spins_stub, follows_stub;

static void check(int result, const char *what)
{
    if (result != 0) {
        fprintf(stderr, "hang: %s returned %d\n", what, result);
        exit(1);
    }
}
#define CHECK(call) check(call, #call)

__attribute__((constructor)) static void register_kernels(void)
{
    void **handle = __cudaRegisterFatBinary(0);
    __cudaRegisterFunction(handle, &spins_stub, 0, "_Z5spinsPf", -1, 0, 0, 0, 0, 0);
    __cudaRegisterFunction(handle, &follows_stub, 0, "_Z7followsPf", -1, 0, 0, 0, 0, 0);
    __cudaRegisterFatBinaryEnd(handle);
}

static nccl_id meet(int rank)
{
    nccl_id id;
    const char *path = getenv("MEETING");
    char part[4096];
    snprintf(part, sizeof part, "%s.part", path);
    if (rank == 0) {
        CHECK(ncclGetUniqueId(&id));
        FILE *file = fopen(part, "w");
        fwrite(&id, sizeof id, 1, file);
        fclose(file);
        rename(part, path);
        return id;
    }
    for (FILE *file; (file = fopen(path, "r")) == 0; usleep(1000)) { }
    FILE *file = fopen(path, "r");
    check(fread(&id, sizeof id, 1, file) != 1, "fread");
    fclose(file);
    return id;
}

__attribute__((noinline)) static int loads(void)
{
    return pause() + 1; /* HERE late */
}

__attribute__((noinline)) static int waits(void)
{
    CHECK(cudaStreamSynchronize(0)); /* HERE waits */
    return 1;
}

__attribute__((noinline)) static int reduces(void *communicator)
{
    CHECK(ncclAllReduce(buffer, buffer, COUNT, FLOAT, 0, communicator, 0));
    return waits() + 1;
}

__attribute__((noinline)) static int other(void *communicator)
{
    CHECK(ncclBroadcast(buffer, buffer, COUNT, FLOAT, 0, communicator, 0));
    return waits() + 1; /* HERE apart */
}

int main(int argc, char **argv)
{
    how = argc > 1 ? argv[1] : "calm";
    int rank = atoi(getenv("RANK")), ranks = atoi(getenv("WORLD_SIZE")), done = 0;
    void *communicator;
    CHECK(cudaSetDevice(0));
    CHECK(cudaMalloc(&buffer, COUNT * 4));
    CHECK(ncclCommInitRank(&communicator, ranks, meet(rank), rank));
    for (int step = 0; done >= 0; step++) {
        if (step == STEP) {
            printf("ready %d %d\n", rank, (int)getpid());
            fflush(stdout);
            if (rank == 1 && !strcmp(how, "late")) done += loads();
            if (rank == 1 && !strcmp(how, "ends")) _exit(3);
            if (rank == 1 && !strcmp(how, "kernel")) {
                const dim3_t grid = {BLOCKS, 1, 1}, block = {32, 1, 1};
                CHECK(cudaLaunchKernel(&spins_stub, grid, block, 0, 0, 0));
                for (int i = 0; i < 3; i++) CHECK(cudaLaunchKernel(&follows_stub, block, block, 0, 0, 0));
                done += waits();
            }
            if (rank == 1 && !strcmp(how, "apart")) {
                done += other(communicator);
                continue;
            }
        }
        done = reduces(communicator);
        usleep(10000);
    }
    return 0;
}
