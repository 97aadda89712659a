/* Installs seccomp filters in one of many ways, then does what a sandbox does next.
 *
 * Proves: a call that installs no filter changes nothing. A filter that permits everything that
 * recording needs costs no events. Browsers start children that share memory but have their own
 * thread pointer; such a child may call every function that it may call without tprof.
 *
 * usage: sandboxed HOW bare      children like a browser's, one for each function
 *        sandboxed HOW threads   threads and a forked child that allocate
 * HOW: nothing, probe, refused, open, no_sockets, enough, narrow, tsync, strict
 *
 * The children have no stack canary to compare. build: -pthread -fno-stack-protector -Wl,-z,now */
#include "victim.h"
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <malloc.h>
#include <pthread.h>
#include <sched.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#define PAGE 4096
#define RETURN(what) BPF_STMT(BPF_RET | BPF_K, what)
#define ON(number, what) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1), RETURN(what)
#define ALLOW(number) ON(number, SECCOMP_RET_ALLOW)
#define LOAD_NUMBER BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr))
#define LOAD_LOW(n) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args) + 8 * (n))

static long install(struct sock_filter *rules, size_t count, unsigned flags) {
    struct sock_fprog program = {count, rules};
    check(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0, "no_new_privs");
    return syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &program);
}
#define INSTALL(rules, flags) install(rules, sizeof rules / sizeof *rules, flags)

static void *strict_thread(void *pipe) {
    check(prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT) == 0, "strict");
    char byte;
    write(((int *)pipe)[1], "s", 1);
    read(((int *)pipe)[2], &byte, 1); /* waits for ever */
    return NULL;
}

static void ask_for(const char *how) {
    /* A filter as a list of refusals, one of which examines arguments. */
    struct sock_filter open[] = {LOAD_NUMBER, ON(SYS_ptrace, SECCOMP_RET_ERRNO | EPERM),
                                 ON(SYS_reboot, SECCOMP_RET_KILL_PROCESS),
                                 BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_prctl, 0, 3), LOAD_LOW(0),
                                 ON(PR_SET_MM, SECCOMP_RET_ERRNO | EPERM), RETURN(SECCOMP_RET_ALLOW)};
    struct sock_filter no_sockets[] = {LOAD_NUMBER, ON(SYS_socket, SECCOMP_RET_KILL_PROCESS),
                                       RETURN(SECCOMP_RET_ALLOW)};
    /* The system calls that this program makes itself. */
#define OWN                                                                                       \
    LOAD_NUMBER, ALLOW(SYS_read), ALLOW(SYS_write), ALLOW(SYS_brk), ALLOW(SYS_exit),              \
        ALLOW(SYS_exit_group), ALLOW(SYS_clone), ALLOW(SYS_clone3), ALLOW(SYS_wait4),             \
        ALLOW(SYS_mmap), ALLOW(SYS_munmap), ALLOW(SYS_mremap), ALLOW(SYS_mprotect),               \
        ALLOW(SYS_getppid), ALLOW(SYS_futex), ALLOW(SYS_set_robust_list), ALLOW(SYS_rseq),        \
        ALLOW(SYS_execve), ALLOW(SYS_madvise), ALLOW(SYS_getrandom), ALLOW(SYS_rt_sigaction),     \
        ALLOW(SYS_sched_getaffinity)
    struct sock_filter enough[] = {
        OWN, ALLOW(SYS_rt_sigprocmask), ALLOW(SYS_prctl), ALLOW(SYS_getpid), ALLOW(SYS_gettid),
        ALLOW(SYS_sched_yield), ALLOW(SYS_nanosleep), ALLOW(SYS_clock_gettime), ALLOW(SYS_arch_prctl),
        RETURN(SECCOMP_RET_KILL_PROCESS),
    };
    struct sock_filter narrow[] = {
        OWN,
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_rt_sigprocmask, 0, 7), LOAD_LOW(0),
        ALLOW(SIG_BLOCK), ALLOW(SIG_UNBLOCK), ALLOW(SIG_SETMASK),
        LOAD_NUMBER,
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_prctl, 0, 3), LOAD_LOW(0),
        ON(PR_SET_NAME, SECCOMP_RET_ALLOW),
        RETURN(SECCOMP_RET_KILL_PROCESS),
    };
    struct sock_filter endless[] = {LOAD_NUMBER};
    static int pipes[4];
    if (!strcmp(how, "probe")) {
        check(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, NULL) == -1 && errno == EFAULT, "probe");
        check(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, NULL) == -1,
              "probe for all threads");
        check(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, NULL) == -1 && errno == EFAULT, "prctl");
        check(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, 8, 0, 0) == -1 && errno == EFAULT, "address 8");
        check(syscall(SYS_prctl, PR_SET_SECCOMP, SECCOMP_MODE_FILTER, NULL) == -1, "prctl by number");
    } else if (!strcmp(how, "refused")) {
        for (int i = 0; i < 3; i++)
            check(INSTALL(endless, 0) == -1 && errno == EINVAL, "a filter without an end");
        check(syscall(SYS_seccomp, SECCOMP_SET_MODE_STRICT, 1, NULL) == -1, "strict with flags");
    } else if (!strcmp(how, "open")) {
        check(INSTALL(open, 0) == 0, "filter");
    } else if (!strcmp(how, "no_sockets")) {
        check(INSTALL(no_sockets, 0) == 0, "filter");
    } else if (!strcmp(how, "enough")) {
        check(INSTALL(enough, 0) == 0, "filter");
    } else if (!strcmp(how, "narrow")) {
        check(INSTALL(narrow, 0) == 0, "filter");
    } else if (!strcmp(how, "tsync")) {
        check(INSTALL(narrow, SECCOMP_FILTER_FLAG_TSYNC) == 0, "filter");
    } else if (!strcmp(how, "strict")) {
        pthread_t thread;
        check(pipe(pipes) == 0 && pipe(pipes + 2) == 0, "pipe");
        check(pthread_create(&thread, NULL, strict_thread, pipes) == 0, "pthread_create");
        char byte;
        check(read(pipes[0], &byte, 1) == 1, "read");
    } else {
        check(!strcmp(how, "nothing"), "HOW");
    }
    print("asked for %s\n", how);
}

/* The steps of a child before it exits; `steps` counts those that returned. */
static volatile int steps;
static void *area;

static int by_exit(void *status) { _exit(*(int *)status); }
static int by_capital_exit(void *status) { _Exit(*(int *)status); }
static int by_return(void *status) { return *(int *)status; }
static int maps(void *status) {
    char *at = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    steps += at != MAP_FAILED;
    at = mremap(at, 2 * PAGE, 4 * PAGE, MREMAP_MAYMOVE);
    steps += at != MAP_FAILED;
    steps += munmap(at, 4 * PAGE) == 0;
    _exit(*(int *)status);
}
static int names_itself(void *status) {
    steps += prctl(PR_SET_NAME, "bare", 0, 0, 0) == 0;
    steps += syscall(SYS_getppid) > 0;
    syscall(SYS_exit_group, *(int *)status);
    return 0;
}
static int executes(void *unused) {
    (void)unused;
    char *arguments[] = {"sandboxed", NULL}, *nothing[] = {NULL};
    execve("/proc/self/exe", arguments, nothing);
    return 1;
}
/* These functions set errno or take a lock, so they need the memory around the thread pointer. */
static int fails_to_execute(void *status) {
    char *arguments[] = {"nothing", NULL};
    steps += execv("/does/not/exist", arguments) == -1;
    steps += munmap((void *)1, 1) == -1;
    _exit(*(int *)status);
}
static int allocates(void *status) {
    area = malloc(1000);
    steps += area != NULL;
    area = realloc(area, 5000);
    steps += area != NULL;
    free(area);
    _exit(*(int *)status);
}

static void run(const char *name, int (*what)(void *), const char *place, void *tls, int flags) {
    flags |= CLONE_VM | SIGCHLD;
    static char stack[16 * PAGE] __attribute__((aligned(64)));
    static int status;
    status = 60 + strlen(name) % 8;
    steps = 0;
    pid_t pid = clone(what, stack + sizeof stack, flags, &status, NULL, tls);
    check(pid > 0, "clone");
    int ended = 0;
    check(waitpid(pid, &ended, 0) == pid, "waitpid");
    char line[96];
    snprintf(line, sizeof line, "%s, thread pointer %s, %d steps,", name, place, steps);
    print_status(line, ended);
}

static void bare(int narrow) {
    char *zeros = mmap(NULL, 32 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    /* The memory below the edge can't be read. */
    char *edge = mmap(NULL, 32 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    check(zeros != MAP_FAILED && edge != MAP_FAILED, "mmap");
    check(mprotect(edge + 16 * PAGE, 16 * PAGE, PROT_READ | PROT_WRITE) == 0, "mprotect");
    /* It points to itself, as a thread's structure does, but is not a thread's. */
    char *alike = edge + 20 * PAGE;
    ((void **)alike)[0] = ((void **)alike)[2] = alike;
    struct { const char *name; char *tls; } places[] = {
        {"nowhere", NULL}, {"at an edge", edge + 16 * PAGE}, {"alike", alike}, {"in zeros", zeros + 16 * PAGE}};
    struct { const char *name; int (*what)(void *); } acts[] = {
        {"_exit", by_exit}, {"_Exit", by_capital_exit}, {"return", by_return}, {"mmap", maps},
        {"prctl", names_itself}, {"execve", executes}, {"errors", fails_to_execute}, {"malloc", allocates}};
    for (int p = 0; p < 4; p++)
        for (int a = 0; a < (p == 3 ? 8 : 6); a++)
            if (!narrow || acts[a].what != executes)
                run(acts[a].name, acts[a].what, places[p].name, places[p].tls, CLONE_SETTLS | CLONE_VFORK);
    for (int a = 0; a < 8; a++)
        if (!narrow || acts[a].what != executes) run(acts[a].name, acts[a].what, "of the parent", NULL, CLONE_VFORK);
    /* The children run at the same time as their parent, which waits in the kernel. */
    for (int a = 0; a < 8; a++)
        if (!narrow || acts[a].what != executes) {
            run(acts[a].name, acts[a].what, "in zeros, alongside", zeros + 16 * PAGE, CLONE_SETTLS);
            run(acts[a].name, acts[a].what, "of the parent, alongside", NULL, 0);
        }
}

NOINLINE static void victim_work(void) {
    for (long i = 0; i < 2000; i++) victim_give(victim_take(some_size(i)), some_size(i));
    victim_take(100);
}
static void *work(void *unused) {
    victim_work();
    return unused;
}

static void threads(void) {
    enum { THREADS = 6 };
    pthread_t all[THREADS];
    for (int i = 0; i < THREADS; i++) check(pthread_create(&all[i], NULL, work, NULL) == 0, "pthread_create");
    for (int i = 0; i < THREADS; i++) pthread_join(all[i], NULL);
    pid_t pid = fork();
    check(pid >= 0, "fork");
    if (pid == 0) {
        victim_work();
        _exit(33);
    }
    int status;
    check(waitpid(pid, &status, 0) == pid, "waitpid");
    print_status("forked", status);
    victim_work();
    print("expect allocations=%ld frees=%ld bytes=-1 live=-1 peak=-1\n", sums.allocations + 2001, sums.frees + 2000);
}

int main(int argc, char **argv) {
    if (argc < 3) return 58; /* executed by a child */
    ask_for(argv[1]);
    if (!strcmp(argv[2], "bare"))
        bare(!strcmp(argv[1], "enough") || !strcmp(argv[1], "narrow") || !strcmp(argv[1], "tsync"));
    else
        threads();
    print("done\n");
    _exit(0);
}
