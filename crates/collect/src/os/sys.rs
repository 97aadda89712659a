//! System calls that the standard library lacks, each behind a safe function.
//!
//! Most of them come from nix. nix lacks futexes, pidfds, a pidfd's information about the end of a
//! process, `tgkill` and `setpriority`; these are called through libc.
#![allow(unsafe_code)] // system calls that nix lacks

pub use super::socket::{
    accept, connect, is_hung_up, listen, peer, receive, send, set_timeout, user,
};

use nix::NixPath;
use nix::errno::Errno;
use nix::fcntl::{self, AT_FDCWD, FallocateFlags, FcntlArg, SealFlag};
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::resource::{Resource, UsageWho, getrlimit, getrusage, setrlimit};
use nix::sys::stat::{UtimensatFlags, utimensat};
use nix::sys::time::{TimeSpec, TimeVal, TimeValLike};
use nix::sys::uio::{RemoteIoVec, process_vm_readv};
use nix::time::{ClockId, clock_getcpuclockid, clock_gettime};
use nix::unistd::{Pid, ftruncate, gethostname, mkdtemp};
use std::fs;
use std::io::{self, ErrorKind, IoSliceMut};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU32;
use std::time::Duration;

/// Asks a process to end by SIGTERM.
pub fn send_sigterm(pid: u32) -> io::Result<()> {
    Ok(nix::sys::signal::kill(Pid::from_raw(pid.cast_signed()), nix::sys::signal::Signal::SIGTERM)?)
}

/// Creates an anonymous file of `bytes`, sealed against shrinking and growing.
pub fn memfd(name: &str, bytes: usize) -> io::Result<OwnedFd> {
    let fd = memfd_create(name, MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING)?;
    ftruncate(&fd, bytes as libc::off_t)?;
    let seals = SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_GROW | SealFlag::F_SEAL_SEAL;
    fcntl::fcntl(&fd, FcntlArg::F_ADD_SEALS(seals))?;
    Ok(fd)
}

/// Reserves bytes of a memfd, so that writing to them can't fail.
pub fn reserve(fd: &OwnedFd, from: usize, bytes: usize) -> io::Result<()> {
    let (from, bytes) = (from as libc::off_t, bytes as libc::off_t);
    Ok(fcntl::fallocate(fd, FallocateFlags::empty(), from, bytes)?)
}

/// Returns a descriptor that becomes readable when the process ends.
pub fn pidfd(pid: u32) -> io::Result<OwnedFd> {
    // SAFETY: the system call takes two integers.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call has just returned this descriptor, and nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

/// Returns the wait status of a process that has ended, if the kernel still has it (PIDFD_GET_INFO
/// with PIDFD_INFO_EXIT, Linux 6.15).
pub fn exit_status(pidfd: &OwnedFd) -> Option<i32> {
    #[repr(C)]
    #[derive(Default)]
    struct PidfdInfo {
        mask: u64,
        cgroup: u64,
        ids: [u32; 11],
        exit_code: i32,
    }
    const _: () = assert!(size_of::<PidfdInfo>() == 64);
    const EXIT: u64 = 1 << 3;
    const GET_INFO: u32 = 0xc000_ff0b | (size_of::<PidfdInfo>() as u32) << 16;
    let mut info = PidfdInfo { mask: EXIT, ..PidfdInfo::default() };
    // SAFETY: `GET_INFO` contains the size of `info`, and the kernel writes no more than that.
    let result = unsafe { libc::ioctl(pidfd.as_raw_fd(), GET_INFO as libc::Ioctl, &raw mut info) };
    (result == 0 && info.mask & EXIT != 0).then_some(info.exit_code)
}

/// One executable mapping, as the kernel returns it: `struct procmap_query` of `linux/fs.h`.
#[repr(C)]
#[derive(Debug, Default)]
pub struct CodeMapping {
    size: u64,
    flags: u64,
    from: u64,
    /// First address of the mapping.
    pub start: u64,
    /// One past the last address.
    pub end: u64,
    protection: u64,
    page_bytes: u64,
    /// Offset in the file.
    pub offset: u64,
    /// Inode of the file; 0 if there is none.
    pub inode: u64,
    /// Device of the file.
    pub major: u32,
    /// Minor number of the device.
    pub minor: u32,
    /// Bytes of its name, including the NUL; 0 if it has none.
    pub name_len: u32,
    build_id_len: u32,
    name: u64,
    build_id: u64,
}

/// Returns the first executable mapping at or above an address, for the process with this `maps`
/// file (PROCMAP_QUERY, Linux 6.11). Its path is written to `name` unchanged. `None` if there are
/// no more.
///
/// # Errors
///
/// `ENOTTY` on older kernels; `ESRCH` if the process has no memory any more.
pub fn code_mapping_from(
    maps: &fs::File,
    from: u64,
    name: &mut [u8; libc::PATH_MAX as usize],
) -> io::Result<Option<CodeMapping>> {
    const EXECUTABLE: u64 = 0x04;
    const COVERING_OR_NEXT: u64 = 0x10;
    const SIZE: usize = size_of::<CodeMapping>();
    const _: () = assert!(SIZE == 104);
    const QUERY: u32 = 0xc000_6611 | (SIZE as u32) << 16;
    let mut mapping = CodeMapping {
        size: SIZE as u64,
        flags: EXECUTABLE | COVERING_OR_NEXT,
        from,
        name_len: name.len() as u32,
        name: name.as_mut_ptr().expose_provenance() as u64,
        ..CodeMapping::default()
    };
    // SAFETY: `QUERY` contains the size of `mapping`, and the kernel writes no more than that. To
    // `name` it writes no more than the length in `mapping`.
    let result = unsafe { libc::ioctl(maps.as_raw_fd(), QUERY as libc::Ioctl, &raw mut mapping) };
    match result {
        0 => Ok(Some(mapping)),
        _ => match io::Error::last_os_error() {
            e if e.raw_os_error() == Some(libc::ENOENT) => Ok(None),
            e => Err(e),
        },
    }
}

/// Whether a thread of a process still exists, by its numbers in this pid namespace.
pub fn thread_lives(pid: u32, tid: u32) -> bool {
    // SAFETY: the system call takes three integers, and signal 0 is never delivered.
    let result = unsafe { libc::syscall(libc::SYS_tgkill, pid, tid, 0) };
    result == 0 || io::Error::last_os_error().raw_os_error() != Some(libc::ESRCH)
}

/// Sleeps on a shared futex as long as it has the value `value`, but at most for `time`.
pub fn futex_wait(word: &AtomicU32, value: u32, time: Duration) {
    let limit =
        libc::timespec { tv_sec: time.as_secs() as i64, tv_nsec: time.subsec_nanos().into() };
    // SAFETY: `word` and `limit` are live references, and the kernel only reads them.
    unsafe {
        libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAIT, value, &raw const limit)
    };
}

/// Wakes all threads that sleep on a shared futex.
pub fn futex_wake(word: &AtomicU32) {
    // SAFETY: `word` is a live reference, whose address the kernel only uses as a key.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE, i32::MAX) };
}

/// Returns CLOCK_MONOTONIC, ns.
pub fn monotonic_ns() -> u64 {
    clock_ns(ClockId::CLOCK_MONOTONIC)
}

/// Returns CLOCK_BOOTTIME, ns.
pub fn boottime_ns() -> u64 {
    clock_ns(ClockId::CLOCK_BOOTTIME)
}

/// Returns the CPU time of this process so far, ns.
pub fn cpu_ns() -> u64 {
    clock_ns(ClockId::CLOCK_PROCESS_CPUTIME_ID)
}

/// Returns the CPU time of this thread so far, ns.
pub fn thread_cpu_ns() -> u64 {
    clock_ns(ClockId::CLOCK_THREAD_CPUTIME_ID)
}

/// Returns the CPU time of a process of this host so far, ns; `None` if it is gone.
pub fn cpu_ns_of(pid: u32) -> Option<u64> {
    let clock = clock_getcpuclockid(Pid::from_raw(pid.try_into().ok()?)).ok()?;
    clock_gettime(clock).ok().map(ns_of)
}

fn clock_ns(clock: ClockId) -> u64 {
    clock_gettime(clock).map_or(0, ns_of)
}

/// Reads a clock by a system call. The C library's function may be interposed by a library that
/// changes the time (libfaketime).
pub fn kernel_clock_ns(clock: ClockId) -> Option<u64> {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel only writes to `time`, which is a live timespec.
    let result = unsafe { libc::syscall(libc::SYS_clock_gettime, clock.as_raw(), &raw mut time) };
    (result == 0).then(|| ns_of(TimeSpec::from_timespec(time)))
}

fn ns_of(time: TimeSpec) -> u64 {
    time.tv_sec() as u64 * 1_000_000_000 + time.tv_nsec() as u64
}

/// Returns the CPU time of the children that were waited for, including their children.
pub fn children_cpu_ns() -> u64 {
    let ns = |time: TimeVal| time.num_microseconds() as u64 * 1000;
    getrusage(UsageWho::RUSAGE_CHILDREN)
        .map_or(0, |usage| ns(usage.user_time()) + ns(usage.system_time()))
}

/// Returns the CPU time of another process, including threads that have ended; `None` if it is
/// gone.
pub fn process_clock_ns(pid: u32) -> Option<u64> {
    let clock = clock_getcpuclockid(Pid::from_raw(pid as i32)).ok()?;
    clock_gettime(clock).ok().map(ns_of)
}

/// Returns the time-stamp counter.
pub fn ticks() -> u64 {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every x86-64 processor has `rdtsc`, and this process has not disabled it.
    unsafe {
        std::arch::x86_64::_rdtsc()
    }
    #[cfg(not(target_arch = "x86_64"))]
    monotonic_ns()
}

/// Returns the name of the host.
pub fn host_name() -> String {
    gethostname().unwrap_or_default().to_string_lossy().into_owned()
}

/// Raises the soft limit of open files to the hard limit, since the collector has one open per live
/// process.
pub fn raise_file_limit() {
    if let Ok((_, most)) = getrlimit(Resource::RLIMIT_NOFILE) {
        let _ = setrlimit(Resource::RLIMIT_NOFILE, most.min(1 << 20), most);
    }
}

/// Creates a directory with a random name below `parent`, with mode 0700.
pub fn make_private_directory(parent: &Path, prefix: &str) -> io::Result<PathBuf> {
    Ok(mkdtemp(&parent.join(format!("{prefix}XXXXXX")))?)
}

/// Allocates the first `bytes` of a file on the disk.
pub fn allocate(fd: &OwnedFd, bytes: u64) -> io::Result<()> {
    Ok(fcntl::posix_fallocate(fd, 0, bytes as libc::off_t)?)
}

/// Sets a file's times to now.
pub fn touch(path: &Path) -> io::Result<()> {
    let now = TimeSpec::UTIME_NOW;
    Ok(utimensat(AT_FDCWD, path, &now, &now, UtimensatFlags::FollowSymlink)?)
}

/// Renames a file, but never replaces another file.
pub fn rename_new(from: &Path, to: &Path) -> io::Result<()> {
    // It is called by number, since musl before 1.2.6 and glibc before 2.28 have no function for
    // it.
    let number = from.with_nix_path(|from| {
        to.with_nix_path(|to| {
            let (here, keep) = (libc::AT_FDCWD, libc::RENAME_NOREPLACE);
            // SAFETY: both paths are NUL-terminated and outlive the call, which only reads them.
            unsafe {
                libc::syscall(libc::SYS_renameat2, here, from.as_ptr(), here, to.as_ptr(), keep)
            }
        })
    })??;
    match Errno::result(number) {
        // These errors come from network file systems such as NFS and from kernels before 3.15.
        Err(Errno::EINVAL | Errno::ENOSYS | Errno::EOPNOTSUPP) => link_new(from, to),
        other => Ok(other.map(drop)?),
    }
}

/// Like [`rename_new`], for file systems that can't do it in one step. A link never replaces a
/// file.
fn link_new(from: &Path, to: &Path) -> io::Result<()> {
    match fs::hard_link(from, to) {
        Ok(()) => fs::remove_file(from),
        // The file system has no links either (such as FAT). Another writer in between would be
        // replaced.
        Err(e) if e.raw_os_error() == Some(libc::EPERM) || e.kind() == ErrorKind::Unsupported => {
            match to.symlink_metadata() {
                Ok(_) => Err(ErrorKind::AlreadyExists.into()),
                Err(_) => fs::rename(from, to),
            }
        }
        Err(e) => Err(e),
    }
}

/// An epoll instance with a token for each descriptor.
pub struct Poller(Epoll);

impl Poller {
    /// Returns an instance without descriptors.
    pub fn new() -> io::Result<Poller> {
        Ok(Poller(Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?))
    }

    /// Watches `fd` for input, always or only `once`. A descriptor that is closed is removed.
    pub fn add(&self, fd: &OwnedFd, token: u64, once: bool) -> io::Result<()> {
        let mut flags = EpollFlags::EPOLLIN;
        flags.set(EpollFlags::EPOLLONESHOT, once);
        Ok(self.0.add(fd, EpollEvent::new(flags, token))?)
    }

    /// Returns the tokens whose descriptors became ready within `time`.
    pub fn wait(&self, time: Duration) -> Vec<u64> {
        let mut events = [EpollEvent::empty(); 64];
        let time = EpollTimeout::try_from(time).unwrap_or(EpollTimeout::MAX);
        let got = self.0.wait(&mut events, time).unwrap_or(0);
        events.iter().take(got).map(EpollEvent::data).collect()
    }
}

/// Returns a descriptor that one thread writes to in order to wake another from a poll.
pub fn eventfd() -> io::Result<EventFd> {
    Ok(EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?)
}

/// Waits until one of the descriptors is readable. Returns for each whether it has hung up.
pub fn poll_readable(fds: &[BorrowedFd], time: Duration) -> Vec<bool> {
    let mut polled: Vec<_> = fds.iter().map(|fd| PollFd::new(*fd, PollFlags::POLLIN)).collect();
    // The time is exact to the nanosecond. Rounded to milliseconds, a shorter wait would be none.
    let _ = ppoll(&mut polled, Some(time.into()), None);
    let gone = PollFlags::POLLHUP | PollFlags::POLLERR;
    polled.iter().map(|fd| fd.revents().is_some_and(|got| got.intersects(gone))).collect()
}

/// Reads memory of another process. Returns how many bytes could be read from the front.
pub fn read_memory(pid: u32, address: u64, into: &mut [u8]) -> usize {
    try_read(pid, address, into).unwrap_or(0)
}

/// Reads several pieces of another process's memory by one system call. Returns how many bytes
/// could be read from the front.
pub fn read_pieces<'a>(pid: u32, pieces: impl Iterator<Item = (u64, &'a mut [u8])>) -> usize {
    let (mut local, mut remote) = (Vec::new(), Vec::new());
    for (address, into) in pieces {
        pages_of(address, into.len(), &mut remote);
        local.push(IoSliceMut::new(into));
    }
    match local.is_empty() {
        true => 0,
        false => process_vm_readv(Pid::from_raw(pid as i32), &mut local, &remote).unwrap_or(0),
    }
}

fn try_read(pid: u32, address: u64, into: &mut [u8]) -> nix::Result<usize> {
    let mut remote = Vec::with_capacity(into.len() / 4096 + 2);
    pages_of(address, into.len(), &mut remote);
    process_vm_readv(Pid::from_raw(pid as i32), &mut [IoSliceMut::new(into)], &remote)
}

/// Splits a range into pages, since the kernel stops at the first piece that it cannot read.
fn pages_of(address: u64, len: usize, pages: &mut Vec<RemoteIoVec>) {
    let mut at = address;
    let end = address.saturating_add(len as u64);
    while at < end && pages.len() < libc::UIO_MAXIOV as usize {
        let next = ((at | 4095) + 1).min(end);
        pages.push(RemoteIoVec { base: at as usize, len: (next - at) as usize });
        at = next;
    }
}

/// Checks whether memory of another process can be read now. It cannot be while the process is
/// ending or in an exec (`ESRCH`, `EFAULT`), and never without permission (`EPERM`).
pub fn can_read(pid: u32, address: u64) -> io::Result<()> {
    match try_read(pid, address, &mut [0; 8])? {
        8 => Ok(()),
        _ => Err(io::Error::from_raw_os_error(libc::EFAULT)),
    }
}

/// Lets this thread run before others of the same priority, if that is permitted, since its
/// readings must be fresh.
pub fn raise_priority() {
    const NICE: libc::c_int = -10;
    // SAFETY: the function takes no pointers; 0 stands for the calling thread.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, NICE) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_renamed_to_a_free_name_only() {
        for rename in [rename_new, link_new] {
            let directory = tempfile::tempdir().unwrap();
            let [a, b, c] = ["a", "b", "c"].map(|name| directory.path().join(name));
            fs::write(&a, "a").unwrap();
            fs::write(&b, "b").unwrap();
            assert_eq!(rename(&a, &b).unwrap_err().kind(), ErrorKind::AlreadyExists);
            rename(&a, &c).unwrap();
            let read = |path: &Path| fs::read_to_string(path).ok();
            assert_eq!(
                [a, b, c].map(|path| read(&path)),
                [None, Some("b".into()), Some("a".into())]
            );
            let gone = rename(&directory.path().join("x"), &directory.path().join("y"));
            assert_eq!(gone.unwrap_err().kind(), ErrorKind::NotFound);
        }
    }

    #[test]
    fn a_wait_of_less_than_a_millisecond_is_one() {
        let (time, began) = (Duration::from_micros(300), std::time::Instant::now());
        poll_readable(&[], time);
        assert!(began.elapsed() >= time);
    }

    #[test]
    fn memory_that_is_not_there_differs_from_memory_that_may_not_be_read() {
        let (pid, word) = (std::process::id(), 7u64);
        assert!(can_read(pid, &raw const word as u64).is_ok());
        let not_mapped = can_read(pid, 4096).unwrap_err().raw_os_error();
        assert_eq!(not_mapped, Some(libc::EFAULT));
        let gone = can_read(u32::MAX >> 1, 4096).unwrap_err().raw_os_error();
        assert_eq!(gone, Some(libc::ESRCH));
    }
}
