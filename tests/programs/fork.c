/* Forks children that allocate and leave by exit, `_exit` and a signal; also
 * through `_Fork` and a bare clone, which run no atfork handlers.
 *
 * Proves: forked children are followed, and each is counted separately from its parent. Prints
 * the sums of all processes together. */
#include "victim.h"
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#define CHILDREN 6
#define BLOCKS 100

NOINLINE static void victim_child(int which) {
    /* Frees the parent's blocks, then allocates blocks of its own. */
    for (long i = 0; i < BLOCKS; i++) victim_give(victim_take(some_size(i)), some_size(i));
    victim_take(1000 + which);
}

int main(void) {
    long *total = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    void *inherited = victim_take(333);
    for (int i = 0; i < CHILDREN; i++) {
        pid_t pid;
        if (i == 3) pid = _Fork();
        else if (i == 4) pid = syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
        else pid = fork();
        check(pid >= 0, "fork");
        if (pid == 0) {
            memset(&sums, 0, sizeof sums);
            victim_child(i);
            count_out(333);
            free(inherited);
            total[0] += sums.allocations;
            total[1] += sums.frees;
            total[2] += sums.bytes;
            if (i == 1) kill(getpid(), SIGKILL);
            if (i == 0 || i == 5) exit(20 + i);
            _exit(20 + i);
        }
        int status;
        check(waitpid(pid, &status, 0) == pid, "waitpid");
        print_status("child", status);
    }
    victim_give(inherited, 333);
    print("expect allocations=%ld frees=%ld bytes=%ld live=-1 peak=-1\n", sums.allocations + total[0],
        sums.frees + total[1], sums.bytes + total[2]);
    return 0;
}
