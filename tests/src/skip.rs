//! Skips a test that can't run on this machine, and prints why.
//!
//! In continuous integration, everything that a package can install is there, so a skipped test is
//! a failure: with `TPROF_TEST_SKIP=forbid`, a test may be skipped only for the reasons in
//! [`Refused`], which no package can provide.

use serde_json::Value;
use std::io::Write;

/// Features that a machine may refuse to its users, whatever is installed: by the kernel's
/// settings, in a container, or in a sandbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// `perf_event_open`: `kernel.perf_event_paranoid`, or a seccomp filter.
    PerfEvents,
    /// Samples of the kernel's own code, which need an additional privilege for perf events.
    KernelFrames,
    /// Hiding the names in `/proc/kallsyms` from the job.
    KernelNames,
    /// Seeing the kernel's threads: a container has process ids of its own.
    KernelThreads,
    /// A memory cgroup with a limit: the cgroup hierarchy is mounted without the memory controller,
    /// or read-only.
    MemoryCgroup,
    /// A limit of a disk's rate: no cgroup hierarchy (version 1) has the block controller, or it is
    /// read-only, or the file system is on no disk.
    DiskLimit,
    /// A mount namespace with a file system in it.
    Mounts,
    /// User namespaces for an ordinary user, which a browser needs for its sandbox.
    UserNamespaces,
    /// The privileges of root.
    Root,
    /// Set-user-id files: the file system is mounted without them.
    SetUserId,
    /// Real traces, which are not part of the sources (`TPROF_SHARED_DATA`).
    RealTraces,
    /// PyTorch, which no test installs: `TPROF_TEST_TORCH` names a Python that has it.
    PyTorch,
    /// The tested program itself does not run here, even without tprof.
    Untraced,
}

impl Refused {
    fn why(self) -> &'static str {
        match self {
            Refused::PerfEvents => "perf_event_open is not permitted here",
            Refused::KernelFrames => "the kernel's frames are not sampled here",
            Refused::KernelNames => "the kernel's names cannot be hidden here",
            Refused::KernelThreads => "the kernel's threads cannot be seen here",
            Refused::MemoryCgroup => "no memory cgroup can be made here",
            Refused::DiskLimit => "no disk's rate can be limited here",
            Refused::Mounts => "no mount namespace can be had",
            Refused::UserNamespaces => "an ordinary user makes no namespaces here",
            Refused::Root => "only root can do that",
            Refused::SetUserId => "set-user-id has no effect here",
            Refused::RealTraces => "there are no real traces (TPROF_SHARED_DATA)",
            Refused::PyTorch => "no Python with PyTorch is named (TPROF_TEST_TORCH)",
            Refused::Untraced => "the program does not run here without tprof either",
        }
    }
}

/// Why a test is skipped.
#[derive(Clone, Debug)]
pub enum Why {
    /// The machine does not permit it.
    Refused(Refused),
    /// Something that can be installed is missing.
    Missing(String),
}

impl From<Refused> for Why {
    fn from(refused: Refused) -> Why {
        Why::Refused(refused)
    }
}

impl From<&str> for Why {
    fn from(missing: &str) -> Why {
        Why::Missing(missing.to_owned())
    }
}

impl From<String> for Why {
    fn from(missing: String) -> Why {
        Why::Missing(missing)
    }
}

/// Returns the text to print, or the error with which the test fails.
fn judged(why: Why, is_forbidden: bool) -> Result<String, String> {
    match why {
        Why::Refused(refused) => Ok(refused.why().to_owned()),
        Why::Missing(missing) if is_forbidden => {
            Err(format!("{missing}, and TPROF_TEST_SKIP=forbid wants it installed"))
        }
        Why::Missing(missing) => Ok(missing),
    }
}

/// Prints why a test does not run here. It bypasses the test harness's capture, so that the line is
/// on the terminal even though the test passes. Fails the test if the missing thing must be there.
#[track_caller]
pub fn skip(why: impl Into<Why>) {
    skip_for(why, "");
}

/// Does the same as [`skip`], and prints details that show the reason.
#[track_caller]
pub fn skip_for(why: impl Into<Why>, details: &str) {
    let is_forbidden = std::env::var_os("TPROF_TEST_SKIP").is_some_and(|how| how == "forbid");
    let why = judged(why.into(), is_forbidden).unwrap_or_else(|why| panic!("{why} {details}"));
    let thread = std::thread::current();
    let test = thread.name().unwrap_or("test");
    let _ = writeln!(std::io::stderr(), "skipped: {test}: {why} {details}");
}

/// Whether a report's run sampled compiled code.
pub fn has_native(report: &Value) -> bool {
    let blind =
        report["completeness"]["blind"].as_array().expect("every report lists blind processes");
    blind.iter().all(|entry| entry["what"] != "CPU samples of native code")
}

/// Does the same as [`has_native`], and prints that the test is skipped if the result is false.
#[track_caller]
pub fn has_native_or_skip(report: &Value) -> bool {
    let has = has_native(report);
    if !has {
        skip(Refused::PerfEvents);
    }
    has
}

/// Skips a test and prints why, unless the condition holds.
#[macro_export]
macro_rules! need {
    ($holds:expr, $why:expr) => {
        if !$holds {
            return $crate::skip($why);
        }
    };
}

/// Returns the value, or skips the test and prints why there is none.
#[macro_export]
macro_rules! need_some {
    ($value:expr) => {
        match $value {
            Ok(value) => value,
            Err(why) => return $crate::skip(why),
        }
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_tool_fails_where_skips_are_forbidden_and_a_refusal_does_not() {
        let missing = || Why::from("there is no musl-gcc");
        assert_eq!(judged(missing(), false).unwrap(), "there is no musl-gcc");
        assert!(judged(missing(), true).unwrap_err().starts_with("there is no musl-gcc, and"));
        for is_forbidden in [false, true] {
            assert!(judged(Refused::PerfEvents.into(), is_forbidden).is_ok());
        }
    }
}
