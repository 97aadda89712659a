/* vfork, then exec of itself, a failed exec, or `_exit` at once.
 *
 * Proves: a vfork child, which runs in its parent's memory, disturbs nothing there and is
 * followed through exec.
 *
 * usage: vfork_exec [child] */
#include "victim.h"

int main(int argc, char **argv) {
    (void)argv;
    if (argc > 1) {
        for (long i = 0; i < 50; i++) victim_take(some_size(i));
        print("in the child\n");
        return 41;
    }
    for (int i = 0; i < 30; i++) {
        void *block = victim_take(100 + i);
        pid_t pid = vfork();
        if (pid == 0) {
            if (i % 3 == 0) execl("/proc/self/exe", "vfork_exec", "child", (char *)NULL);
            if (i % 3 == 1) execl("/does/not/exist", "nothing", (char *)NULL);
            _exit(i % 3 == 1 ? 42 : 43);
        }
        int status;
        check(waitpid(pid, &status, 0) == pid, "waitpid");
        print_status("child", status);
        victim_give(block, 100 + i);
    }
    /* The blocks are those of the shell: 30 of its own, and 50 in each of ten images. */
    print("expect allocations=%d frees=30 bytes=-1 live=-1 peak=-1\n", 30 + 10 * 50);
    return 0;
}
