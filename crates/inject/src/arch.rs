//! Everything that is specific to x86-64: thread-local storage, counters, system calls, and hook
//! entry points.

use core::arch::{asm, global_asm};
use core::hint::assert_unchecked;
use core::sync::atomic::AtomicUsize;
use tprof_wire::sync::{AtomicI64, AtomicU64};

// Thread-local storage in the initial-exec model takes one `mov` and one `add`. The general-dynamic
// model, which `thread_local!` uses in a cdylib, calls `__tls_get_addr` instead (3 ns per event,
// measured in C). `#[thread_local]` isn't stable, so this section is written by hand. 256 bytes fit
// into glibc's reserve of static TLS.
global_asm!(
    ".section .tbss.tprof_thread,\"awT\",@nobits",
    ".balign 64",
    ".globl tprof_thread",
    ".hidden tprof_thread",
    ".type tprof_thread, @object",
    ".size tprof_thread, 256",
    "tprof_thread:",
    ".zero 256",
    ".text",
);

/// Bytes reserved for [`crate::block::Thread`].
pub const THREAD_BYTES: usize = 256;

/// Address of this thread's zero-initialised block.
#[inline(always)]
pub fn thread_block() -> *mut u8 {
    let block: *mut u8;
    // SAFETY: reads the thread pointer and a GOT entry that the loader filled. The block lives as
    // long as the thread.
    unsafe {
        asm!(
            "mov {0}, qword ptr [rip + tprof_thread@GOTTPOFF]",
            "add {0}, qword ptr fs:[0]",
            out(reg) block,
            options(pure, nomem, nostack)
        );
    }
    block
}

/// Keeps the number in a general register, so that the compiler doesn't vectorize the arithmetic
/// that follows. Vectorized 64-bit multiplications are slower here: they cost 1.5 of 17 ns for the
/// hash of a Python frame.
#[inline(always)]
pub fn scalar(mut number: u64) -> u64 {
    // SAFETY: the template is an assembler comment, so nothing is executed.
    unsafe { asm!("/* {0} */", inout(reg) number, options(pure, nomem, nostack, preserves_flags)) };
    number
}

/// Returns [`thread_block`], and the word at this offset in the block. The word is read relative to
/// `fs`, and not by the block's address, since a task without thread-local storage of its own may
/// be unable to reach that address.
#[inline(always)]
pub fn thread_block_and_word<const OFFSET: usize>() -> (*mut u8, u64) {
    #[cfg(all(test, loom))]
    if let Some(block) = crate::models::thread_pointer().map(block_of) {
        // SAFETY: the model's thread has a whole block there.
        return (block, unsafe { block.add(OFFSET).cast::<u64>().read() });
    }
    let block: *mut u8;
    let word: u64;
    // SAFETY: callers are hooks of functions that use thread-local variables themselves, so `fs`
    // points at a thread's static TLS, of which the block is a part.
    unsafe {
        asm!(
            "mov {0}, qword ptr [rip + tprof_thread@GOTTPOFF]",
            "mov {1}, qword ptr fs:[{0} + {2}]",
            "add {0}, qword ptr fs:[0]",
            out(reg) block,
            out(reg) word,
            const OFFSET,
            options(readonly, nostack)
        );
    }
    // SAFETY: a TLS block is never at the lowest addresses, so the sum is not null.
    unsafe { assert_unchecked(!block.is_null()) };
    (block, word)
}

/// Like [`thread_block_and_word`], but returns the word's complement.
#[inline(always)]
pub fn thread_block_and_complement<const OFFSET: usize>() -> (*mut u8, u64) {
    let block: *mut u8;
    let word: u64;
    // SAFETY: the same as in `thread_block_and_word`: callers are hooks of functions that use
    // thread-local variables themselves.
    unsafe {
        asm!(
            "mov {0}, qword ptr [rip + tprof_thread@GOTTPOFF]",
            "mov {1}, qword ptr fs:[{0} + {2}]",
            "add {0}, qword ptr fs:[0]",
            "not {1}",
            out(reg) block,
            out(reg) word,
            const OFFSET,
            options(readonly, nostack)
        );
    }
    // SAFETY: a TLS block is never at the lowest addresses, so the sum is not null.
    unsafe { assert_unchecked(!block.is_null()) };
    (block, word)
}

/// Address of the block of the thread with this thread pointer.
#[inline(always)]
pub fn block_of(pointer: usize) -> *mut u8 {
    #[cfg(all(test, loom))]
    if crate::models::thread_pointer() == Some(pointer) {
        return crate::models::block_of(pointer);
    }
    let mut block = pointer;
    // SAFETY: this only reads a GOT entry that the loader filled.
    unsafe {
        asm!(
            "add {0}, qword ptr [rip + tprof_thread@GOTTPOFF]",
            inout(reg) block,
            options(pure, readonly, nostack)
        );
    }
    block as *mut u8
}

/// Reads the register `fs`, whose value is the thread pointer.
///
/// # Safety
/// The kernel allows user space to read the register (`HWCAP2_FSGSBASE`).
#[inline(always)]
pub unsafe fn thread_register() -> usize {
    let pointer: usize;
    // SAFETY: the caller guarantees that `rdfsbase` is enabled; it touches no memory.
    unsafe { asm!("rdfsbase {0}", out(reg) pointer, options(nomem, nostack, preserves_flags)) };
    pointer
}

/// The thread pointer. In glibc and musl it points into the top of the thread's own stack, except
/// for the main thread.
#[inline(always)]
pub fn thread_pointer() -> usize {
    #[cfg(all(test, loom))]
    if let Some(pointer) = crate::models::thread_pointer() {
        return pointer;
    }
    let pointer: usize;
    // SAFETY: `fs:[0]` is the thread pointer itself in the x86-64 TLS ABI.
    unsafe { asm!("mov {0}, qword ptr fs:[0]", out(reg) pointer, options(pure, nomem, nostack)) };
    pointer
}

/// Reads the time stamp counter.
#[inline(always)]
pub fn ticks() -> u64 {
    // SAFETY: `rdtsc` traps only under PR_TSC_SIGSEGV or strict seccomp; the caller has checked
    // that the thread may read the clock.
    unsafe { core::arch::x86_64::_rdtsc() }
}

/// Returns a mask with one bit for each of the 16 bytes at an address, set if the byte is zero.
///
/// # Safety
/// The address is a multiple of 16, and at least one of the 16 bytes is readable. Then all of them
/// are, since they are in one page.
#[inline(always)]
pub unsafe fn zeros(at: *const u8) -> u32 {
    let mask: u32;
    // SAFETY: the caller guarantees that the 16 bytes can be read; only the instruction reads them.
    unsafe {
        asm!(
            "pxor {bytes}, {bytes}",
            "pcmpeqb {bytes}, xmmword ptr [{at}]",
            "pmovmskb {mask:e}, {bytes}",
            at = in(reg) at,
            bytes = out(xmm_reg) _,
            mask = out(reg) mask,
            options(pure, readonly, nostack, preserves_flags)
        );
    }
    mask
}

/// Adds to a counter that only this thread writes. This takes one instruction, so that an addition
/// by a signal handler that interrupts the thread isn't lost. It is not atomic between threads.
#[inline(always)]
pub fn add_local(counter: &AtomicU64, value: u64) {
    #[cfg(all(test, loom))]
    if crate::models::is_running() {
        use tprof_wire::sync::Ordering::Relaxed;
        return counter.store(counter.load(Relaxed).wrapping_add(value), Relaxed);
    }
    // SAFETY: the address is valid for writes for as long as the reference.
    unsafe {
        asm!("add qword ptr [{0}], {1}", in(reg) counter.as_ptr(), in(reg) value, options(nostack))
    };
}

/// The same as [`add_local`], for a signed counter.
#[inline(always)]
pub fn add_local_signed(counter: &AtomicI64, value: i64) {
    #[cfg(all(test, loom))]
    if crate::models::is_running() {
        use tprof_wire::sync::Ordering::Relaxed;
        return counter.store(counter.load(Relaxed).wrapping_add(value), Relaxed);
    }
    // SAFETY: the address is valid for writes for as long as the reference.
    unsafe {
        asm!("add qword ptr [{0}], {1}", in(reg) counter.as_ptr(), in(reg) value, options(nostack))
    };
}

/// Like [`add_local`], for the word at an offset in `of`. This saves the instruction that computes
/// the word's address.
///
/// # Safety
/// There is a word at `OFFSET` in `of` that only this thread writes.
#[inline(always)]
pub unsafe fn add<const OFFSET: usize>(of: &impl Sized, value: usize) {
    // SAFETY: the caller guarantees a word at this offset that only this thread writes.
    unsafe {
        asm!("add qword ptr [{0} + {2}], {1}", in(reg) of, in(reg) value, const OFFSET, options(nostack))
    };
}

/// Subtracts where [`add`] adds.
///
/// # Safety
/// The same premises as [`add`].
#[inline(always)]
pub unsafe fn subtract<const OFFSET: usize>(of: &impl Sized, value: usize) {
    // SAFETY: the caller guarantees a word at this offset that only this thread writes.
    unsafe {
        asm!("sub qword ptr [{0} + {2}], {1}", in(reg) of, in(reg) value, const OFFSET, options(nostack))
    };
}

/// Like [`add`], with the value 1.
///
/// # Safety
/// The same premises as [`add`].
#[inline(always)]
pub unsafe fn increment<const OFFSET: usize>(of: &impl Sized) {
    // SAFETY: the caller guarantees a word at this offset that only this thread writes.
    unsafe { asm!("inc qword ptr [{0} + {1}]", in(reg) of, const OFFSET, options(nostack)) };
}

/// Subtracts from the word at an offset; returns whether the result is negative.
///
/// # Safety
/// The same premises as [`add`].
#[inline(always)]
pub unsafe fn subtract_to_negative<const OFFSET: usize>(of: &impl Sized, value: usize) -> bool {
    // SAFETY: the caller guarantees a word at this offset that only this thread writes.
    unsafe {
        asm!(
            "sub qword ptr [{0} + {2}], {1}",
            "js {3}",
            in(reg) of,
            in(reg) value,
            const OFFSET,
            label { return true },
            options(nostack)
        );
    }
    false
}

/// Advances a cursor that only this thread moves, and returns the value before. This takes one
/// instruction, so that a signal handler that interrupts the thread gets the next place and never
/// the same one. It is not atomic between threads.
#[inline(always)]
pub fn advance(cursor: &AtomicUsize, bytes: usize) -> usize {
    let mut before = bytes;
    // SAFETY: the address is valid for writes for as long as the reference; `xadd` without
    // `lock` is one instruction.
    unsafe {
        asm!("xadd qword ptr [{0}], {1}", in(reg) cursor.as_ptr(), inout(reg) before, options(nostack))
    };
    before
}

/// Prefetches a cache line for writing, since it is probably in the cache of the collector's core,
/// which read it last.
#[inline(always)]
pub fn prefetch_for_write(address: usize) {
    // SAFETY: a prefetch affects caches only, at any address.
    unsafe { asm!("prefetchw byte ptr [{0}]", in(reg) address, options(nostack, preserves_flags)) };
}

/// Makes a system call with up to six arguments; returns the kernel's value, in which errors are
/// negative.
///
/// # Safety
/// The premises of the system call.
#[inline(always)]
pub unsafe fn syscall(number: usize, a: [usize; 6]) -> isize {
    let result: isize;
    // SAFETY: the caller guarantees the call's premises; the asm follows the x86-64 Linux
    // convention, in which the kernel clobbers rcx and r11.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") number as isize => result,
            in("rdi") a[0], in("rsi") a[1], in("rdx") a[2],
            in("r10") a[3], in("r8") a[4], in("r9") a[5],
            lateout("rcx") _, lateout("r11") _,
            options(nostack)
        );
    }
    result
}

/// System call numbers.
pub mod number {
    #![allow(missing_docs)]
    pub const READ: usize = 0;
    pub const WRITE: usize = 1;
    pub const OPEN: usize = 2;
    pub const CLOSE: usize = 3;
    pub const POLL: usize = 7;
    pub const MMAP: usize = 9;
    pub const MPROTECT: usize = 10;
    pub const MUNMAP: usize = 11;
    pub const RT_SIGPROCMASK: usize = 14;
    pub const PREAD64: usize = 17;
    pub const ACCESS: usize = 21;
    pub const SCHED_YIELD: usize = 24;
    pub const MADVISE: usize = 28;
    pub const SHMCTL: usize = 31;
    pub const DUP2: usize = 33;
    pub const NANOSLEEP: usize = 35;
    pub const GETPID: usize = 39;
    pub const SOCKET: usize = 41;
    pub const CONNECT: usize = 42;
    pub const SENDMSG: usize = 46;
    pub const RECVMSG: usize = 47;
    pub const SETSOCKOPT: usize = 54;
    pub const CLONE: usize = 56;
    pub const EXECVE: usize = 59;
    pub const EXIT: usize = 60;
    pub const WAIT4: usize = 61;
    pub const KILL: usize = 62;
    pub const UNAME: usize = 63;
    pub const STAT: usize = 4;
    pub const GETSOCKOPT: usize = 55;
    pub const FSTAT: usize = 5;
    pub const GETPPID: usize = 110;
    pub const SETSID: usize = 112;
    pub const READLINK: usize = 89;
    pub const PRCTL: usize = 157;
    pub const ARCH_PRCTL: usize = 158;
    pub const GETTID: usize = 186;
    pub const FUTEX: usize = 202;
    pub const CLOCK_GETTIME: usize = 228;
    pub const FGETXATTR: usize = 193;
    pub const PRLIMIT64: usize = 302;
    pub const PROCESS_VM_READV: usize = 310;
    pub const SIGALTSTACK: usize = 131;
    pub const PIDFD_OPEN: usize = 434;
    pub const CLOSE_RANGE: usize = 436;
}

/// Offsets of the registers in a `ucontext_t`, relative to the stack pointer at a signal trampoline
/// (`uc_mcontext.gregs` begins at 40; Linux, x86-64).
pub mod ucontext {
    /// Offset of the frame pointer.
    pub const FP: usize = 40 + 8 * 10;
    /// Offset of the stack pointer.
    pub const SP: usize = 40 + 8 * 15;
    /// Offset of the program counter.
    pub const PC: usize = 40 + 8 * 16;
}

/// Defines an exported hook that jumps to a Rust function of the same ABI. The hook adds two
/// arguments: the caller's stack pointer (which points at the return address) and frame pointer.
/// With these, unwinding can begin exactly at the caller, independent of the frames that the
/// compiler puts in between. The jump leaves no frame of the hook.
#[macro_export]
macro_rules! stack_hook {
    ($(#[$doc:meta])* $name:ident($($arg:ident: $type:ty),*) -> $result:ty, $target:path, $sp:literal, $fp:literal) => {
        $(#[$doc])*
        /// # Safety
        /// The same premises as the libc function of this name.
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        pub unsafe extern "C" fn $name($($arg: $type),*) -> $result {
            ::core::arch::naked_asm!(
                "endbr64",
                concat!("mov ", $sp, ", rsp"),
                concat!("mov ", $fp, ", rbp"),
                "jmp {target}",
                target = sym $target,
            )
        }
    };
    // A private hook. Callers reach it through a table and not by its name.
    (private $(#[$doc:meta])* $name:ident($($arg:ident: $type:ty),*) -> $result:ty, $target:path, $sp:literal, $fp:literal) => {
        $(#[$doc])*
        #[unsafe(naked)]
        unsafe extern "C" fn $name($($arg: $type),*) -> $result {
            ::core::arch::naked_asm!(
                "endbr64",
                concat!("mov ", $sp, ", rsp"),
                concat!("mov ", $fp, ", rbp"),
                "jmp {target}",
                target = sym $target,
            )
        }
    };
}
