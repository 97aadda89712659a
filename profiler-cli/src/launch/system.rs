//! The few facts that only the C library tells.
#![allow(unsafe_code)]

use std::ffi::{CString, OsStr};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Keeps freed memory for the next use of it, in commands that read large files and
/// then end. The C library would give each block's room back to the kernel and have it
/// cleared again for the next one, which took a fifth of a report's time.
pub fn keep_freed_memory() {
    #[cfg(target_env = "gnu")]
    for (parameter, bytes) in
        [(libc::M_MMAP_THRESHOLD, 32 << 20), (libc::M_TRIM_THRESHOLD, 1 << 30)]
    {
        // SAFETY: takes two integers; what it does not know it refuses.
        unsafe { libc::mallopt(parameter, bytes) };
    }
}

/// Effective user id.
pub fn user() -> u32 {
    // SAFETY: takes nothing, cannot fail.
    unsafe { libc::geteuid() }
}

/// The local time as `YYYYmmdd-HHMMSS`.
pub fn local_time() -> String {
    // SAFETY: a null pointer asks for the value alone.
    let now = unsafe { libc::time(std::ptr::null_mut()) };
    // SAFETY: all zeroes is a valid `tm`.
    let mut tm: libc::tm = unsafe { std::mem::zeroed() };
    // SAFETY: both point at live locals of the right type.
    if unsafe { libc::localtime_r(&now, &mut tm) }.is_null() {
        return now.to_string();
    }
    format!(
        "{:04}{:02}{:02}-{:02}{:02}{:02}",
        tm.tm_year + 1900,
        tm.tm_mon + 1,
        tm.tm_mday,
        tm.tm_hour,
        tm.tm_min,
        tm.tm_sec
    )
}

/// Whether code may run from `file`: false on a file system mounted `noexec`.
pub fn may_run_from(file: &File) -> bool {
    // SAFETY: a fresh private mapping at an address of the kernel's choice; its
    // contents are never read or run.
    let page = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            4096,
            libc::PROT_READ | libc::PROT_EXEC,
            libc::MAP_PRIVATE,
            file.as_raw_fd(),
            0,
        )
    };
    if page == libc::MAP_FAILED {
        return false;
    }
    // SAFETY: exactly the mapping made above, to which nothing points.
    unsafe { libc::munmap(page, 4096) };
    true
}

/// Whether this user may execute `path`, as `execve` judges it.
pub fn may_execute(path: &Path) -> bool {
    let Ok(path) = CString::new(OsStr::as_bytes(path.as_os_str())) else { return false };
    // SAFETY: the path is NUL-terminated and outlives the call.
    unsafe { libc::faccessat(libc::AT_FDCWD, path.as_ptr(), libc::X_OK, libc::AT_EACCESS) == 0 }
}

/// Soft and hard limit of open files.
pub fn open_files_limit() -> Option<libc::rlimit> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: points at a live local of the right type.
    (unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) } == 0).then_some(limit)
}

/// Whether this user may write to `path`.
pub fn may_write(path: &Path) -> bool {
    let Ok(path) = CString::new(OsStr::as_bytes(path.as_os_str())) else { return false };
    // SAFETY: the path is NUL-terminated and outlives the call.
    unsafe { libc::faccessat(libc::AT_FDCWD, path.as_ptr(), libc::W_OK, libc::AT_EACCESS) == 0 }
}

/// Tries a memory file that cannot shrink, as the collector needs it.
pub fn sealed_memory() -> io::Result<()> {
    let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
    // SAFETY: a NUL-terminated name that outlives the call.
    let fd = unsafe { libc::memfd_create(c"tprof-doctor".as_ptr(), flags) };
    if fd == -1 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a fresh descriptor that nothing else owns.
    let file = unsafe { File::from_raw_fd(fd) };
    file.set_len(4096)?;
    // SAFETY: a live descriptor and a plain integer.
    match unsafe { libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, libc::F_SEAL_SHRINK) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Sends what this process writes to stdout elsewhere from now on: stdout of
/// `tprof run` belongs to the job.
pub fn redirect_stdout(to: &impl AsRawFd) -> io::Result<()> {
    // SAFETY: two live descriptors; the old one is closed by the call.
    match unsafe { libc::dup2(to.as_raw_fd(), libc::STDOUT_FILENO) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

/// Whether a process is this user's, or this user is root.
pub fn is_ours(pid: u32) -> bool {
    use std::os::unix::fs::MetadataExt;
    // SAFETY: no preconditions.
    let user = unsafe { libc::geteuid() };
    let owner = std::fs::metadata(format!("/proc/{pid}")).map(|meta| meta.uid());
    user == 0 || owner.is_ok_and(|owner| owner == user)
}
