//! Makes system calls directly: without libc's functions, which may be interposed, without `errno`,
//! and without allocation.

use crate::arch::{number as n, syscall};

/// The values of flags that these system calls need.
pub mod flags {
    #![allow(missing_docs)]
    pub const PROT_NONE: usize = 0;
    pub const PROT_READ: usize = 1;
    pub const PROT_WRITE: usize = 2;
    pub const MAP_SHARED: usize = 1;
    pub const MAP_PRIVATE: usize = 2;
    pub const MAP_ANONYMOUS: usize = 0x20;
    pub const MAP_NORESERVE: usize = 0x4000;
    pub const MADV_DONTDUMP: usize = 16;
    pub const MADV_WIPEONFORK: usize = 18;
    pub const IPC_STAT: usize = 2;
    /// `O_WRONLY`, `O_CREAT`, `O_APPEND`, `O_CLOEXEC`
    pub const APPEND: usize = 0o1 | 0o100 | 0o2000 | 0o2000000;
    pub const MADV_POPULATE_WRITE: usize = 23;
}

macro_rules! call {
    ($number:expr $(, $a:expr)*) => {{
        let mut arguments = [0usize; 6];
        let given = [$($a as usize),*];
        let mut i = 0;
        while i < given.len() && i < 6 {
            arguments[i] = given[i];
            i += 1;
        }
        // SAFETY: the kernel writes only to variables of the wrappers in this file, which have the
        // right sizes. It refuses bad addresses that it only reads. Wrappers of calls that change
        // mappings are `unsafe` and have premises of their own.
        unsafe { syscall($number, arguments) }
    }};
}

pub mod socket;

/// Maps new anonymous, private, zeroed memory; `None` if the kernel refuses.
pub fn map_anonymous(bytes: usize) -> Option<*mut u8> {
    map(
        bytes,
        flags::PROT_READ | flags::PROT_WRITE,
        flags::MAP_PRIVATE | flags::MAP_ANONYMOUS | flags::MAP_NORESERVE,
        -1,
    )
}

/// Maps `bytes` of `fd` from its beginning; `None` if the kernel refuses.
pub fn map(bytes: usize, protection: usize, how: usize, fd: i32) -> Option<*mut u8> {
    let at = call!(n::MMAP, 0, bytes, protection, how, fd as isize, 0);
    (!is_error(at)).then_some(at as *mut u8)
}

/// Unmaps this memory.
///
/// # Safety
/// Nothing uses the range any more.
pub unsafe fn unmap(at: *mut u8, bytes: usize) {
    call!(n::MUNMAP, at, bytes);
}

/// Calls `madvise`. Returns 0, or a negative error.
///
/// # Safety
/// The range is in tprof's own mappings. The users of the memory expect what the advice does to its
/// contents, now or in a forked child.
pub unsafe fn advise(at: *mut u8, bytes: usize, advice: usize) -> isize {
    call!(n::MADVISE, at, bytes, advice)
}

/// Changes the protection of a range. Returns whether the kernel did so.
///
/// # Safety
/// The range is in tprof's own mappings, and no thread uses it in a way that the new protection
/// forbids.
pub unsafe fn protect(at: *mut u8, bytes: usize, protection: usize) -> bool {
    call!(n::MPROTECT, at, bytes, protection) == 0
}

/// Blocks all signals for this thread. Returns the mask to restore.
#[inline]
pub fn block_signals() -> u64 {
    let all = !0u64;
    let mut before = 0u64;
    call!(n::RT_SIGPROCMASK, 2, &raw const all, &raw mut before, 8);
    before
}

/// Restores the mask that [`block_signals`] returned.
#[inline]
pub fn restore_signals(mask: u64) {
    call!(n::RT_SIGPROCMASK, 2, &raw const mask, 0, 8);
}

/// The error of a call that was passed an address where nothing can be read.
pub const EFAULT: isize = -14;

/// Whether eight bytes at `address` can be read. The system call has an invalid operation, but the
/// kernel copies the signal mask before it checks the operation. So the result is EFAULT or EINVAL,
/// nothing changes, and there is never a fault.
pub fn is_readable(address: usize) -> bool {
    // A null set means to the kernel that none was passed, so it would not be read.
    address >= 4096 && call!(n::RT_SIGPROCMASK, usize::MAX, address, 0, 8) != EFAULT
}

/// Returns the lowest address of the alternate stack of signal handlers, if this thread runs on it.
pub fn alternate_stack() -> Option<usize> {
    const SS_ONSTACK: usize = 1;
    // A `stack_t`: the address, flags of four bytes, the size.
    let mut stack = [0usize; 3];
    let status = call!(n::SIGALTSTACK, 0, stack.as_mut_ptr());
    let [first, flags, _] = stack;
    (status == 0 && flags & SS_ONSTACK != 0).then_some(first)
}

/// Whether a seccomp filter applies to this thread.
pub fn is_filtered() -> bool {
    const PR_GET_SECCOMP: usize = 21;
    call!(n::PRCTL, PR_GET_SECCOMP) != 0
}

/// Reads words of a process's memory. Returns the number of bytes that were read before the first
/// that doesn't exist, or a negative error.
pub fn read_memory(pid: u32, at: u64, into: &mut [u64]) -> isize {
    let bytes = size_of_val(into);
    let local = [into.as_mut_ptr() as usize, bytes];
    let remote = [at as usize, bytes];
    call!(n::PROCESS_VM_READV, pid, local.as_ptr(), 1, remote.as_ptr(), 1, 0)
}

/// Reads blocks of one size from a process's memory by one system call. Returns the number of
/// blocks before the first one that can't be read.
pub fn read_blocks<const WORDS: usize, const MOST: usize>(
    pid: u32,
    starts: &[u64],
    into: &mut [[u64; WORDS]; MOST],
) -> usize {
    let bytes = WORDS * 8;
    let mut remote = [[0usize; 2]; MOST];
    let mut count = 0;
    for (place, start) in remote.iter_mut().zip(starts) {
        *place = [*start as usize, bytes];
        count += 1;
    }
    let local = [into.as_mut_ptr() as usize, count * bytes];
    let got = call!(n::PROCESS_VM_READV, pid, local.as_ptr(), 1, remote.as_ptr(), count, 0);
    got.max(0) as usize / bytes
}

/// This process's id.
pub fn pid() -> u32 {
    call!(n::GETPID) as u32
}
/// The parent's process id.
pub fn parent_pid() -> u32 {
    call!(n::GETPPID) as u32
}
/// The thread pointer, read by `arch_prctl`; 0 if that fails.
pub fn thread_register(get_fs: usize) -> usize {
    let mut pointer = 0usize;
    call!(n::ARCH_PRCTL, get_fs, &raw mut pointer);
    pointer
}
/// This thread's id.
pub fn tid() -> u32 {
    #[cfg(all(test, loom))]
    if let Some(tid) = crate::models::tid() {
        return tid;
    }
    call!(n::GETTID) as u32
}
/// Lets other threads run.
pub fn yield_now() {
    #[cfg(all(test, loom))]
    if crate::models::is_running() {
        return tprof_wire::sync::spin_loop();
    }
    call!(n::SCHED_YIELD);
}
/// Closes a descriptor.
pub fn close(fd: i32) {
    call!(n::CLOSE, fd);
}
/// Sleeps for `ns` nanoseconds.
pub fn sleep_ns(ns: u64) {
    #[cfg(all(test, loom))]
    if crate::models::is_running() {
        return tprof_wire::sync::spin_loop();
    }
    let time = [ns / 1_000_000_000, ns % 1_000_000_000];
    call!(n::NANOSLEEP, time.as_ptr(), 0);
}

/// Whether the address space of this process is limited.
pub fn address_space_is_limited() -> bool {
    const RLIMIT_AS: usize = 9;
    let mut limit = [u64::MAX; 2];
    call!(n::PRLIMIT64, 0, RLIMIT_AS, 0, limit.as_mut_ptr());
    limit[0] != u64::MAX
}

/// CLOCK_MONOTONIC, read by a real system call, for code that may not use the vDSO.
pub fn monotonic_ns() -> u64 {
    let mut time = [0u64; 2];
    call!(n::CLOCK_GETTIME, 1, time.as_mut_ptr());
    time[0] * 1_000_000_000 + time[1]
}

/// Wakes up to `count` threads that wait on a futex, in any process that shares it.
pub fn futex_wake(word: *const u32, count: u32) {
    call!(n::FUTEX, word, 1, count);
}

/// Waits on a futex, which processes may share, while it has this value, for at most `ns`.
pub fn futex_wait(word: *const u32, value: u32, ns: u64) {
    #[cfg(all(test, loom))]
    if crate::models::is_running() {
        return tprof_wire::sync::spin_loop();
    }
    let time = [ns / 1_000_000_000, ns % 1_000_000_000];
    call!(n::FUTEX, word, 0, value, time.as_ptr());
}

/// Opens a file for reading, close-on-exec. Returns the descriptor or a negative error.
pub fn open_read(path: *const u8) -> isize {
    // With these flags, opening a FIFO or a device doesn't block the caller.
    const FLAGS: usize = 0o2000000 | 0o4000 | 0o400; // O_CLOEXEC | O_NONBLOCK | O_NOCTTY
    call!(n::OPEN, path, FLAGS, 0)
}

/// Opens a file for reading and writing. Returns the descriptor or a negative error.
pub fn open_read_write(path: *const u8) -> isize {
    call!(n::OPEN, path, 2, 0)
}

/// Appends to a file. If the file doesn't exist, creates it with access for its owner only. Returns
/// false if the kernel refuses. Leaves no descriptor open.
pub fn append(path: *const u8, parts: &[&[u8]]) -> bool {
    let fd = call!(n::OPEN, path, flags::APPEND, 0o600);
    if is_error(fd) {
        return false;
    }
    let mut whole = true;
    for part in parts {
        let mut left = *part;
        while whole && !left.is_empty() {
            let done = call!(n::WRITE, fd, left.as_ptr(), left.len());
            whole = done > 0;
            left = left.get(done.max(0) as usize..).unwrap_or_default();
        }
    }
    close(fd as i32);
    whole
}

/// Reads from a file at an offset. Returns the number of bytes, or a negative error.
pub fn read_at(fd: i32, buffer: &mut [u8], offset: u64) -> isize {
    call!(n::PREAD64, fd, buffer.as_mut_ptr(), buffer.len(), offset)
}

/// File mode of an open file (`st_mode`); `None` on an error.
pub fn mode_of(fd: i32) -> Option<u32> {
    let mut stat = [0u32; 36]; // struct stat: 144 bytes, st_mode at 24
    let result = call!(n::FSTAT, fd, stat.as_mut_ptr());
    (result == 0).then_some(stat[6])
}

/// Bytes of a System V segment; `None` on an error.
pub fn segment_bytes(id: i32) -> Option<usize> {
    let mut segment = [0usize; 14]; // struct shmid_ds: 112 bytes, shm_segsz at 48
    let result = call!(n::SHMCTL, id, flags::IPC_STAT, segment.as_mut_ptr());
    (result == 0).then_some(segment[6])
}

/// Whether an open file has capabilities. Then the loader ignores LD_PRELOAD for it.
pub fn has_capabilities(fd: i32) -> bool {
    call!(n::FGETXATTR, fd, c"security.capability".as_ptr(), 0, 0) > 0
}

/// Target of a symbolic link; `None` if `path` isn't a link, or if the target doesn't fit into
/// `into`.
pub fn link_target<'a>(path: &core::ffi::CStr, into: &'a mut [u8]) -> Option<&'a [u8]> {
    let bytes = call!(n::READLINK, path.as_ptr(), into.as_mut_ptr(), into.len());
    into.get(..usize::try_from(bytes).ok()?).filter(|target| target.len() < into.len())
}

/// Whether the caller's real ids may execute `path`.
pub fn may_execute(path: *const u8) -> bool {
    call!(n::ACCESS, path, 1) == 0
}

/// Whether the caller's real ids may read and write `path`.
pub fn may_use(path: *const u8) -> bool {
    call!(n::ACCESS, path, 6) == 0
}

/// Whether a process has ended, even if it was not reaped yet. Returns false if the kernel (before
/// 5.3) can't tell.
pub fn has_ended(pid: u32) -> bool {
    const ESRCH: isize = -3;
    const POLLIN: u64 = 1;
    let fd = call!(n::PIDFD_OPEN, pid, 0);
    if is_error(fd) {
        return fd == ESRCH;
    }
    // struct pollfd: descriptor, requested events, returned events
    let mut asked = fd as u64 | POLLIN << 32;
    let ended = call!(n::POLL, &raw mut asked, 1, 0) == 1;
    close(fd as i32);
    ended
}

/// Whether no process has this id. Unlike [`has_ended`], this opens no descriptor.
pub fn is_gone(pid: u32) -> bool {
    const ESRCH: isize = -3;
    call!(n::KILL, pid, 0) == ESRCH
}

/// Modification time of a file, as seconds and nanoseconds; `None` if the file doesn't exist.
pub fn changed_at(path: *const u8) -> Option<[u64; 2]> {
    let mut stat = [0u64; 18]; // struct stat: 144 bytes, st_mtim at 88
    let result = call!(n::STAT, path, stat.as_mut_ptr());
    (result == 0).then_some([stat[11], stat[12]])
}

/// Whether the caller's real ids may read the file at `path`.
pub fn is_there(path: *const u8) -> bool {
    call!(n::ACCESS, path, 4) == 0
}

/// Sets this thread's name.
pub fn name_thread(name: &core::ffi::CStr) {
    call!(n::PRCTL, 15, name.as_ptr());
}

/// This thread's name.
pub fn thread_name() -> [u8; 16] {
    let mut name = [0u8; 16];
    call!(n::PRCTL, 16, name.as_mut_ptr());
    name
}

/// The host's name, from `uname` (NUL padded).
pub fn host_name() -> [u8; 65] {
    let mut all = [0u8; 65 * 6];
    let mut host = [0u8; 65];
    if call!(n::UNAME, all.as_mut_ptr()) == 0 {
        host.copy_from_slice(&all[65..130]);
    }
    host
}

/// Whether a system call's result is an error.
#[inline(always)]
pub fn is_error(result: isize) -> bool {
    (-4095..0).contains(&result)
}
