// MPI calls with known sizes, on any number of ranks. The last rank comes 30 ms late to each of the
// first ten reductions. Prints the time that it spent in these, and the values that it received.
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { STEPS = 10, COUNT = 1000, MOST = 16 };

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    int rank, ranks;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    MPI_Comm row;
    MPI_Comm_split(MPI_COMM_WORLD, 0, rank, &row);
    static double mine[COUNT], sum[COUNT], all[COUNT * MOST], part[COUNT * MOST];
    double within = 0;
    MPI_Barrier(MPI_COMM_WORLD);
    for (int step = 0; step < STEPS; step++) {
        if (rank == ranks - 1) {
            usleep(30000);
        }
        for (int i = 0; i < COUNT; i++) {
            mine[i] = rank + step;
        }
        double from = MPI_Wtime();
        MPI_Allreduce(mine, sum, COUNT, MPI_DOUBLE, MPI_SUM, row);
        within += MPI_Wtime() - from;
    }
    // In place, the send buffer's other arguments have no meaning.
    MPI_Allreduce(MPI_IN_PLACE, sum, 3, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    MPI_Bcast(sum, COUNT, MPI_DOUBLE, 0, MPI_COMM_WORLD);
    MPI_Allgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, all, COUNT, MPI_DOUBLE, MPI_COMM_WORLD);
    if (rank == 0) {
        memcpy(part, mine, sizeof mine);
        MPI_Gather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, part, COUNT, MPI_DOUBLE, 0, MPI_COMM_WORLD);
        MPI_Scatter(part, 5, MPI_DOUBLE, MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, 0, MPI_COMM_WORLD);
    } else {
        MPI_Gather(mine, COUNT, MPI_DOUBLE, NULL, 0, MPI_DATATYPE_NULL, 0, MPI_COMM_WORLD);
        MPI_Scatter(NULL, 0, MPI_DATATYPE_NULL, part, 5, MPI_DOUBLE, 0, MPI_COMM_WORLD);
    }
    int word = 100 + rank, other = -1;
    MPI_Alltoall(part, 7, MPI_CHAR, all, 7, MPI_CHAR, MPI_COMM_WORLD);
    if (rank == 0) {
        MPI_Send(&word, 1, MPI_INT, ranks - 1, 9, MPI_COMM_WORLD);
    } else if (rank == ranks - 1) {
        MPI_Recv(&other, 1, MPI_INT, MPI_ANY_SOURCE, 9, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
    MPI_Bcast(NULL, 0, MPI_DOUBLE, 0, MPI_COMM_WORLD);
    // The program handles this error itself.
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    int error = MPI_Bcast(sum, 1, MPI_DOUBLE, ranks + 5, MPI_COMM_WORLD);
    printf("rank=%d within_ns=%.0f sum=%.0f other=%d refused=%d\n", rank, within * 1e9, sum[COUNT - 1],
           other, error != MPI_SUCCESS);
    MPI_Finalize();
    return 0;
}
