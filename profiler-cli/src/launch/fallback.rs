//! Lets the job run even if tprof fails. tprof may lack memory, threads or descriptors at the
//! start, or Rust may abort it later, for example after a failed allocation.
//!
//! If the job has not started, it replaces this process and runs unrecorded. If the job has
//! started, this process is its parent, for whose exit status others wait. So a new tprof replaces
//! this process, waits for the job ([`wait()`]) and exits with the job's status.
#![allow(unsafe_code)]

use super::signals::Signals;
use super::wait::{self, Outcome};
use super::{InheritedState, Replacement};
use crate::launch::failures::not_executed;
use clap::Args;
use std::ffi::{CString, OsString};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicI32, AtomicI64, AtomicPtr, Ordering::SeqCst};
use tprof_ui::errors::{self, Failure};

/// Name of the hidden command.
pub const WAIT: &str = "__wait";
/// Status of a job that has not ended. No wait status is negative.
const RUNS: i64 = -1;

/// The command that replaces tprof, and the path of tprof's program.
struct Fallback {
    command: OsString,
    replacement: Replacement,
    original: InheritedState,
    tprof: CString,
}

/// The fallback: set once, and never freed.
static INSTEAD: AtomicPtr<Fallback> = AtomicPtr::new(null_mut());
/// Pid of the job; 0 until it has started.
static JOB: AtomicI32 = AtomicI32::new(0);
/// Wait status of the job, or [`RUNS`].
static STATUS: AtomicI64 = AtomicI64::new(RUNS);

/// Prepares the fallback, and installs the handler of SIGABRT. `original` is the inherited state
/// that the job must find.
pub fn prepare(command: &[OsString], original: InheritedState) -> io::Result<()> {
    let tprof = std::env::current_exe()?;
    let instead = Fallback {
        command: command[0].clone(),
        replacement: Replacement::new(command)?,
        original,
        tprof: CString::new(tprof.as_os_str().as_bytes())?,
    };
    INSTEAD.store(Box::into_raw(Box::new(instead)), SeqCst);
    let aborted: extern "C" fn(i32) = aborted;
    // SAFETY: all zeroes is a valid `sigaction`, and `action` lives during the call. `aborted` is
    // an `extern "C"` function for the whole program and makes only async-signal-safe calls. With
    // SA_ONSTACK it runs on the alternate stack that Rust's runtime sets up, also after a stack
    // overflow.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = aborted as libc::sighandler_t;
        action.sa_flags = libc::SA_ONSTACK;
        libc::sigaction(libc::SIGABRT, &action, null_mut());
    }
    Ok(())
}

/// Notes that the job has started.
pub fn job_runs(pid: i32) {
    JOB.store(pid, SeqCst);
}

/// Notes how the wait for the job ended.
pub fn job_ended(outcome: Outcome) {
    if let Outcome::Ended(status) = outcome {
        STATUS.store(status.into(), SeqCst);
    }
}

/// If `error` comes from a limit that prevents a recording, replaces this process with the job,
/// unrecorded. Returns any other error.
pub fn run_unrecorded(error: anyhow::Error) -> anyhow::Error {
    let is_limit = error.downcast_ref::<Failure>().is_some_and(|failure| failure.is_limit);
    // SAFETY: the pointer is null or from `Box::into_raw` in `prepare`, and the box is never freed.
    // Only `aborted` uses the box too; it ends the process, so it never returns here.
    let instead = unsafe { INSTEAD.load(SeqCst).as_mut() };
    let Some(instead) = instead.filter(|_| is_limit && JOB.load(SeqCst) == 0) else {
        return error;
    };
    errors::show(&error);
    errors::print_stderr("tprof: the command runs without a recording\n");
    let errno = instead.replacement.run(Some(&instead.original));
    not_executed(&instead.command, io::Error::from_raw_os_error(errno)).into()
}

/// Handles SIGABRT. It allocates nothing: `prepare` has allocated all data.
extern "C" fn aborted(_: i32) {
    unsafe extern "C" {
        static environ: *const *const libc::c_char;
    }
    // SAFETY: `prepare` stores the pointer of a leaked box before it installs this handler, so it
    // isn't null.
    let instead = unsafe { &mut *INSTEAD.load(SeqCst) };
    let pid = JOB.load(SeqCst);
    if pid == 0 {
        const TEXT: &[u8] =
            b"error: cannot start recording\ncause: tprof ran out of memory, or failed with the \
            error above\n  try: a higher memory limit: ulimit -v\ntprof: the command runs \
            without a recording\n";
        // SAFETY: `TEXT` is a static array of `TEXT.len()` bytes.
        unsafe { libc::write(2, TEXT.as_ptr().cast(), TEXT.len()) };
        instead.replacement.run(Some(&instead.original));
    } else {
        let pid = number(pid.into());
        let status = number(STATUS.load(SeqCst));
        let words =
            [c"tprof".as_ptr(), c"__wait".as_ptr(), text(&pid), text(&status), std::ptr::null()];
        // SAFETY: all zeroes is an empty `sigset_t`. `tprof` is a `CString`, `words` is a
        // null-terminated array of NUL-terminated strings that live until the call, and `environ`
        // is the C library's environment.
        unsafe {
            let mut abort: libc::sigset_t = std::mem::zeroed();
            libc::sigaddset(&mut abort, libc::SIGABRT);
            libc::sigprocmask(libc::SIG_UNBLOCK, &abort, null_mut());
            libc::execve(instead.tprof.as_ptr(), words.as_ptr(), environ);
        }
    }
    // SAFETY: `_exit` only ends this process.
    unsafe { libc::_exit(errors::FAILED.into()) }
}

/// Formats a number as text that ends with a zero byte.
fn number(value: i64) -> [u8; 24] {
    let mut digits = [0; 24];
    // Writing to a slice allocates nothing, and 24 bytes are enough for an `i64` and the zero.
    let _ = write!(&mut digits[..], "{value}");
    digits
}

fn text(digits: &[u8; 24]) -> *const libc::c_char {
    digits.as_ptr().cast()
}

/// Arguments of the hidden command: a job whose tprof is gone.
#[derive(Args, Debug)]
pub struct WaitArgs {
    /// Process id of the job.
    pid: i32,
    /// Wait status of the job; below zero while it runs.
    #[arg(allow_hyphen_values = true)]
    status: i64,
}

/// Prints that tprof failed, and waits for the job.
pub fn wait(args: &WaitArgs) -> Outcome {
    let signals = Signals::block();
    let failure = Failure::new("tprof did not finish its work on the run")
        .cause("it ran out of memory, or failed with the error above")
        .hint("a higher memory limit: ulimit -v, and the memory limit of the job");
    errors::show(&failure.into());
    match i32::try_from(args.status) {
        Ok(status) if status >= 0 => Outcome::Ended(status),
        _ => wait::wait(args.pid, &signals, &|_| {}, &|_| false),
    }
}
