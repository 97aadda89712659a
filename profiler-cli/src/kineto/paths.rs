//! The directories in which the job finds the daemon and writes its traces, and the variables that
//! name these directories.

use std::ffi::{OsStr, OsString};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use tempfile::TempDir;
use tprof_collect::{Owned, PREFIX};
use tprof_ui::errors::{Failure, reason, remedy};

/// Directory of the windows within a run; it is itself a run.
pub const HOME: &str = "kineto";
/// Name of the socket that Kineto expects.
const SOCKET: &str = "dynolog";
/// Prefix of the names of the directories for sockets.
const PURPOSE: &str = "kineto-";
/// Longest path of a directory for sockets. Kineto creates sockets with names of 36 random
/// characters in it, and the address of a socket is limited to 107 bytes.
const MOST_BYTES: usize = 52;
/// Kineto's system-wide settings file.
const SETTINGS: &str = "/etc/libkineto.conf";
/// Setting that makes Kineto ask as often as possible.
const FREQUENT: &str = "ON_DEMAND_CONFIG_UPDATE_INTERVAL_SECS=1\n";
/// A log level above all messages that Kineto prints.
const SILENT: &str = "5";

const SOCKET_DIRECTORY: &str = "KINETO_IPC_SOCKET_DIR";
const CONFIGURATION: &str = "KINETO_CONFIG";
const LOG_LEVEL: &str = "KINETO_LOG_LEVEL";

/// The directories of a run's daemon.
#[derive(Debug)]
pub struct DaemonPaths {
    /// Private directory of the daemon's socket.
    sockets: TempDir,
    /// Directory in which traces arrive, and which holds the run that is imported from them.
    pub home: PathBuf,
    _owned: Option<Owned>,
}

impl DaemonPaths {
    /// Creates the directories for the daemon of a run.
    pub fn new(run: &Path) -> Result<DaemonPaths, Failure> {
        let given = std::env::var_os(SOCKET_DIRECTORY).unwrap_or_default();
        if is_of_another_daemon(&given) {
            return Err(cannot()
                .cause(format!("{SOCKET_DIRECTORY} leads to another daemon"))
                .hint(format!("unset {SOCKET_DIRECTORY}")));
        }
        let made = [std::env::temp_dir(), "/tmp".into(), "/dev/shm".into()];
        let made = made.iter().filter(|base| base.is_absolute()).map(|base| private_in(base));
        let sockets = made.reduce(|first, next| first.or(next)).and_then(Result::ok);
        let sockets = sockets.ok_or_else(|| {
            cannot()
                .cause("no directory with a short path could be created for its socket")
                .hint("set TMPDIR to a writable directory with a short path")
        })?;
        let home = run.join(HOME);
        std::fs::create_dir_all(&home).map_err(|error| {
            cannot()
                .cause(format!("`{}` cannot be created: {}", home.display(), reason(&error)))
                .hint(remedy(&error, "-o with a writable directory"))
        })?;
        let owned = tprof_collect::claim(sockets.path()).ok();
        Ok(DaemonPaths { sockets, home, _owned: owned })
    }

    /// Returns the absolute path of the socket. Kineto aborts its process if an answer comes from
    /// any other path.
    pub fn socket(&self) -> PathBuf {
        self.sockets.path().join(SOCKET)
    }

    /// Returns the variables to set for the job. Variables that the job sets itself are left alone.
    pub fn environment(&self) -> Vec<(OsString, OsString)> {
        // Kineto uses the value as a prefix of paths, so it ends with a slash.
        let mut home = self.home.clone().into_os_string();
        home.push("/");
        let mut pairs: Vec<(&str, OsString)> = vec![
            ("KINETO_USE_DAEMON", "1".into()),
            (SOCKET_DIRECTORY, self.sockets.path().into()),
            ("KINETO_ONDEMAND_TRACE_DIR", home),
        ];
        let settings = self.sockets.path().join("libkineto.conf");
        if std::env::var_os(CONFIGURATION).is_none()
            && !Path::new(SETTINGS).exists()
            && std::fs::write(&settings, FREQUENT).is_ok()
        {
            pairs.push((CONFIGURATION, settings.into()));
        }
        if std::env::var_os(LOG_LEVEL).is_none() {
            pairs.push((LOG_LEVEL, SILENT.into()));
        }
        pairs.into_iter().map(|(name, value)| (name.into(), value)).collect()
    }
}

impl Drop for DaemonPaths {
    fn drop(&mut self) {
        // This fails, as intended, while the directory is not empty.
        let _ = std::fs::remove_dir(&self.home);
    }
}

/// Returns the error without a cause: the window cannot be requested.
pub fn cannot() -> Failure {
    Failure::new("cannot ask for a window of PyTorch's profiler (--kineto)")
}

/// Whether the variable names a daemon of the user's. The daemon of an outer recording by tprof
/// doesn't count, because it may be replaced.
fn is_of_another_daemon(given: &OsStr) -> bool {
    let name = Path::new(given).file_name().unwrap_or_default().to_string_lossy();
    !given.is_empty() && !name.starts_with(&format!("{PREFIX}{PURPOSE}"))
}

fn private_in(base: &Path) -> std::io::Result<TempDir> {
    let directory = tempfile::Builder::new()
        .prefix(&format!("{PREFIX}{PURPOSE}"))
        .permissions(std::fs::Permissions::from_mode(0o700))
        .tempdir_in(base)?;
    match directory.path().as_os_str().len() <= MOST_BYTES {
        true => Ok(directory),
        false => Err(std::io::ErrorKind::InvalidFilename.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_users_daemon_stays_and_that_of_an_outer_recording_is_replaced() {
        assert!(is_of_another_daemon(OsStr::new("/run/dynolog")));
        assert!(!is_of_another_daemon(OsStr::new("/tmp/tprof-kineto-1a2b3c")));
        assert!(!is_of_another_daemon(OsStr::new("")));
    }

    #[test]
    fn a_directory_without_traces_is_removed_and_one_with_a_trace_stays() {
        let run = tempfile::tempdir().unwrap();
        drop(DaemonPaths::new(run.path()).unwrap());
        assert!(!run.path().join(HOME).exists());
        let paths = DaemonPaths::new(run.path()).unwrap();
        std::fs::write(paths.home.join("rank-0_7.json"), "{}").unwrap();
        let socket = paths.socket();
        assert!(socket.is_absolute() && socket.parent().unwrap().is_dir());
        drop(paths);
        assert!(run.path().join(HOME).is_dir() && !socket.parent().unwrap().exists());
    }
}
