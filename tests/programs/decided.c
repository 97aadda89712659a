/* MPI ranks that sleep for as long before each reduction, but for rank 1, which sleeps longer before
 * the second of each iteration.
 *
 * Proves: `tprof report stragglers` names rank 1 and the line that ends in "HERE late" as what decided
 * the steps, and predicts what a step takes without it. With `calm`, all ranks sleep alike. Prints
 * `step_ns=`: the mean time of an iteration after the first. */
#include <mpi.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { ITERATIONS = 40, VALUES = 1000 };

static volatile int slept;

__attribute__((noinline)) static void victim_prepares(void)
{
    slept += usleep(20000);
}

__attribute__((noinline)) static void victim_is_late(void)
{
    slept += usleep(40000); /* HERE late */
    slept++;
}

int main(int argc, char **argv)
{
    static double values[VALUES], sums[VALUES];
    int rank, calm = argc > 1 && strcmp(argv[1], "calm") == 0;
    double first = 0, last = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Barrier(MPI_COMM_WORLD);
    for (int i = 0; i < ITERATIONS; i++) {
        victim_prepares();
        MPI_Allreduce(values, sums, VALUES, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
        victim_prepares();
        if (rank == 1 && !calm)
            victim_is_late();
        MPI_Allreduce(values, sums, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
        last = MPI_Wtime();
        if (i == 0)
            first = last;
    }
    if (rank == 0)
        printf("step_ns=%.0f\n", (last - first) * 1e9 / (ITERATIONS - 1));
    MPI_Finalize();
    return 0;
}
