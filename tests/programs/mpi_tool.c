// A tool that wraps an MPI function under the function's own name, as MPI intends.
#include <mpi.h>
#include <stdio.h>

static int calls;

int MPI_Allreduce(const void *from, void *to, int count, MPI_Datatype type, MPI_Op op,
                  MPI_Comm comm) {
    calls++;
    return PMPI_Allreduce(from, to, count, type, op, comm);
}

int MPI_Finalize(void) {
    printf("wrapped=%d\n", calls);
    fflush(stdout);
    return PMPI_Finalize();
}
