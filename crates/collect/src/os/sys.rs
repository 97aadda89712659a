//! System calls that the standard library lacks, each behind a safe function.
#![allow(unsafe_code)] // this file's purpose; nothing else in the crate but `shared` needs it

pub use super::socket::{
    accept, connect, is_hung_up, listen, peer, receive, send, set_timeout, user,
};

use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use std::sync::atomic::AtomicU32;
use std::time::Duration;

pub(super) fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

pub(super) fn own(fd: libc::c_int) -> io::Result<OwnedFd> {
    let fd = check(fd)?;
    // SAFETY: a descriptor that a system call just returned, owned by nobody else.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// An anonymous file of `bytes`, sealed against shrinking and growing.
pub fn memfd(name: &str, bytes: usize) -> io::Result<OwnedFd> {
    let name = CString::new(name)?;
    // SAFETY: a valid string; the flags are the call's own.
    let fd = own(unsafe {
        libc::memfd_create(name.as_ptr(), libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING)
    })?;
    // SAFETY: a descriptor of ours.
    check(unsafe { libc::ftruncate(fd.as_raw_fd(), bytes as libc::off_t) })?;
    let seals = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;
    // SAFETY: a descriptor of ours.
    check(unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_ADD_SEALS, seals) })?;
    Ok(fd)
}

/// Reserves the first `bytes` of a memfd, so that writing to them cannot fail.
pub fn reserve(fd: &OwnedFd, bytes: usize) -> io::Result<()> {
    // SAFETY: a descriptor of ours.
    check(unsafe { libc::fallocate(fd.as_raw_fd(), 0, 0, bytes as libc::off_t) }).map(drop)
}

/// A descriptor that becomes readable when the process ends.
pub fn pidfd(pid: u32) -> io::Result<OwnedFd> {
    // SAFETY: plain call.
    own(unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) } as libc::c_int)
}

/// The wait status of a process that ended, where the kernel still tells
/// (PIDFD_GET_INFO with PIDFD_INFO_EXIT, Linux 6.15).
pub fn exit_status(pidfd: &OwnedFd) -> Option<i32> {
    #[repr(C)]
    #[derive(Default)]
    struct Info {
        mask: u64,
        cgroup: u64,
        ids: [u32; 11],
        exit_code: i32,
    }
    const _: () = assert!(size_of::<Info>() == 64);
    const EXIT: u64 = 1 << 3;
    const GET_INFO: libc::c_ulong = 0xc000_ff0b | (size_of::<Info>() as libc::c_ulong) << 16;
    let mut info = Info { mask: EXIT, ..Info::default() };
    // SAFETY: the ioctl carries the struct's size and writes no more than that.
    let result = unsafe { libc::ioctl(pidfd.as_raw_fd(), GET_INFO, &raw mut info) };
    (result == 0 && info.mask & EXIT != 0).then_some(info.exit_code)
}

/// Whether a thread of a process is still there (as this namespace numbers them).
pub fn thread_lives(pid: u32, tid: u32) -> bool {
    // SAFETY: signal 0 is never delivered.
    let result = unsafe { libc::syscall(libc::SYS_tgkill, pid, tid, 0) };
    result == 0 || io::Error::last_os_error().raw_os_error() != Some(libc::ESRCH)
}

/// Sleeps on a shared futex while it holds `value`.
pub fn futex_wait(word: &AtomicU32, value: u32, time: Duration) {
    let limit = libc::timespec {
        tv_sec: time.as_secs() as libc::time_t,
        tv_nsec: time.subsec_nanos().into(),
    };
    // SAFETY: `word` is valid; the kernel only reads it.
    unsafe {
        libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAIT, value, &raw const limit)
    };
}

/// Wakes everyone who sleeps on a shared futex.
pub fn futex_wake(word: &AtomicU32) {
    // SAFETY: `word` is valid.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE, i32::MAX) };
}

/// CLOCK_MONOTONIC in nanoseconds.
pub fn monotonic_ns() -> u64 {
    clock_ns(libc::CLOCK_MONOTONIC)
}

/// CLOCK_BOOTTIME in nanoseconds.
pub fn boottime_ns() -> u64 {
    clock_ns(libc::CLOCK_BOOTTIME)
}

/// CPU time of this process so far, ns.
pub fn cpu_ns() -> u64 {
    clock_ns(libc::CLOCK_PROCESS_CPUTIME_ID)
}

/// CPU time of this thread so far, ns.
pub fn thread_cpu_ns() -> u64 {
    clock_ns(libc::CLOCK_THREAD_CPUTIME_ID)
}

fn clock_ns(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is valid.
    unsafe { libc::clock_gettime(clock, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// CPU time of children that were waited for, theirs included.
pub fn children_cpu_ns() -> u64 {
    // SAFETY: all-zero is a valid rusage, and it is valid for writes.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_CHILDREN, &raw mut usage);
        usage
    };
    let ns = |t: libc::timeval| t.tv_sec as u64 * 1_000_000_000 + t.tv_usec as u64 * 1000;
    ns(usage.ru_utime) + ns(usage.ru_stime)
}

/// CPU time of another process, its threads that have ended included; `None` if it is
/// gone.
pub fn process_clock_ns(pid: u32) -> Option<u64> {
    let (mut clock, mut time) = (0, libc::timespec { tv_sec: 0, tv_nsec: 0 });
    // SAFETY: both point at live variables of the types that are written.
    let got = unsafe {
        libc::clock_getcpuclockid(pid as libc::pid_t, &raw mut clock) == 0
            && libc::clock_gettime(clock, &raw mut time) == 0
    };
    got.then(|| time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}

/// Time stamp counter.
pub fn ticks() -> u64 {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every x86-64 has it; this process has not turned it off.
    unsafe {
        std::arch::x86_64::_rdtsc()
    }
    #[cfg(not(target_arch = "x86_64"))]
    monotonic_ns()
}

/// Host name.
pub fn host_name() -> String {
    let mut buffer = [0u8; 256];
    // SAFETY: `buffer` is valid for its length.
    unsafe { libc::gethostname(buffer.as_mut_ptr().cast(), buffer.len() - 1) };
    let len = buffer.iter().position(|b| *b == 0).unwrap_or(0);
    String::from_utf8_lossy(&buffer[..len]).into_owned()
}

/// Raises the soft limit of open files as far as it goes: one per live process is held.
pub fn raise_file_limit() {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is valid.
    unsafe {
        if libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) == 0 {
            limit.rlim_cur = limit.rlim_max.min(1 << 20);
            libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit);
        }
    }
}

/// Makes a directory of random name below `parent`, 0700.
pub fn make_private_directory(parent: &Path, prefix: &str) -> io::Result<std::path::PathBuf> {
    let mut template = parent.join(format!("{prefix}XXXXXX")).into_os_string().as_bytes().to_vec();
    template.push(0);
    // SAFETY: a NUL-terminated template of ours, rewritten in place.
    let made = unsafe { libc::mkdtemp(template.as_mut_ptr().cast()) };
    if made.is_null() {
        return Err(io::Error::last_os_error());
    }
    template.pop();
    Ok(std::ffi::OsString::from_vec(template).into())
}

/// Takes the first `bytes` of a file from the disk.
pub fn allocate(fd: &OwnedFd, bytes: u64) -> io::Result<()> {
    // SAFETY: a descriptor of ours.
    match unsafe { libc::posix_fallocate(fd.as_raw_fd(), 0, bytes as libc::off_t) } {
        0 => Ok(()),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}

/// Sets a file's times to now.
pub fn touch(path: &Path) -> io::Result<()> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    // SAFETY: a valid string; null stands for now.
    check(unsafe { libc::utimensat(libc::AT_FDCWD, path.as_ptr(), std::ptr::null(), 0) }).map(drop)
}

/// Renames without replacing anything.
pub fn rename_new(from: &Path, to: &Path) -> io::Result<()> {
    let (from, to) =
        (CString::new(from.as_os_str().as_bytes())?, CString::new(to.as_os_str().as_bytes())?);
    // SAFETY: two valid strings.
    check(unsafe {
        libc::syscall(
            libc::SYS_renameat2,
            libc::AT_FDCWD,
            from.as_ptr(),
            libc::AT_FDCWD,
            to.as_ptr(),
            libc::RENAME_NOREPLACE,
        )
    } as libc::c_int)
    .map(drop)
}

/// An epoll instance with a token per descriptor.
pub struct Poller {
    fd: OwnedFd,
}

impl Poller {
    /// A new one.
    pub fn new() -> io::Result<Poller> {
        // SAFETY: plain call.
        Ok(Poller { fd: own(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) })? })
    }

    /// Watches `fd` for input, always or until it is told `once`. It leaves the
    /// set when it is closed.
    pub fn add(&self, fd: &OwnedFd, token: u64, once: bool) -> io::Result<()> {
        let once = if once { libc::EPOLLONESHOT as u32 } else { 0 };
        let mut event = libc::epoll_event { events: libc::EPOLLIN as u32 | once, u64: token };
        // SAFETY: `event` is valid.
        check(unsafe {
            libc::epoll_ctl(
                self.fd.as_raw_fd(),
                libc::EPOLL_CTL_ADD,
                fd.as_raw_fd(),
                &raw mut event,
            )
        })
        .map(drop)
    }

    /// Tokens that became ready within `time`.
    pub fn wait(&self, time: Duration) -> Vec<u64> {
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; 64];
        let ms = time.as_millis().min(i32::MAX as u128) as libc::c_int;
        // SAFETY: the array is valid for its length.
        let got = unsafe { libc::epoll_wait(self.fd.as_raw_fd(), events.as_mut_ptr(), 64, ms) };
        events.iter().take(got.max(0) as usize).map(|e| e.u64).collect()
    }
}

/// A descriptor that one thread writes to wake another from a poll.
pub fn eventfd() -> io::Result<OwnedFd> {
    // SAFETY: no pointers.
    let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a fresh descriptor that nothing else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Wakes whoever polls an [`eventfd`].
pub fn signal_eventfd(fd: RawFd) {
    let one = 1u64.to_ne_bytes();
    // SAFETY: writes eight live bytes; a full counter wakes as well.
    unsafe { libc::write(fd, one.as_ptr().cast(), one.len()) };
}

/// Takes the wake-ups off an [`eventfd`].
pub fn clear_eventfd(fd: RawFd) {
    let mut count = [0u8; 8];
    // SAFETY: room for the eight bytes that it gives; it does not block.
    unsafe { libc::read(fd, count.as_mut_ptr().cast(), count.len()) };
}

/// Waits until one of these can be read; whether each has hung up.
pub fn poll_readable(fds: &[RawFd], time: Duration) -> Vec<bool> {
    let poll = |fd: &RawFd| libc::pollfd { fd: *fd, events: libc::POLLIN, revents: 0 };
    let mut polled: Vec<_> = fds.iter().map(poll).collect();
    // To the nanosecond: whole milliseconds would make a shorter wait none at all.
    let time = libc::timespec {
        tv_sec: time.as_secs() as libc::time_t,
        tv_nsec: time.subsec_nanos().into(),
    };
    // SAFETY: points at live entries, as many as are told, and at a live time.
    unsafe {
        libc::ppoll(polled.as_mut_ptr(), polled.len() as _, &raw const time, std::ptr::null());
    }
    polled.iter().map(|p| p.revents & (libc::POLLHUP | libc::POLLERR) != 0).collect()
}

/// Reads memory of another process; how many bytes could be read from the front.
pub fn read_memory(pid: u32, address: u64, into: &mut [u8]) -> usize {
    let local = libc::iovec { iov_base: into.as_mut_ptr().cast(), iov_len: into.len() };
    // Page by page: the kernel stops at the first piece that it cannot read.
    let mut remote = Vec::with_capacity(into.len() / 4096 + 2);
    let mut at = address;
    let end = address.saturating_add(into.len() as u64);
    while at < end {
        let next = ((at | 4095) + 1).min(end);
        remote.push(libc::iovec { iov_base: at as *mut _, iov_len: (next - at) as usize });
        at = next;
    }
    remote.truncate(1024); // IOV_MAX
    // SAFETY: `local` is live and writable; remote addresses are the kernel's to check.
    let got = unsafe {
        libc::process_vm_readv(
            pid as libc::pid_t,
            &raw const local,
            1,
            remote.as_ptr(),
            remote.len() as libc::c_ulong,
            0,
        )
    };
    usize::try_from(got).unwrap_or(0)
}

/// Whether memory of another process can be read now: not while it is becoming another
/// program or is ending (`ESRCH`, `EFAULT`), never without the permission (`EPERM`).
pub fn can_read(pid: u32, address: u64) -> io::Result<()> {
    match read_memory(pid, address, &mut [0; 8]) {
        8 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Lets this thread run before others of the same urge, where that is permitted:
/// what it reads must be fresh.
pub fn raise_priority() {
    const NICE: libc::c_int = -10;
    // SAFETY: no pointers; 0 is the calling thread.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, NICE) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_of_less_than_a_millisecond_is_one() {
        let (time, began) = (Duration::from_micros(300), std::time::Instant::now());
        poll_readable(&[], time);
        assert!(began.elapsed() >= time);
    }

    #[test]
    fn memory_that_is_not_there_is_told_from_memory_that_may_not_be_read() {
        let (pid, word) = (std::process::id(), 7u64);
        assert!(can_read(pid, &raw const word as u64).is_ok());
        let not_mapped = can_read(pid, 4096).unwrap_err().raw_os_error();
        assert_eq!(not_mapped, Some(libc::EFAULT));
        let gone = can_read(u32::MAX >> 1, 4096).unwrap_err().raw_os_error();
        assert_eq!(gone, Some(libc::ESRCH));
    }
}
