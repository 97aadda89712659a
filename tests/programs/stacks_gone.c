/* Runs functions on stacks below the thread's own and returns from them, as runtimes do for deep
 * recursion. Each stack is unreadable afterwards.
 *
 * Proves: a stack that a thread has left is never read again, although earlier walks went
 * through it to the thread's own stack.
 *
 * build: -pthread */
#include "victim.h"
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>

#define COUNT 30
#define BYTES 16384

/* Calls a function on another stack. Its own frame stays where it is, by the frame pointer. */
void on_stack(void (*function)(int), void *top, int argument);
__asm__(".text\n.globl on_stack\n.type on_stack, @function\non_stack:\n.cfi_startproc\n"
        "push %rbp\n.cfi_def_cfa_offset 16\n.cfi_offset %rbp, -16\n"
        "mov %rsp, %rbp\n.cfi_def_cfa_register %rbp\n"
        "mov %rdi, %rax\nmov %edx, %edi\nmov %rsi, %rsp\ncall *%rax\n"
        "leave\n.cfi_def_cfa %rsp, 8\nret\n.cfi_endproc\n.size on_stack, . - on_stack\n");

NOINLINE static void keep(char *frame) { __asm__ volatile("" : : "r"(frame) : "memory"); }

NOINLINE static void victim_allocate(int depth) {
    char frame[512];
    memset(frame, depth, sizeof frame);
    keep(frame);
    if (depth) {
        victim_allocate(depth - 1);
    } else {
        for (long i = 0; i < 100; i++) victim_give(victim_take(some_size(i)), some_size(i));
    }
    keep(frame);
}

static void *run(void *stacks) {
    for (int i = COUNT; i-- > 0;) {
        char *area = (char *)stacks + (size_t)i * BYTES;
        check(mprotect(area, BYTES, PROT_READ | PROT_WRITE) == 0, "mprotect");
        on_stack(victim_allocate, area + BYTES, 1 + i % 5);
        check(mprotect(area, BYTES, PROT_NONE) == 0, "mprotect");
        if (i % 3 == 0) victim_allocate(i % 7);
    }
    return NULL;
}

int main(void) {
    size_t own = 1 << 17, others = (size_t)COUNT * BYTES;
    char *area = mmap(NULL, others + 4096 + own, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    check(area != MAP_FAILED, "mmap");
    check(mprotect(area + others + 4096, own, PROT_READ | PROT_WRITE) == 0, "mprotect");
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstack(&attributes, area + others + 4096, own);
    pthread_t thread;
    check(pthread_create(&thread, &attributes, run, area) == 0, "pthread_create");
    pthread_join(thread, NULL);
    expect();
    return 0;
}
