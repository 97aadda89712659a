//! Functions that need the C library or the kernel.
#![allow(unsafe_code)]

use memmap2::MmapOptions;
use nix::fcntl::{AT_FDCWD, AtFlags, FcntlArg, SealFlag, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::resource::{Resource, getrlimit};
use nix::sys::signal::{SigSet, SigmaskHow};
use nix::unistd::{AccessFlags, dup2_stdout, faccessat, geteuid};
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::thread;

/// Makes the C library keep freed memory for reuse, in commands that read large files and then end.
/// By default it returns each large block to the kernel, which must clear the next one: that took a
/// fifth of a report's time.
pub fn keep_freed_memory() {
    #[cfg(target_env = "gnu")]
    for (parameter, bytes) in
        [(libc::M_MMAP_THRESHOLD, 32 << 20), (libc::M_TRIM_THRESHOLD, 1 << 30)]
    {
        // SAFETY: `mallopt` takes two integers, and refuses parameters that it doesn't know.
        unsafe { libc::mallopt(parameter, bytes) };
    }
}

/// If the address space is limited, makes all threads share one heap. Otherwise the C library would
/// reserve 64 MiB of address space for each thread.
pub fn share_one_heap() {
    #[cfg(target_env = "gnu")]
    if getrlimit(Resource::RLIMIT_AS).is_ok_and(|(limit, _)| limit != libc::RLIM_INFINITY) {
        // SAFETY: `mallopt` takes two integers, and refuses parameters that it doesn't know.
        unsafe { libc::mallopt(libc::M_ARENA_MAX, 1) };
    }
}

/// Does `work`, on a thread with a larger stack if the first thread's stack has a low limit.
pub fn run_on_large_stack<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    const ENOUGH: u64 = 8 << 20;
    const LOW: u64 = 1 << 20;
    if getrlimit(Resource::RLIMIT_STACK).is_ok_and(|(limit, _)| limit >= LOW) {
        return work();
    }
    // Signals are blocked in the first thread, so that they reach the thread that does the work.
    let mask = SigSet::all().thread_swap_mask(SigmaskHow::SIG_BLOCK);
    let work = Mutex::new(Some(work));
    let take = || work.lock().unwrap_or_else(PoisonError::into_inner).take();
    let restore = || mask.inspect(|mask| _ = mask.thread_set_mask());
    let done = thread::scope(|scope| {
        let act = || {
            let _ = restore();
            take().map(|work| work())
        };
        let thread = thread::Builder::new().stack_size(ENOUGH as usize).spawn_scoped(scope, act);
        thread.ok().and_then(|thread| thread.join().ok().flatten())
    });
    done.unwrap_or_else(|| {
        let _ = restore();
        take().map(|work| work()).expect("no thread did the work")
    })
}

/// Lowers the priority of this process, so that other programs get cores first.
pub fn lower_priority(by: i32) {
    // SAFETY: `nice` takes an integer. If the kernel refuses it, the priority stays unchanged.
    unsafe { libc::nice(by) };
}

/// Returns the effective user id.
pub fn user() -> u32 {
    geteuid().as_raw()
}

/// Returns the local time as `YYYYmmdd-HHMMSS`.
pub fn local_time() -> String {
    // SAFETY: with a null pointer, `time` only returns the time.
    let now = unsafe { libc::time(std::ptr::null_mut()) };
    // SAFETY: all zeroes is a valid `tm`.
    let mut tm: libc::tm = unsafe { std::mem::zeroed() };
    // SAFETY: `now` and `tm` are live during the call.
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

/// Whether code may run from `file`, which isn't allowed on a file system mounted with `noexec`.
pub fn allows_exec(file: &File) -> bool {
    // SAFETY: the mapping is dropped at once, and its contents are neither read nor run, so other
    // writers of the file don't matter.
    unsafe { MmapOptions::new().len(4096).map_exec(file) }.is_ok()
}

/// Whether this user may execute `path`, by the check that `execve` makes.
pub fn may_execute(path: &Path) -> bool {
    may(path, AccessFlags::X_OK)
}

fn may(path: &Path, access: AccessFlags) -> bool {
    faccessat(AT_FDCWD, path, access, AtFlags::AT_EACCESS).is_ok()
}

/// Returns the soft and the hard limit of open files.
pub fn open_files_limit() -> Option<libc::rlimit> {
    let (rlim_cur, rlim_max) = getrlimit(Resource::RLIMIT_NOFILE).ok()?;
    Some(libc::rlimit { rlim_cur, rlim_max })
}

/// Whether this user may write to `path`.
pub fn may_write(path: &Path) -> bool {
    may(path, AccessFlags::W_OK)
}

/// Tries to create a memory file that can be sealed against shrinking, which the collector needs.
pub fn sealed_memory() -> io::Result<()> {
    let flags = MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING;
    let file = File::from(memfd_create(c"tprof-doctor", flags)?);
    file.set_len(4096)?;
    fcntl(&file, FcntlArg::F_ADD_SEALS(SealFlag::F_SEAL_SHRINK))?;
    Ok(())
}

/// Redirects this process's stdout from now on, because the stdout of `tprof run` belongs to the
/// job.
pub fn redirect_stdout(to: impl AsFd) -> io::Result<()> {
    Ok(dup2_stdout(to)?)
}

/// Whether this user owns a process, or is root.
pub fn is_owned_by_user(pid: u32) -> bool {
    use std::os::unix::fs::MetadataExt;
    let user = user();
    let owner = std::fs::metadata(format!("/proc/{pid}")).map(|meta| meta.uid());
    user == 0 || owner.is_ok_and(|owner| owner == user)
}
