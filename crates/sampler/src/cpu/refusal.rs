//! Explains why the kernel refuses perf events.

use std::io;
use tprof_os::proc;

/// Explains why counters could not be opened, and what would permit them.
pub fn why_refused(error: &io::Error) -> String {
    let level = proc::setting("kernel/perf_event_paranoid");
    match error.raw_os_error() {
        Some(libc::EACCES | libc::EPERM) => refused_at(level.as_deref()),
        Some(libc::ENOSYS) => {
            "this kernel, or a seccomp profile, has no perf_event_open".to_owned()
        }
        Some(libc::EMFILE | libc::ENFILE) => {
            "too many counters: one for each thread and processor".to_owned()
        }
        Some(libc::ESRCH) => "the process is gone".to_owned(),
        _ => format!("perf_event_open failed: {error}"),
    }
}

/// Explains a refusal by the level of `kernel.perf_event_paranoid`. Levels up to 2 permit counters,
/// so at these levels something else has refused.
fn refused_at(level: Option<&str>) -> String {
    match level.map(|level| (level.trim(), level.trim().parse::<i32>())) {
        Some((_, Ok(level @ 3..))) => format!(
            "perf_event_open is not permitted (kernel.perf_event_paranoid is {level}); `sysctl \
             kernel.perf_event_paranoid=1` or CAP_PERFMON permits it"
        ),
        Some((level, _)) => format!(
            "perf_event_open is refused although kernel.perf_event_paranoid is {level}: by a \
             seccomp profile, as in most containers; `--cap-add PERFMON` permits it"
        ),
        None => "perf_event_open is not permitted, by a seccomp profile or the kernel".to_owned(),
    }
}

/// Explains why hardware counters could not be opened. The error of a machine without such counters
/// differs from that of a kernel that forbids them.
pub(super) fn why_no_hardware(error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(libc::ENOENT | libc::EOPNOTSUPP | libc::ENODEV) => {
            "the CPU's counters are not available here (common in virtual machines)".to_owned()
        }
        _ => why_refused(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_says_what_would_permit_counters() {
        assert!(refused_at(Some("3\n")).contains("sysctl kernel.perf_event_paranoid=1"));
        let profile = refused_at(Some("2\n"));
        assert!(profile.contains("seccomp") && !profile.contains("sysctl"), "{profile}");
        assert!(refused_at(None).contains("not permitted"));
    }

    #[test]
    fn missing_and_forbidden_counters_have_different_reasons() {
        let why = |code| why_no_hardware(&io::Error::from_raw_os_error(code));
        for code in [libc::ENOENT, libc::EOPNOTSUPP, libc::ENODEV] {
            assert!(why(code).contains("are not available here"), "{}", why(code));
        }
        for code in [libc::EACCES, libc::EPERM] {
            assert!(why(code).contains("perf_event_open is"), "{}", why(code));
        }
    }
}
