/* Forks in difficult situations: with atfork handlers that allocate, in a signal handler, from a
 * thread, three levels deep, into a daemon, through every form of clone that copies memory, and
 * with children that make threads.
 *
 * Proves: each child begins as a process of its own and is counted as one, and no process hangs.
 * Prints the sums of all processes together.
 *
 * build: -pthread */
#include "victim.h"
#include <linux/sched.h>
#include <pthread.h>
#include <signal.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/syscall.h>

/* Sums of the processes that have ended. */
static long *total;

NOINLINE static void victim_work(int n) {
    for (long i = 0; i < n; i++) victim_give(victim_take(some_size(i)), some_size(i));
}

/* Called in a child: resets the sums of this process. */
static void begin(void) { memset(&sums, 0, sizeof sums); }

static void add_sums(void) {
    __atomic_add_fetch(&total[0], sums.allocations, __ATOMIC_SEQ_CST);
    __atomic_add_fetch(&total[1], sums.frees, __ATOMIC_SEQ_CST);
}

static void leave(int status) {
    add_sums();
    _exit(status);
}

static void reap(const char *who, pid_t pid) {
    int status;
    check(pid > 0, who);
    check(waitpid(pid, &status, 0) == pid, "waitpid");
    print_status(who, status);
}

static int handled_by = 0;
static void before(void) { victim_work(3); }
static void in_parent(void) { victim_work(4); }
static void in_child(void) {
    begin();
    victim_work(5);
}

static void with_handlers(void) {
    pid_t pid = fork();
    if (pid == 0) {
        victim_work(10);
        leave(1);
    }
    reap("with atfork handlers", pid);
}

static void on_signal(int signal) {
    pid_t pid = signal == SIGUSR1 ? fork() : _Fork();
    if (pid == 0) {
        begin();
        victim_work(20);
        leave(2);
    }
    handled_by = pid;
}

static void from_a_handler(int signal) {
    struct sigaction action = {.sa_handler = on_signal};
    sigaction(signal, &action, NULL);
    raise(signal);
    reap("from a handler", handled_by);
}

static void *forks(void *unused) {
    victim_work(7);
    pid_t pid = fork();
    if (pid == 0) {
        begin();
        victim_work(30);
        add_sums();
        exit(3);
    }
    reap("from a thread", pid);
    return unused;
}

static void *works(void *unused) {
    victim_work(50);
    return unused;
}

static void child_with_threads(void) {
    pid_t pid = fork();
    if (pid == 0) {
        begin();
        pthread_t threads[3];
        for (int i = 0; i < 3; i++) pthread_create(&threads[i], NULL, works, NULL);
        for (int i = 0; i < 3; i++) pthread_join(threads[i], NULL);
        leave(4);
    }
    reap("with threads of its own", pid);
}

static void deep(int depth) {
    pid_t pid = fork();
    if (pid == 0) {
        begin();
        victim_work(depth);
        if (depth > 1) deep(depth - 1);
        leave(depth);
    }
    reap("deep", pid);
}

/* The first child exits at once, so init becomes the parent of the second. */
static void daemonize(void) {
    int ends[2];
    check(pipe(ends) == 0, "pipe");
    pid_t pid = fork();
    if (pid == 0) {
        begin();
        victim_work(2);
        check(setsid() > 0, "setsid");
        if (fork() == 0) {
            begin();
            victim_work(60);
            add_sums();
            write(ends[1], "d", 1);
            _exit(0);
        }
        leave(5);
    }
    reap("a daemon's first", pid);
    char byte;
    check(read(ends[0], &byte, 1) == 1, "the daemon's word");
}

static int cloned(void *unused) {
    (void)unused;
    begin();
    victim_work(40);
    leave(6);
    return 0;
}

static void by_clone(void) {
    static char stack[1 << 16] __attribute__((aligned(64)));
    reap("by clone", clone(cloned, stack + sizeof stack, SIGCHLD, NULL));
    reap("by clone, files shared", clone(cloned, stack + sizeof stack, CLONE_FILES | CLONE_FS | SIGCHLD, NULL));
    reap("by clone, the parent waits", clone(cloned, stack + sizeof stack, CLONE_VFORK | SIGCHLD, NULL));
    struct clone_args arguments = {.exit_signal = SIGCHLD};
    pid_t pid = syscall(SYS_clone3, &arguments, sizeof arguments);
    if (pid == 0) cloned(NULL);
    reap("by clone3", pid);
    pid = syscall(SYS_fork);
    if (pid == 0) cloned(NULL);
    reap("by number", pid);
}

int main(void) {
    total = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    from_a_handler(SIGUSR1);
    from_a_handler(SIGUSR2);
    pthread_t thread;
    pthread_create(&thread, NULL, forks, NULL);
    pthread_join(thread, NULL);
    child_with_threads();
    deep(3);
    daemonize();
    by_clone();
    pthread_atfork(before, in_parent, in_child);
    with_handlers();
    add_sums();
    print("expect allocations=%ld frees=%ld bytes=-1 live=-1 peak=-1\n", total[0], total[1]);
    return 0;
}
