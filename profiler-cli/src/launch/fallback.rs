//! Keeps the job going if tprof cannot: because it lacks memory, threads or descriptors from the
//! start, or because Rust aborts it later, as after a failed allocation.
//!
//! Before the job runs, it takes tprof's place and runs unrecorded. Once it runs, a fresh tprof
//! takes the place of this one, which is the job's parent: [`wait()`] ends with the job's status.
#![allow(unsafe_code)]

use super::signals::Signals;
use super::wait::{self, Outcome};
use super::{InheritedState, Replacement};
use crate::launch::failures::not_executed;
use crate::terminal::errors::{self, Failure};
use clap::Args;
use std::ffi::{CString, OsString};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicI32, AtomicI64, AtomicPtr, Ordering::SeqCst};

/// Name of the hidden command.
pub const WAIT: &str = "__wait";
/// Status of a job that has not ended, which is no valid status.
const RUNS: i64 = -1;

/// The command that takes tprof's place, and the program of tprof.
struct Fallback {
    command: OsString,
    replacement: Replacement,
    original: InheritedState,
    tprof: CString,
}

/// Set once, and never freed.
static INSTEAD: AtomicPtr<Fallback> = AtomicPtr::new(null_mut());
/// Process id of the job, once it runs.
static JOB: AtomicI32 = AtomicI32::new(0);
/// Wait status of the job.
static STATUS: AtomicI64 = AtomicI64::new(RUNS);

/// Prepares the fallback. `original` is the state that the job must find.
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
    // SAFETY: all zeroes is a valid `sigaction`; the handler keeps to async-signal-safe calls. It
    // runs on the stack that Rust made for those whose own is used up.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = aborted as libc::sighandler_t;
        action.sa_flags = libc::SA_ONSTACK;
        libc::sigaction(libc::SIGABRT, &action, null_mut());
    }
    Ok(())
}

/// Records that the job runs.
pub fn job_runs(pid: i32) {
    JOB.store(pid, SeqCst);
}

/// Records how waiting for it ended.
pub fn job_ended(outcome: Outcome) {
    if let Outcome::Ended(status) = outcome {
        STATUS.store(status.into(), SeqCst);
    }
}

/// Runs the job unrecorded in this process's place if a limit kept tprof from recording; any other
/// failure is returned.
pub fn run_unrecorded(error: anyhow::Error) -> anyhow::Error {
    let is_limit = error.downcast_ref::<Failure>().is_some_and(|failure| failure.is_limit);
    // SAFETY: set once to a leaked box. Only the handler uses it as well, and this process' place can be
    // taken once only.
    let instead = unsafe { INSTEAD.load(SeqCst).as_mut() };
    let Some(instead) = instead.filter(|_| is_limit && JOB.load(SeqCst) == 0) else {
        return error;
    };
    errors::show(&error);
    errors::print_stderr("tprof: the command runs without a recording\n");
    let errno = instead.replacement.run(Some(&instead.original));
    not_executed(&instead.command, io::Error::from_raw_os_error(errno)).into()
}

/// Handler of SIGABRT. Its memory was prepared before.
extern "C" fn aborted(_: i32) {
    unsafe extern "C" {
        static environ: *const *const libc::c_char;
    }
    // SAFETY: set once to a leaked box, before this handler was.
    let instead = unsafe { &mut *INSTEAD.load(SeqCst) };
    let pid = JOB.load(SeqCst);
    if pid == 0 {
        const TEXT: &[u8] =
            b"error: cannot start recording\ncause: tprof lacks memory, or failed by what is \
            named above\n  try: a higher limit of memory: ulimit -v\ntprof: the command runs \
            without a recording\n";
        // SAFETY: writes live bytes.
        unsafe { libc::write(2, TEXT.as_ptr().cast(), TEXT.len()) };
        instead.replacement.run(Some(&instead.original));
    } else {
        let pid = number(pid.into());
        let status = number(STATUS.load(SeqCst));
        let words =
            [c"tprof".as_ptr(), c"__wait".as_ptr(), text(&pid), text(&status), std::ptr::null()];
        // SAFETY: an empty set, then strings that end with zero in arrays that end with null.
        unsafe {
            let mut abort: libc::sigset_t = std::mem::zeroed();
            libc::sigaddset(&mut abort, libc::SIGABRT);
            libc::sigprocmask(libc::SIG_UNBLOCK, &abort, null_mut());
            libc::execve(instead.tprof.as_ptr(), words.as_ptr(), environ);
        }
    }
    // SAFETY: ends this process.
    unsafe { libc::_exit(errors::FAILED.into()) }
}

/// Formats a number with a zero byte at the end.
fn number(value: i64) -> [u8; 24] {
    let mut digits = [0; 24];
    // Formatting needs no memory of its own, and the number fits.
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

/// Prints what happened, and waits for the job.
pub fn wait(args: &WaitArgs) -> Outcome {
    let signals = Signals::block();
    let failure = Failure::new("tprof did not finish its work on the run")
        .cause("it lacked memory, or failed by what is named above")
        .hint("a higher limit of memory: ulimit -v, and that of the job");
    errors::show(&failure.into());
    match i32::try_from(args.status) {
        Ok(status) if status >= 0 => Outcome::Ended(status),
        _ => wait::wait(args.pid, &signals, &|_| {}),
    }
}
