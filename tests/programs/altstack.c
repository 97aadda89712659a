/* Allocates in handlers that run on an alternate signal stack.
 *
 * Proves: hooks work on a sigaltstack, which is no thread's own stack. The signal is raised
 * outside the allocator, so that the program itself is correct. */
#include "victim.h"
#include <signal.h>
#include <sys/mman.h>

static void on_usr1(int signal) {
    (void)signal;
    for (long i = 0; i < 10; i++) victim_give(victim_take(some_size(i)), some_size(i));
    victim_take(200);
}

int main(void) {
    char *area = mmap(NULL, 32768 + 8192, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    mprotect(area + 4096, 32768, PROT_READ | PROT_WRITE);
    stack_t stack = {.ss_sp = area + 4096, .ss_size = 32768};
    check(sigaltstack(&stack, NULL) == 0, "sigaltstack");
    struct sigaction action = {.sa_handler = on_usr1, .sa_flags = SA_ONSTACK};
    sigaction(SIGUSR1, &action, NULL);
    for (int i = 0; i < 100; i++) raise(SIGUSR1);
    expect();
    return 0;
}
