//! The functions that this library interposes, with one file for each family of functions.

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
                "mov rax, rsp",
                "sub rsp, 8",
                ".cfi_adjust_cfa_offset 8",
                "push rbp",
                ".cfi_adjust_cfa_offset 8",
                "push rax",
                ".cfi_adjust_cfa_offset 8",
                "call {target}",
                "add rsp, 24",
                ".cfi_adjust_cfa_offset -24",
                "ret",
                ".cfi_endproc",
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
