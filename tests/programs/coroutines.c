/* A hundred ucontext coroutines that allocate on small stacks of their own.
 *
 * Proves: tprof walks a stack that isn't the thread's own without leaving it, and keeps no state
 * by the address of a stack.
 *
 * build: -pthread */
#include "victim.h"
#include <pthread.h>
#include <sys/mman.h>
#include <ucontext.h>

#define COUNT 100
#define ROUNDS 20
#define BYTES 16384

static ucontext_t main_context, contexts[COUNT];

NOINLINE static void victim_coroutine(int which) {
    for (long round = 0; round < ROUNDS; round++) {
        void *block = victim_take(some_size(which + round));
        swapcontext(&contexts[which], &main_context);
        victim_give(block, some_size(which + round));
    }
}

static void *run(void *unused) {
    for (int i = 0; i < COUNT; i++) {
        char *area = mmap(NULL, BYTES + 8192, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        mprotect(area + 4096, BYTES, PROT_READ | PROT_WRITE);
        getcontext(&contexts[i]);
        contexts[i].uc_stack.ss_sp = area + 4096;
        contexts[i].uc_stack.ss_size = BYTES;
        contexts[i].uc_link = &main_context;
        makecontext(&contexts[i], (void (*)(void))victim_coroutine, 1, i);
    }
    for (int round = 0; round <= ROUNDS; round++)
        for (int i = 0; i < COUNT; i++) swapcontext(&main_context, &contexts[i]);
    return unused;
}

int main(void) {
    run(NULL);
    pthread_t thread;
    pthread_create(&thread, NULL, run, NULL);
    pthread_join(thread, NULL);
    expect();
    return 0;
}
