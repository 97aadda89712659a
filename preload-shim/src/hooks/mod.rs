//! The functions that this library interposes, with one file for each family of functions.

/// Instructions of a hook that calls `{target}` with the stack and frame pointers on the stack, after
/// six arguments in registers.
macro_rules! call_with_stack {
    () => {
        "mov rax, rsp
        sub rsp, 8
        .cfi_adjust_cfa_offset 8
        push rbp
        .cfi_adjust_cfa_offset 8
        push rax
        .cfi_adjust_cfa_offset 8
        call {target}
        add rsp, 24
        .cfi_adjust_cfa_offset -24
        ret"
    };
}

/// Defines a hook of a function with five or six arguments. Six fill the registers, so the hook
/// passes the stack and frame pointers on the stack, as the seventh and eighth argument of the
/// target.
macro_rules! six_hook {
    ($name:ident($($arg:tt: $type:ty),*) -> $result:ty, $target:path) => {
        /// Interposes the function of this name.
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        pub unsafe extern "C" fn $name($($arg: $type),*) -> $result {
            ::core::arch::naked_asm!(
                ".cfi_startproc",
                "endbr64",
                call_with_stack!(),
                ".cfi_endproc",
                target = sym $target,
            )
        }
    };
}

/// Defines a hook of a call on a file. While such calls aren't recorded, it jumps to the real
/// function, whose address is in `$real`: every call and return around a system call costs several
/// nanoseconds, because kernels with mitigations clear the predictors. It always does so if the
/// function belongs to a library that isn't libc, and may have other arguments
/// ([`crate::table::passed`]). Otherwise it calls `$target`, and passes the stack and frame
/// pointers on in two spare registers, or after six arguments on the stack.
macro_rules! file_hook {
    ($name:ident($($arg:tt: $type:ty),*) -> $result:ty, $real:ident, $target:path, $sp:literal, $fp:literal) => {
        file_hook!(@ $name($($arg: $type),*) -> $result, $real, $target,
            concat!("mov ", $sp, ", rsp"),
            concat!("mov ", $fp, ", rbp"),
            "jmp {target}",
        );
    };
    ($name:ident($($arg:tt: $type:ty),*) -> $result:ty, $real:ident, $target:path) => {
        file_hook!(@ $name($($arg: $type),*) -> $result, $real, $target,
            call_with_stack!(),
        );
    };
    (@ $name:ident($($arg:tt: $type:ty),*) -> $result:ty, $real:ident, $target:path, $($lines:expr,)*) => {
        /// Interposes the function of this name.
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        pub unsafe extern "C" fn $name($($arg: $type),*) -> $result {
            ::core::arch::naked_asm!(
                ".cfi_startproc",
                "endbr64",
                "cmp dword ptr [rip + {io}], 0",
                "jne 4f",
                // Not `rax`, which has the number of vector registers for a function with `...`.
                "2:",
                "mov r11, qword ptr [rip + {real}]",
                "test r11, r11",
                "jz 3f",
                "jmp r11",
                "3:",
                "call {resolve}",
                "cmp qword ptr [rip + {real}], 0",
                "jne 2b",
                // No library defines it: the target knows what to do.
                "jmp 5f",
                "4:",
                "cmp dword ptr [rip + {passed}], 0",
                "jne 2b",
                "5:",
                $($lines,)*
                ".cfi_endproc",
                io = sym tprof_inject::state::IO,
                real = sym $crate::table::$real,
                passed = sym $crate::table::passed::$real,
                resolve = sym $crate::table::resolve_between,
                target = sym $target,
            )
        }
    };
}

mod abi;
mod agent_link;
mod calls;
mod cupti;
mod dl;
mod environment;
mod exec;
mod files;
mod heap;
mod map;
mod process;
mod python;
mod seccomp;
mod streams;
mod thread;
mod torch;
