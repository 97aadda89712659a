//! Hooks of the functions of CUDA's runtime and driver, NCCL, cuBLAS, MPI and PyTorch. All hooks
//! share the same code, independent of the functions' arguments.
//!
//! The hook saves the argument registers, looks up the real function, copies the arguments in
//! memory, and calls the function. It doesn't need the arguments' types, since no intercepted
//! function takes or returns a floating-point value.

use super::cupti;
use core::arch::naked_asm;
use tprof_inject::call_args::Frame;
use tprof_inject::calls::{self, Before};
use tprof_inject::{callee, entry_points, mpi};
use tprof_wire::calls::{Effect, FUNCTIONS, Function, Library, Number};

/// What a runtime or driver call returns if no library has the function:
/// `cudaErrorSharedObjectInitFailed`. The runtime itself returns this for a library that could not
/// be loaded.
const NO_RUNTIME: u64 = 303;
/// What an NCCL call returns then: `ncclSystemError`.
const NO_NCCL: u64 = 2;
/// What a cuBLAS call returns then: `CUBLAS_STATUS_NOT_INITIALIZED`.
const NO_CUBLAS: u64 = 1;
/// What an MPI call returns then, which is a code for no specific error: `MPI_ERR_OTHER` of Open
/// MPI, `MPI_ERR_INTERN` of MPICH.
const NO_MPI: u64 = 16;

/// Defines the table of hooks; the index is the function's number.
macro_rules! addresses {
    ($($name:ident $words:literal,)*) => {
        static HOOKS: &[unsafe extern "C" fn()] = &[$($name),*];
    };
}
tprof_wire::intercepted_functions!(addresses);

macro_rules! hooks {
    ($($name:ident $words:literal,)*) => {$(
        /// Interposes the function of this name.
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        pub unsafe extern "C" fn $name() {
            naked_asm!(
                ".cfi_startproc",
                "endbr64",
                "push rbp",
                ".cfi_adjust_cfa_offset 8",
                ".cfi_rel_offset rbp, 0",
                "mov rbp, rsp",
                ".cfi_def_cfa_register rbp",
                // The stack now has a `Frame`: space for two words and the six registers is
                // reserved below, and the saved rbp and the return address are there already.
                "sub rsp, 64",
                "mov [rbp - 48], rdi",
                "mov [rbp - 40], rsi",
                "mov [rbp - 32], rdx",
                "mov [rbp - 24], rcx",
                "mov [rbp - 16], r8",
                "mov [rbp - 8], r9",
                "mov edi, {number}",
                "mov rsi, rsp",
                "call {enter}",
                "test rax, rax",
                "jz 2f",
                "mov r11, rax",
                "mov rdi, [rbp - 48]",
                "mov rsi, [rbp - 40]",
                "mov rdx, [rbp - 32]",
                "mov rcx, [rbp - 24]",
                "mov r8, [rbp - 16]",
                "mov r9, [rbp - 8]",
                "xor eax, eax",
                "cmp [rbp - 56], rax",
                "jne 3f",
                // Nothing is left to do after the call, so the function returns to the caller.
                ".cfi_remember_state",
                "leave",
                ".cfi_def_cfa rsp, 8",
                "jmp r11",
                ".cfi_restore_state",
                "3:",
                // Each word is as far from rsp as the one before it.
                "sub rsp, {padding}",
                ".rept {words}",
                "push qword ptr [rsp + {last}]",
                ".endr",
                "call r11",
                "mov [rbp - 56], rax",
                "mov edi, {number}",
                "lea rsi, [rbp - 64]",
                "call {leave}",
                "2:",
                "mov rax, [rbp - 56]",
                "leave",
                ".cfi_def_cfa rsp, 8",
                "ret",
                ".cfi_endproc",
                number = const Number::$name as u32,
                words = const $words,
                // The stack stays aligned to 16 bytes.
                padding = const $words % 2 * 8,
                // The offset of the last argument in memory.
                last = const size_of::<Frame>() + $words % 2 * 8 + $words * 8 - 8,
                enter = sym enter,
                leave = sym leave,
            )
        }
    )*};
}
tprof_wire::intercepted_functions!(hooks);

/// Returns the address of the real function. If no library has it, returns 0 and stores the call's
/// result in the frame. Otherwise the frame's result says whether [`leave`] must be called.
extern "C" fn enter(number: u32, frame: *mut Frame) -> usize {
    // SAFETY: the hook passes its own frame, which nothing else uses during the call.
    let frame = unsafe { &mut *frame };
    let mut real = match FUNCTIONS.get(number as usize) {
        Some(Function { library: Library::Driver, .. }) => entry_points::given(number),
        _ => 0,
    };
    if real == 0 {
        real = callee::known(frame.caller(), number);
    }
    let before = if real == 0 { Before::Enter } else { calls::enter_quickly(number, frame) };
    if before == Before::Enter {
        return enter_slowly(number, frame, real);
    }
    frame.set_result((before == Before::Noted).into());
    real
}

/// Does what [`enter`] does for a call whose function is not known yet (`real` is 0), or that needs
/// more than most.
#[inline(never)]
fn enter_slowly(number: u32, frame: &mut Frame, real: usize) -> usize {
    let Some(function) = FUNCTIONS.get(number as usize) else { return 0 };
    let real = if real == 0 { find(number, function, frame) } else { real };
    if real == 0 {
        return 0;
    }
    if let Effect::Resets { .. } | Effect::Ends = function.does {
        cupti::flush();
    }
    let leaves = calls::enter(number, frame);
    frame.set_result(leaves.into());
    real
}

/// Searches the real function. If there is none, returns 0 and stores the call's result in the frame.
#[cold]
#[inline(never)]
fn find(number: u32, function: &'static Function, frame: &mut Frame) -> usize {
    let name = function.name.with_end();
    let (prefix, none): (&[u8], u64) = match function.library {
        Library::Runtime => (b"libcudart.so", NO_RUNTIME),
        Library::Driver => (b"libcuda.so", NO_RUNTIME),
        Library::Nccl => (b"libnccl.so", NO_NCCL),
        Library::Cublas => (b"libcublas.so", NO_CUBLAS),
        Library::CublasLt => (b"libcublasLt.so", NO_CUBLAS),
        Library::Mpi => (mpi::LIBRARY, NO_MPI),
        // These functions return nothing.
        Library::Torch => (b"libc10.so", 0),
    };
    let own = (&raw const HOOKS) as usize;
    let real = match (function.does, function.library) {
        (Effect::Registers, _) => callee::find_by_page(name, number, frame.caller(), prefix, own),
        // Tools wrap MPI's functions under their own names, so the next definition may be a
        // wrapper, which must be called.
        (_, Library::Mpi) => callee::find_next(name, number, frame.caller(), prefix, own),
        _ => callee::find(name, number, frame.caller(), prefix, own),
    };
    if real == 0 {
        frame.set_result(none);
    }
    real
}

extern "C" fn leave(number: u32, frame: *const Frame) {
    // SAFETY: the hook passes its own frame, which nothing else uses during the call.
    let frame = unsafe { &*frame };
    if let Some(Effect::Finds) = FUNCTIONS.get(number as usize).map(|function| function.does) {
        entry_points::replace(frame, |number| HOOKS.get(number).map(|hook| *hook as usize));
    }
    calls::leave(number, frame);
}
