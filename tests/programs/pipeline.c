/* MPI ranks that are the stages of a pipeline (GPipe): in each step, microbatches go forward from
 * stage to stage, and then backward. Each stage sleeps for as long for each, but for rank 2, which
 * sleeps longer.
 *
 * Proves: `tprof report stragglers` follows the sends and receives, counts the microbatches, and names
 * rank 2 and the line that ends in "HERE slow" as what decided the steps. With `balanced`, all stages
 * sleep alike. With `large`, messages are so large that a send waits for its receiver. Prints
 * `step_ns=`: the mean time of a step after the first. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <mpi.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "../../preload-shim/include/tprof.h"

enum { STEPS = 20, MICROBATCHES = 8, LARGE = 1 << 18 };

static volatile int slept;
static int is_slow, count = 1;
static double values[LARGE];

__attribute__((noinline)) static void victim_is_slow(void)
{
    slept += usleep(8000); /* HERE slow */
    slept++;
}

static void computes(void)
{
    slept += usleep(4000);
    if (is_slow)
        victim_is_slow();
}

static void pass(int from, int to)
{
    if (from >= 0)
        MPI_Recv(values, count, MPI_DOUBLE, from, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    computes();
    if (to >= 0)
        MPI_Send(values, count, MPI_DOUBLE, to, 0, MPI_COMM_WORLD);
}

int main(int argc, char **argv)
{
    const struct tprof_abi *tprof = dlsym(RTLD_DEFAULT, "tprof_abi");
    int rank, ranks, balanced = 0;
    double first = 0, last = 0;
    for (int i = 1; i < argc; i++) {
        balanced |= strcmp(argv[i], "balanced") == 0;
        if (strcmp(argv[i], "large") == 0)
            count = LARGE;
    }
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    is_slow = rank == 2 && !balanced;
    int before = rank - 1, after = rank + 1 < ranks ? rank + 1 : -1;
    MPI_Barrier(MPI_COMM_WORLD);
    for (int i = 0; i < STEPS; i++) {
        if (tprof)
            tprof->step(i);
        for (int j = 0; j < MICROBATCHES; j++)
            pass(before, after);
        for (int j = 0; j < MICROBATCHES; j++)
            pass(after, before);
        MPI_Allreduce(MPI_IN_PLACE, values, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
        last = MPI_Wtime();
        if (i == 0)
            first = last;
    }
    if (rank == 0)
        printf("step_ns=%.0f\n", (last - first) * 1e9 / (STEPS - 1));
    MPI_Finalize();
    return 0;
}
