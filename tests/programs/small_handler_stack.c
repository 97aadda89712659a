/* Reads and writes in a signal handler, whose stack is as small as Rust's runtime makes it (8 KB, or
 * the kernel's least size and 4 KB), and in a coroutine on a stack of 4 KB, both above an unmapped
 * page. An argument is the size of the coroutine's stack.
 *
 * Proves: hooks of calls on files take little of a stack that isn't the thread's own. */
#include "victim.h"
#include <fcntl.h>
#include <signal.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

static char *stack_of(size_t bytes) {
    size_t whole = (bytes + 4095) & ~4095UL;
    char *area = mmap(NULL, whole + 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    mprotect(area + 4096, whole, PROT_READ | PROT_WRITE);
    return area + 4096 + whole - bytes;
}

/* A part of a path, so long that the name of a file takes much room. */
#define LONG "self/../self/../self/../self/../self/../self/../self/../self/../self/../self/../"

static int kept;

NOINLINE static void use_files(void) {
    char text[8];
    int file = open("/proc/" LONG LONG LONG "../dev/zero", O_RDWR);
    check(file >= 0, "open");
    check(read(file, text, 8) == 8 && pread(file, text, 8, 0) == 8, "read");
    /* A descriptor whose name no hook has seen. */
    int other = dup(kept);
    check(write(other, text, 8) == 8, "write");
    check(fsync(file) != 2 && close(other) == 0 && close(file) == 0, "close");
}

static void on_usr1(int signal) {
    (void)signal;
    use_files();
}

static ucontext_t back, coroutine;

static void run_coroutine(void) {
    for (;;) {
        use_files();
        swapcontext(&coroutine, &back);
    }
}

int main(int count, char **words) {
    size_t least = getauxval(AT_MINSIGSTKSZ), handler = least + 4096 > 8192 ? least + 4096 : 8192;
    size_t own = count > 1 ? (size_t)atol(words[1]) : 4096;
    kept = open("/dev/null", O_WRONLY);
    stack_t stack = {.ss_sp = stack_of(handler), .ss_size = handler};
    check(sigaltstack(&stack, NULL) == 0, "sigaltstack");
    struct sigaction action = {.sa_handler = on_usr1, .sa_flags = SA_ONSTACK};
    sigaction(SIGUSR1, &action, NULL);
    getcontext(&coroutine);
    coroutine.uc_stack = (stack_t){.ss_sp = stack_of(own), .ss_size = own};
    makecontext(&coroutine, run_coroutine, 0);
    for (int i = 0; i < 300; i++) {
        raise(SIGUSR1);
        swapcontext(&back, &coroutine);
        usleep(1000);
    }
    puts("done");
    return 0;
}
