//! Hooks of the functions that start, name and end threads.

use crate::real;
use core::arch::naked_asm;
use core::ffi::{c_char, c_int, c_void};
use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering::*};
use tprof_inject::block::Thread;
use tprof_inject::{gate, lifecycle, operators, thread_notes};

/// A start routine and its argument, which the hook passes to the new thread.
struct Start {
    /// 0 if the entry is free, 1 while it is being filled, 2 if it is filled.
    state: AtomicU32,
    creator: AtomicU32,
    routine: AtomicUsize,
    argument: AtomicUsize,
}

/// Maximum number of threads that are created and have not run their first instruction yet. Further
/// threads start without [`thread_main`], and are noticed at their first event.
const STARTS: usize = 256;
static STARTING: [Start; STARTS] = [const {
    Start {
        state: AtomicU32::new(0),
        creator: AtomicU32::new(0),
        routine: AtomicUsize::new(0),
        argument: AtomicUsize::new(0),
    }
}; STARTS];

/// Interposes libc's `pthread_create`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_create(
    out: *mut usize,
    attributes: *const c_void,
    routine: usize,
    argument: *mut c_void,
) -> c_int {
    let start = gate::recording().and_then(|thread| claim(thread, routine, argument as usize));
    let (routine, argument) = match start {
        Some(start) => {
            (thread_main as *const () as usize, (start as *const Start).cast_mut().cast())
        }
        None => (routine, argument),
    };
    let error = real!(PTHREAD_CREATE(out, attributes, routine, argument) as fn(*mut usize, *const c_void, usize, *mut c_void) -> c_int, else 11);
    if error != 0
        && let Some(start) = start
    {
        start.state.store(0, Release);
    }
    error
}

fn claim(thread: &Thread, routine: usize, argument: usize) -> Option<&'static Start> {
    let start =
        STARTING.iter().find(|s| s.state.compare_exchange(0, 1, AcqRel, Relaxed).is_ok())?;
    start.routine.store(routine, Relaxed);
    start.argument.store(argument, Relaxed);
    start.creator.store(thread.tid.get(), Relaxed);
    start.state.store(2, Release);
    Some(start)
}

#[repr(C)]
struct Call {
    routine: usize,
    argument: usize,
}

/// The first function of a new thread, which calls the start routine. It is in assembly with unwind
/// information, so that exceptions, cancellation and `pthread_exit` can unwind through it.
#[unsafe(naked)]
unsafe extern "C" fn thread_main(_start: *mut c_void) -> *mut c_void {
    naked_asm!(
        ".cfi_startproc",
        "endbr64",
        "push rbp",
        ".cfi_def_cfa_offset 16",
        ".cfi_offset rbp, -16",
        "mov rbp, rsp",
        ".cfi_def_cfa_register rbp",
        "sub rsp, 16",
        "call {begin}",
        "mov rdi, rdx",
        "call rax",
        "mov [rbp - 8], rax",
        "call {end}",
        "mov rax, [rbp - 8]",
        "leave",
        ".cfi_def_cfa rsp, 8",
        "ret",
        ".cfi_endproc",
        begin = sym begin,
        end = sym end,
    )
}

extern "C" fn begin(start: *const Start) -> Call {
    // SAFETY: the hook of `pthread_create` passed an entry of the static STARTING, which it had
    // claimed.
    let start = unsafe { &*start };
    let call =
        Call { routine: start.routine.load(Relaxed), argument: start.argument.load(Relaxed) };
    // SAFETY: libc has started this thread, so it has libc's thread-local storage.
    unsafe { Thread::here() }.creator.set(start.creator.load(Relaxed));
    start.state.store(0, Release);
    let _ = gate::recording();
    call
}

extern "C" fn end() {
    // SAFETY: libc has started this thread, so it has libc's thread-local storage.
    let thread = unsafe { Thread::here() };
    thread_notes::ended(thread);
    operators::ended(thread);
}

/// Interposes libc's `pthread_exit`. The hook jumps to the real function, so that the forced
/// unwinding finds no frame of this library.
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub unsafe extern "C" fn pthread_exit(_: *mut c_void) -> ! {
    naked_asm!(
        ".cfi_startproc",
        "endbr64",
        "push rdi",
        ".cfi_adjust_cfa_offset 8",
        "call {leave}",
        "pop rdi",
        ".cfi_adjust_cfa_offset -8",
        "jmp rax",
        ".cfi_endproc",
        leave = sym leaving,
    )
}

/// Records the thread's end. Returns the address of the real `pthread_exit`, to which the hook
/// jumps.
extern "C" fn leaving() -> usize {
    end();
    crate::table::address(&crate::table::PTHREAD_EXIT)
}

/// Interposes libc's `pthread_setname_np`. Only a thread that names itself is recorded, which is
/// recognised by the thread pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_setname_np(thread: usize, name: *const c_char) -> c_int {
    let error = real!(PTHREAD_SETNAME(thread, name) as fn(usize, *const c_char) -> c_int, else 38);
    if error == 0 && thread == tprof_inject::arch::thread_pointer() {
        lifecycle::thread_renamed();
    }
    error
}
