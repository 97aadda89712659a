//! The job outlives a tprof that cannot go on: one that lacks memory, threads or descriptors from
//! the start, and one that Rust aborts later, as it does where an allocation fails.
//!
//! Before the job runs, it takes tprof's place, unrecorded. While it runs, and after, a fresh tprof takes
//! the place of this one, which the job has as its parent: [`wait()`] ends as the job ended.
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

/// The hidden command.
pub const WAIT: &str = "__wait";
/// Of a job that has not ended; no status of a job.
const RUNS: i64 = -1;

/// How a command takes tprof's place, and the program of tprof.
struct Fallback {
    command: OsString,
    replacement: Replacement,
    original: InheritedState,
    tprof: CString,
}

/// Set once, and never freed.
static INSTEAD: AtomicPtr<Fallback> = AtomicPtr::new(null_mut());
/// The job's process, once it runs.
static JOB: AtomicI32 = AtomicI32::new(0);
/// How it ended.
static STATUS: AtomicI64 = AtomicI64::new(RUNS);

/// Prepares for the worst. `original`: what the job must find.
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

/// Notes that the job runs.
pub fn job_runs(pid: i32) {
    JOB.store(pid, SeqCst);
}

/// Notes how waiting for it ended.
pub fn job_ended(outcome: Outcome) {
    if let Outcome::Ended(status) = outcome {
        STATUS.store(status.into(), SeqCst);
    }
}

/// Where a limit kept tprof from recording, the job runs without it, in this process' place; any
/// other failure comes back.
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

/// The handler of SIGABRT. Memory was prepared before.
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

/// A number's digits with a zero at the end.
fn number(value: i64) -> [u8; 24] {
    let mut digits = [0; 24];
    // Formats without memory of its own, and fits.
    let _ = write!(&mut digits[..], "{value}");
    digits
}

fn text(digits: &[u8; 24]) -> *const libc::c_char {
    digits.as_ptr().cast()
}

/// A job whose tprof is gone.
#[derive(Args, Debug)]
pub struct WaitArgs {
    /// The job's process id.
    pid: i32,
    /// The job's wait status; below zero while it runs.
    #[arg(allow_hyphen_values = true)]
    status: i64,
}

/// Says what happened, and waits for the job.
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
