//! Where a process's NCCL writes its log (`--nccl log`). [`crate::targets`] reads the log when the
//! process has ended.

use super::nccl_conf;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use tprof_os::variables::Variables;
use tprof_os::{proc, sys};
use tprof_wire::env;

/// Directory of the logs in a run.
const DIRECTORY: &str = "nccl";
/// Ending of the logs' names.
const ENDING: &str = ".log";

/// Returns the variables by which NCCL writes its log into the run. None if the job or a
/// configuration file of NCCL decides itself where NCCL logs, or if the directory can't be created:
/// NCCL would log among the job's own output.
pub fn variables(
    run: &Path,
    given: &dyn Fn(&str) -> Option<OsString>,
) -> Vec<(&'static str, OsString)> {
    let is_given = |name| given(name).is_some() || nccl_conf::sets(given, name);
    let home = run.join(DIRECTORY);
    if [env::NCCL_DEBUG, env::NCCL_DEBUG_FILE].into_iter().any(is_given)
        || std::fs::create_dir_all(&home).is_err()
    {
        return Vec::new();
    }
    let home = home.canonicalize().unwrap_or(home);
    let mut path = Vec::new();
    for byte in home.as_os_str().as_bytes() {
        path.extend(std::iter::repeat_n(*byte, if *byte == b'%' { 2 } else { 1 }));
    }
    path.extend_from_slice(b"/%h.%p");
    path.extend_from_slice(ENDING.as_bytes());
    vec![(env::NCCL_DEBUG, "INFO".into()), (env::NCCL_DEBUG_FILE, OsString::from_vec(path))]
}

/// Returns the path of a process's log; `None` if NCCL logs too little for the connections, or among
/// the process's output. `pid` is in the collector's namespace, `own_pid` in the process's.
pub fn path(environ: &Variables<'_>, pid: u32, own_pid: u32) -> Option<PathBuf> {
    let level = environ.value(env::NCCL_DEBUG)?;
    let is_enough = ["INFO", "TRACE", "ABORT"]
        .iter()
        .any(|enough| level.eq_ignore_ascii_case(enough.as_bytes()));
    let file = environ.value(env::NCCL_DEBUG_FILE).filter(|file| is_enough && !file.is_empty())?;
    let path = expand(file, &sys::host_name(), own_pid);
    if path.is_absolute() {
        return Some(path);
    }
    Some(proc::working_directory_of(pid)?.join(path))
}

/// Returns the paths of the logs in a run.
pub fn logs(run: &Path) -> impl Iterator<Item = PathBuf> {
    let entries = std::fs::read_dir(run.join(DIRECTORY)).into_iter().flatten().flatten();
    let is_log = |path: &PathBuf| path.to_string_lossy().ends_with(ENDING);
    entries.map(|entry| entry.path()).filter(is_log)
}

/// Removes the directory of the logs, if NCCL wrote none.
pub fn remove_if_empty(run: &Path) {
    let _ = std::fs::remove_dir(run.join(DIRECTORY));
}

/// Fills in host and pid, as NCCL does: the host's name ends at the first dot.
fn expand(pattern: &[u8], host: &str, pid: u32) -> PathBuf {
    let host = host.split('.').next().unwrap_or_default().replace(['%', '/'], "-");
    let mut path = Vec::new();
    let mut rest = pattern.iter();
    while let Some(byte) = rest.next() {
        if *byte != b'%' {
            path.push(*byte);
            continue;
        }
        match rest.next() {
            Some(b'%') => path.push(b'%'),
            Some(b'h') => path.extend_from_slice(host.as_bytes()),
            Some(b'p') => path.extend_from_slice(pid.to_string().as_bytes()),
            other => path.extend([b'%'].iter().chain(other)),
        }
    }
    PathBuf::from(OsStr::from_bytes(&path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_is_filled_in_as_by_nccl() {
        let of = |pattern: &[u8]| expand(pattern, "node-1.cluster/x", 71);
        assert_eq!(of(b"/run/100%%/%h.%p.log"), Path::new("/run/100%/node-1.71.log"));
        assert_eq!(of(b"%x%"), Path::new("%x%"));
    }

    #[test]
    fn a_log_among_the_output_or_with_too_little_is_not_read() {
        let of = |environ: &[u8]| path(&Variables::of(environ), 1, 71);
        let named = b"NCCL_DEBUG=info\0NCCL_DEBUG_FILE=/x/%p\0";
        assert_eq!(of(named), Some("/x/71".into()));
        assert_eq!(of(b"NCCL_DEBUG=WARN\0NCCL_DEBUG_FILE=/x/%p\0"), None);
        assert_eq!(of(b"NCCL_DEBUG=INFO\0"), None);
    }

    #[test]
    fn the_run_gets_the_log_unless_the_job_has_decided() {
        let run = tempfile::tempdir().unwrap();
        let home = run.path().join("100%");
        let set = variables(&home, &|_| None);
        assert_eq!(set[0], ("NCCL_DEBUG", "INFO".into()));
        assert!(set[1].1.to_string_lossy().ends_with("100%%/nccl/%h.%p.log"));
        let given = |name: &str| (name == "NCCL_DEBUG").then(|| "VERSION".into());
        assert!(variables(&home, &given).is_empty());
        let file = run.path().join("file");
        std::fs::write(&file, "").unwrap();
        assert!(variables(&file, &|_| None).is_empty());
    }
}
