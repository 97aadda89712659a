// Iterations of a solver on two ranks. Each pauses, then reduces and sends messages of known sizes. With
// an argument, the sizes differ between iterations.
#include <mpi.h>
#include <stdio.h>
#include <unistd.h>

enum { ITERATIONS = 30, MOST = 4096 };

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    int rank;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    static double field[MOST], sum[MOST];
    MPI_Bcast(field, MOST, MPI_DOUBLE, 0, MPI_COMM_WORLD);
    double from = 0, to = 0;
    for (int at = 0; at < ITERATIONS; at++) {
        usleep(5000);
        to = MPI_Wtime();
        if (at == 0) {
            from = to;
        }
        int more = argc > 1 ? 7 * at * at : 0;
        MPI_Allreduce(field, sum, 1000 + more % 1000, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
        MPI_Allreduce(field, sum, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
        MPI_Bcast(field, 500 + more % 991, MPI_DOUBLE, 0, MPI_COMM_WORLD);
    }
    usleep(5000);
    printf("rank=%d first_to_last_ns=%.0f\n", rank, (to - from) * 1e9);
    MPI_Finalize();
    return 0;
}
