//! System calls that the standard library doesn't offer, each behind a safe function.
//!
//! Most of them come from nix. Those that nix lacks are called through libc: futexes, pidfds, a
//! pidfd's information about the end of a process, `tgkill` and `setpriority`.
#![allow(unsafe_code)] // system calls that nix lacks

pub use crate::socket::{
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
pub use nix::sys::signal::Signal;
use nix::sys::signal::kill;
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

/// Returns the kernel's id of the current thread.
pub fn own_tid() -> u32 {
    nix::unistd::gettid().as_raw().cast_unsigned()
}

/// Sends a signal to a process.
pub fn send_signal(pid: u32, signal: Signal) -> io::Result<()> {
    Ok(kill(Pid::from_raw(pid.cast_signed()), signal)?)
}

/// Creates an anonymous file of `bytes` bytes, sealed so that it can neither shrink nor grow.
pub fn memfd(name: &str, bytes: usize) -> io::Result<OwnedFd> {
    let fd = memfd_create(name, MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING)?;
    ftruncate(&fd, bytes as libc::off_t)?;
    let seals = SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_GROW | SealFlag::F_SEAL_SEAL;
    fcntl::fcntl(&fd, FcntlArg::F_ADD_SEALS(seals))?;
    Ok(fd)
}

/// Reserves memory for a part of a memfd, so that writing to that part can't fail.
pub fn reserve(fd: &OwnedFd, from: usize, bytes: usize) -> io::Result<()> {
    let (from, bytes) = (from as libc::off_t, bytes as libc::off_t);
    Ok(fcntl::fallocate(fd, FallocateFlags::empty(), from, bytes)?)
}

/// Returns a descriptor that becomes readable when the process has ended.
pub fn pidfd(pid: u32) -> io::Result<OwnedFd> {
    // SAFETY: the system call takes two integers and no pointers.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call above has just returned this descriptor, so nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

/// Returns the wait status of a process that has ended. `None` if the kernel doesn't know it any
/// more, or before Linux 6.15 (PIDFD_GET_INFO with PIDFD_INFO_EXIT).
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
    // SAFETY: `info` is alive, and `GET_INFO` contains its size, so the kernel writes no more than
    // that.
    let result = unsafe { libc::ioctl(pidfd.as_raw_fd(), GET_INFO as libc::Ioctl, &raw mut info) };
    (result == 0 && info.mask & EXIT != 0).then_some(info.exit_code)
}

/// An executable mapping as the kernel returns it: `struct procmap_query` of `linux/fs.h`.
#[repr(C)]
#[derive(Debug, Default)]
pub(crate) struct CodeMapping {
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
    /// Major number of the file's device.
    pub major: u32,
    /// Minor number of the file's device.
    pub minor: u32,
    /// Bytes of the mapping's name, including the NUL; 0 if it has no name.
    pub name_len: u32,
    build_id_len: u32,
    name: u64,
    build_id: u64,
}

/// Returns the first executable mapping that contains an address or is above it (PROCMAP_QUERY,
/// Linux 6.11). `maps` is the open `maps` file of the process. The mapping's path is written to
/// `name`, without escaping. Returns `None` after the last mapping.
///
/// # Errors
///
/// `ENOTTY` on older kernels; `ESRCH` if the process has ended.
pub(crate) fn code_mapping_from(
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
    // SAFETY: `mapping` and `name` are alive. `QUERY` contains the size of `mapping`, and
    // `mapping.name_len` is the size of `name`, so the kernel writes beyond neither.
    let result = unsafe { libc::ioctl(maps.as_raw_fd(), QUERY as libc::Ioctl, &raw mut mapping) };
    match result {
        0 => Ok(Some(mapping)),
        _ => match io::Error::last_os_error() {
            e if e.raw_os_error() == Some(libc::ENOENT) => Ok(None),
            e => Err(e),
        },
    }
}

/// Whether a thread of a process exists. Pid and tid are those of this pid namespace.
pub fn thread_lives(pid: u32, tid: u32) -> bool {
    // SAFETY: the system call takes three integers, and signal 0 is never delivered.
    let result = unsafe { libc::syscall(libc::SYS_tgkill, pid, tid, 0) };
    result == 0 || io::Error::last_os_error().raw_os_error() != Some(libc::ESRCH)
}

/// Sleeps on a shared futex as long as its value is `value`, but at most for `time`.
pub fn futex_wait(word: &AtomicU32, value: u32, time: Duration) {
    let limit =
        libc::timespec { tv_sec: time.as_secs() as i64, tv_nsec: time.subsec_nanos().into() };
    // SAFETY: `word` and `limit` are alive during the call, and the kernel only reads them.
    unsafe {
        libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAIT, value, &raw const limit)
    };
}

/// Wakes all threads that sleep on a shared futex.
pub fn futex_wake(word: &AtomicU32) {
    // SAFETY: `word` is alive, and the kernel uses only its address, as a key.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE, i32::MAX) };
}

/// Returns CLOCK_MONOTONIC, ns.
pub fn monotonic_ns() -> u64 {
    clock_ns(ClockId::CLOCK_MONOTONIC)
}

/// Returns CLOCK_BOOTTIME, ns.
pub(crate) fn boottime_ns() -> u64 {
    clock_ns(ClockId::CLOCK_BOOTTIME)
}

/// Returns the CPU time of this process so far, ns.
pub fn cpu_ns() -> u64 {
    kernel_clock_ns(ClockId::CLOCK_PROCESS_CPUTIME_ID).unwrap_or(0)
}

/// Returns the CPU time of this thread so far, ns.
pub fn thread_cpu_ns() -> u64 {
    kernel_clock_ns(ClockId::CLOCK_THREAD_CPUTIME_ID).unwrap_or(0)
}

/// Returns the CPU time of a process of this host so far, its ended threads included, ns; `None` if
/// the process has ended.
pub fn cpu_ns_of(pid: u32) -> Option<u64> {
    let clock = clock_getcpuclockid(Pid::from_raw(pid.try_into().ok()?)).ok()?;
    kernel_clock_ns(clock)
}

fn clock_ns(clock: ClockId) -> u64 {
    clock_gettime(clock).map_or(0, ns_of)
}

/// Reads a clock by a system call. A library that changes the time (libfaketime) may interpose the
/// C library's function, but not the system call. It takes clocks of CPU time for wall clocks, and
/// the C library's function reads these no faster.
pub(crate) fn kernel_clock_ns(clock: ClockId) -> Option<u64> {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a live timespec, and the kernel writes nothing else.
    let result = unsafe { libc::syscall(libc::SYS_clock_gettime, clock.as_raw(), &raw mut time) };
    (result == 0).then(|| ns_of(TimeSpec::from_timespec(time)))
}

fn ns_of(time: TimeSpec) -> u64 {
    time.tv_sec() as u64 * 1_000_000_000 + time.tv_nsec() as u64
}

/// Returns the CPU time of the children that this process has waited for and of their waited-for
/// children, ns.
pub fn children_cpu_ns() -> u64 {
    let ns = |time: TimeVal| time.num_microseconds() as u64 * 1000;
    getrusage(UsageWho::RUSAGE_CHILDREN)
        .map_or(0, |usage| ns(usage.user_time()) + ns(usage.system_time()))
}

/// Reads the time-stamp counter.
pub fn ticks() -> u64 {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every x86-64 processor has `rdtsc`, and tprof doesn't disable it for its own process.
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

/// Raises the soft limit of open files to the hard limit, because the collector has an open
/// descriptor for each live process.
pub fn raise_file_limit() {
    if let Ok((_, most)) = getrlimit(Resource::RLIMIT_NOFILE) {
        let _ = setrlimit(Resource::RLIMIT_NOFILE, most.min(1 << 20), most);
    }
}

/// Creates a directory with a random name and mode 0700 in `parent`.
pub fn make_private_directory(parent: &Path, prefix: &str) -> io::Result<PathBuf> {
    Ok(mkdtemp(&parent.join(format!("{prefix}XXXXXX")))?)
}

/// Allocates disk space for the first `bytes` of a file.
pub fn allocate(fd: &OwnedFd, bytes: u64) -> io::Result<()> {
    Ok(fcntl::posix_fallocate(fd, 0, bytes as libc::off_t)?)
}

/// Sets a file's times to now.
pub fn touch(path: &Path) -> io::Result<()> {
    let now = TimeSpec::UTIME_NOW;
    Ok(utimensat(AT_FDCWD, path, &now, &now, UtimensatFlags::FollowSymlink)?)
}

/// Renames a file. Fails if the new name exists.
pub fn rename_new(from: &Path, to: &Path) -> io::Result<()> {
    // The system call is made by its number, because musl before 1.2.6 and glibc before 2.28 have
    // no function for it.
    let number = from.with_nix_path(|from| {
        to.with_nix_path(|to| {
            let (here, keep) = (libc::AT_FDCWD, libc::RENAME_NOREPLACE);
            // SAFETY: both paths are NUL-terminated and alive during the call, which only reads
            // them.
            unsafe {
                libc::syscall(libc::SYS_renameat2, here, from.as_ptr(), here, to.as_ptr(), keep)
            }
        })
    })??;
    match Errno::result(number) {
        // Network file systems such as NFS and kernels before 3.15 return these errors.
        Err(Errno::EINVAL | Errno::ENOSYS | Errno::EOPNOTSUPP) => link_new(from, to),
        other => Ok(other.map(drop)?),
    }
}

/// Does the same as [`rename_new`] in two steps, for file systems that can't do it in one. Creating
/// a link never replaces a file.
fn link_new(from: &Path, to: &Path) -> io::Result<()> {
    match fs::hard_link(from, to) {
        Ok(()) => fs::remove_file(from),
        // The file system (such as FAT) has no links either. A file that another process creates at
        // `to` between the next two calls would be replaced.
        Err(e) if e.raw_os_error() == Some(libc::EPERM) || e.kind() == ErrorKind::Unsupported => {
            match to.symlink_metadata() {
                Ok(_) => Err(ErrorKind::AlreadyExists.into()),
                Err(_) => fs::rename(from, to),
            }
        }
        Err(e) => Err(e),
    }
}

/// An epoll instance that returns a token for each ready descriptor.
pub struct Poller(Epoll);

impl Poller {
    /// Returns an instance that watches no descriptor.
    pub fn new() -> io::Result<Poller> {
        Ok(Poller(Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?))
    }

    /// Watches `fd` for input. With `once`, reports that only one time. A closed descriptor is
    /// removed.
    pub fn add(&self, fd: &OwnedFd, token: u64, once: bool) -> io::Result<()> {
        let mut flags = EpollFlags::EPOLLIN;
        flags.set(EpollFlags::EPOLLONESHOT, once);
        Ok(self.0.add(fd, EpollEvent::new(flags, token))?)
    }

    /// Waits until descriptors are ready, at most for `time`, and returns their tokens.
    pub fn wait(&self, time: Duration) -> Vec<u64> {
        let mut events = [EpollEvent::empty(); 64];
        let time = EpollTimeout::try_from(time).unwrap_or(EpollTimeout::MAX);
        let got = self.0.wait(&mut events, time).unwrap_or(0);
        events.iter().take(got).map(EpollEvent::data).collect()
    }
}

/// Returns a descriptor by which one thread wakes another from a poll, by writing to it.
pub fn eventfd() -> io::Result<EventFd> {
    Ok(EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?)
}

/// Waits until one of the descriptors is readable, at most for `time`. Returns for each whether it
/// has hung up.
pub fn poll_readable(fds: &[BorrowedFd], time: Duration) -> Vec<bool> {
    let mut polled: Vec<_> = fds.iter().map(|fd| PollFd::new(*fd, PollFlags::POLLIN)).collect();
    // `ppoll` takes nanoseconds. With `poll`'s milliseconds, a shorter wait would be rounded to
    // none.
    let _ = ppoll(&mut polled, Some(time.into()), None);
    let gone = PollFlags::POLLHUP | PollFlags::POLLERR;
    polled.iter().map(|fd| fd.revents().is_some_and(|got| got.intersects(gone))).collect()
}

/// Reads memory of another process. Returns the number of bytes that could be read, from the front.
pub fn read_memory(pid: u32, address: u64, into: &mut [u8]) -> usize {
    try_read(pid, address, into).unwrap_or(0)
}

/// Reads several pieces of another process's memory with one system call. Returns the number of
/// bytes that could be read, from the front of the first piece.
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

/// Splits a range into pages. The kernel stops at the first piece that it can't read, so a whole
/// range with one unreadable page would not be read at all.
fn pages_of(address: u64, len: usize, pages: &mut Vec<RemoteIoVec>) {
    let mut at = address;
    let end = address.saturating_add(len as u64);
    while at < end && pages.len() < libc::UIO_MAXIOV as usize {
        let next = ((at | 4095) + 1).min(end);
        pages.push(RemoteIoVec { base: at as usize, len: (next - at) as usize });
        at = next;
    }
}

/// Checks whether memory of another process can be read now. While the process is ending or in an
/// exec it can't (`ESRCH`, `EFAULT`), and without permission it never can (`EPERM`).
pub fn can_read(pid: u32, address: u64) -> io::Result<()> {
    match try_read(pid, address, &mut [0; 8])? {
        8 => Ok(()),
        _ => Err(io::Error::from_raw_os_error(libc::EFAULT)),
    }
}

/// Raises the priority of this thread, if that is permitted. The sampler needs that, because its
/// readings must be fresh.
pub fn raise_priority() {
    const NICE: libc::c_int = -10;
    // SAFETY: the function takes no pointers; 0 means the calling thread.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, NICE) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn renaming_fails_if_the_new_name_exists() {
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
    fn a_wait_of_less_than_a_millisecond_is_not_rounded_to_none() {
        let (time, began) = (Duration::from_micros(300), std::time::Instant::now());
        poll_readable(&[], time);
        assert!(began.elapsed() >= time);
    }

    #[test]
    fn unmapped_memory_and_an_ended_process_have_different_errors() {
        let (pid, word) = (std::process::id(), 7u64);
        assert!(can_read(pid, &raw const word as u64).is_ok());
        let not_mapped = can_read(pid, 4096).unwrap_err().raw_os_error();
        assert_eq!(not_mapped, Some(libc::EFAULT));
        let gone = can_read(u32::MAX >> 1, 4096).unwrap_err().raw_os_error();
        assert_eq!(gone, Some(libc::ESRCH));
    }
}
