/* A task of Slurm, or of any launcher that only sets variables. It allocates 1,000 blocks and one
 * for each rank before it, prints its rank in one line, and ends.
 *
 * usage: task [fail STATUS | wait SECONDS]
 *   fail   rank 1 ends with this status
 *   wait   sleeps before the end */
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
    const char *what = argc > 2 ? argv[1] : "";
    const char *names[] = {"RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID"};
    const char *text = NULL;
    for (size_t i = 0; i < sizeof names / sizeof *names && !text; i++) text = getenv(names[i]);
    int rank = text ? atoi(text) : 0;
    work_of_rank(1000 + rank);
    printf("task %d\n", rank);
    fflush(stdout);
    usleep(300000); /* long enough for a collector that starts together with this process to notice it */
    if (strcmp(what, "wait") == 0) sleep((unsigned)atoi(argv[2]));
    return strcmp(what, "fail") == 0 && rank == 1 ? atoi(argv[2]) : 0;
}
