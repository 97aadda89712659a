// Ranks that reduce by MPI, step by step, and then stand still: `hang_mpi HOW`.
//
// HOW is what rank 1 does in step 10. sleeps: it sleeps for ever. computes: it computes for ever.
// ends: it exits with status 3 without a word to MPI. fails: it fails, catches that, and waits in its
// handler. reads: it reads from a server that is stopped. barrier: it leaves out a barrier that the
// others make. calm: nothing, and steps go on until the ranks are killed. Before that step each rank prints `ready RANK PID`.
#include <mpi.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
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

static jmp_buf caught;

__attribute__((noinline, noclone)) static void fails(int left) {
    if (left) {
        longjmp(caught, 1);
    }
}

__attribute__((noinline, noclone)) static int handles(int left) {
    return pause() + 2 * left; // HERE handles
}

// Starts a server that is stopped before it has written anything, and returns its pipe.
static int starts_server(void) {
    int ends[2], status;
    if (pipe(ends) != 0) {
        return -1;
    }
    pid_t server = fork();
    if (server == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        raise(SIGSTOP);
        _exit(write(ends[1], "x", 1) != 1);
    }
    waitpid(server, &status, WUNTRACED);
    return ends[0];
}

__attribute__((noinline, noclone)) static int loads(int server) {
    char byte;
    return (int)read(server, &byte, 1) + 1; // HERE loads
}

__attribute__((noinline, noclone)) static int meets(void) {
    MPI_Barrier(MPI_COMM_WORLD);
    return 0; // HERE meets
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
            if (rank == 1 && !strcmp(how, "fails")) {
                if (setjmp(caught)) {
                    done += handles(rank);
                }
                fails(rank);
            }
            if (rank == 1 && !strcmp(how, "reads")) {
                done += loads(starts_server());
            }
            if (rank != 1 && !strcmp(how, "barrier")) {
                done += meets();
            }
        }
        done = reduces(mine, sum) < 0;
        usleep(10000);
    }
    MPI_Finalize();
    return 0;
}
