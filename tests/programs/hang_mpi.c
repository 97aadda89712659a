// Ranks that reduce by MPI, step by step, and then stand still: `hang_mpi HOW`.
//
// HOW is what rank 1 does in step 10. sleeps: it sleeps for ever. computes: it computes for ever.
// ends: it exits with status 3 without a word to MPI. calm: nothing, and steps go on until the
// ranks are killed. Before that step each rank prints `ready RANK PID`.
#include <mpi.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { STEP = 10, COUNT = 1000 };

__attribute__((noinline, noclone)) static int sleeps(int left) {
    return pause() + left; // HERE sleeps
}

__attribute__((noinline, noclone)) static int computes(void) {
    volatile unsigned long sum = 1;
    while (sum != 0) {
        sum = sum * 3 | 1; // HERE computes
    }
    return (int)sum;
}

__attribute__((noinline, noclone)) static double reduces(double *mine, double *sum) {
    MPI_Allreduce(mine, sum, COUNT, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    return sum[0] + 1; // HERE reduces
}

int main(int argc, char **argv) {
    const char *how = argc > 1 ? argv[1] : "calm";
    MPI_Init(&argc, &argv);
    int rank, done = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    static double mine[COUNT], sum[COUNT];
    for (int step = 0; done >= 0; step++) {
        if (step == STEP) {
            printf("ready %d %d\n", rank, (int)getpid());
            fflush(stdout);
            if (rank == 1 && !strcmp(how, "sleeps")) {
                done += sleeps(rank);
            }
            if (rank == 1 && !strcmp(how, "computes")) {
                done += computes();
            }
            if (rank == 1 && !strcmp(how, "ends")) {
                _exit(3);
            }
        }
        done = reduces(mine, sum) < 0;
        usleep(10000);
    }
    MPI_Finalize();
    return 0;
}
