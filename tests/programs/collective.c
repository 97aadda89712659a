/* MPI ranks, one of which comes late to every collective and measures its own lateness.
 *
 * Proves: `tprof report findings` names the late rank and its line, which ends in "HERE late". Prints `expect late=SECONDS`: how long
 * rank 1 worked before collectives. With `calm`, all ranks work alike. */
#include <mpi.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static volatile int slept;

static double now(void)
{
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return at.tv_sec + at.tv_nsec / 1e9;
}

__attribute__((noinline)) static int victim_prepares(void)
{
    int failed = usleep(30000); /* HERE late */
    slept += 1 + failed;
    return slept;
}

int main(int argc, char **argv)
{
    int rank, calm = argc > 1 && strcmp(argv[1], "calm") == 0;
    double sum = 1, all, late = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Barrier(MPI_COMM_WORLD);
    for (int i = 0; i < 40; i++) {
        double began = now();
        if (rank == 1 || calm)
            victim_prepares();
        late += now() - began;
        MPI_Allreduce(&sum, &all, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    }
    if (rank == 1)
        printf("expect late=%f\n", late);
    MPI_Finalize();
    return 0;
}
