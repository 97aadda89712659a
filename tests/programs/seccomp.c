/* Enters a sandbox and continues to allocate in it.
 *
 * Proves: hooks use neither the time-stamp counter nor system calls in strict mode, where the
 * kernel switches the counter off and kills any process that calls anything but read, write,
 * exit and sigreturn. Under a filter they make no call that the job would not make.
 *
 * usage: seccomp strict|strict_syscall|filter */
#include "victim.h"
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <malloc.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#define ALLOW(number) \
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)

static void filter(void) {
    struct sock_filter rules[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        ALLOW(SYS_read),
        ALLOW(SYS_write),
        ALLOW(SYS_brk),
        ALLOW(SYS_exit),
        ALLOW(SYS_exit_group),
        ALLOW(SYS_rt_sigreturn),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
    };
    struct sock_fprog program = {sizeof rules / sizeof *rules, rules};
    check(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0, "no_new_privs");
    check(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0, "seccomp");
}

int main(int argc, char **argv) {
    const char *how = argc > 1 ? argv[1] : "strict";
    /* Makes malloc keep enough memory, so that later blocks need no system call. */
    mallopt(M_MMAP_MAX, 0);
    mallopt(M_TRIM_THRESHOLD, 1 << 30);
    free(victim_take(16 << 20));
    if (!strcmp(how, "filter"))
        filter();
    else if (!strcmp(how, "strict_syscall"))
        check(syscall(SYS_seccomp, SECCOMP_SET_MODE_STRICT, 0, NULL) == 0, "seccomp");
    else
        check(prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT) == 0, "seccomp");
    void *blocks[64] = {0};
    for (long i = 0; i < 100000; i++) {
        free(blocks[i % 64]);
        blocks[i % 64] = victim_take(some_size(i));
    }
    write(1, "still here\n", 11);
    syscall(SYS_exit, 47);
    return 1;
}
