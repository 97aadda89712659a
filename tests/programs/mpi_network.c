// Steps that add up 8 MiB of two ranks over TCP. The ranks wait around each, so that its bytes stay in
// the steps, and prints how long the reductions took together.
#include "../../preload-shim/include/tprof.h"
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { STEPS = 4, COUNT = 1 << 21 };

int main(int argc, char **argv) {
    const struct tprof_abi *tprof = tprof_find();
    double within = 0;
    int rank;
    float *from = calloc(COUNT, sizeof *from), *to = calloc(COUNT, sizeof *to);
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    for (int step = 0; step <= STEPS; step++) {
        if (tprof)
            tprof->step(step);
        if (step == STEPS)
            break;
        usleep(300000);
        double begun = MPI_Wtime();
        MPI_Allreduce(from, to, COUNT, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
        within += MPI_Wtime() - begun;
        usleep(300000);
    }
    if (rank == 0)
        printf("expect within=%f\n", within);
    MPI_Finalize();
    return 0;
}
