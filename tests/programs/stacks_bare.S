/* A function without unwind information, like the code of a JIT compiler. It calls the
 * function in its argument.
 *
 * Proves: a stack that cannot be followed is cut and reported as cut, and not
 * made up. */
        .text
        .globl  victim_bare
        .type   victim_bare, @function
victim_bare:
        pushq   %rbx
        subq    $48, %rsp
        call    *%rdi
        addq    $48, %rsp
        popq    %rbx
        ret
        .size   victim_bare, . - victim_bare
        .section .note.GNU-stack,"",@progbits
