/* A rank of an MPI job. It allocates 1,000 blocks and one for each rank before it, adds up the
 * numbers of all ranks, prints the sum in one line, and ends.
 *
 * usage: ranks [fail STATUS | wait SECONDS | spawn COUNT]
 *   fail   rank 1 ends with this status, after all ranks have printed
 *   wait   sleeps between the sum and the end
 *   spawn  makes MPI start this many more ranks, which do the same */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

__attribute__((noinline)) static void work_of_rank(int count) {
    for (int i = 0; i < count; i++) {
        void *volatile block = malloc(64);
        free(block);
    }
}

int main(int argc, char **argv) {
    int rank, size, sum = 0;
    const char *what = argc > 2 ? argv[1] : "";
    MPI_Comm parent, children;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Comm_get_parent(&parent);
    work_of_rank(1000 + rank);
    MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    printf("%s %d of %d: sum %d\n", parent == MPI_COMM_NULL ? "rank" : "child", rank, size, sum);
    fflush(stdout);
    if (strcmp(what, "wait") == 0) sleep((unsigned)atoi(argv[2]));
    if (strcmp(what, "spawn") == 0 && parent == MPI_COMM_NULL) {
        MPI_Comm_spawn(argv[0], MPI_ARGV_NULL, atoi(argv[2]), MPI_INFO_NULL, 0, MPI_COMM_WORLD,
                       &children, MPI_ERRCODES_IGNORE);
        MPI_Comm_disconnect(&children);
    }
    if (parent != MPI_COMM_NULL) MPI_Comm_disconnect(&parent);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Finalize();
    return strcmp(what, "fail") == 0 && rank == 1 ? atoi(argv[2]) : 0;
}
