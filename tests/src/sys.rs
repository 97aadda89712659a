//! Makes system calls for which the standard library has no safe function, and asks about
//! processes, files and the rights of the tests.
#![allow(unsafe_code)]

use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;

/// Waits for the exclusive lock of a file (`flock`). Closing the file releases it.
pub(crate) fn lock(file: &File) {
    // SAFETY: flock takes no pointers; the descriptor is open while `file` lives.
    while unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX) } != 0 {
        let error = std::io::Error::last_os_error();
        assert_eq!(error.kind(), std::io::ErrorKind::Interrupted, "flock: {error}");
    }
}

/// Sends a signal. Returns false if there is no such process, or if it belongs to another user.
/// Signalling a zombie succeeds.
pub fn kill(pid: u32, signal: i32) -> bool {
    // SAFETY: kill takes no pointers.
    unsafe { libc::kill(pid as i32, signal) == 0 }
}

/// Sends a signal to a process group, if it still exists.
pub(crate) fn kill_group(group: u32, signal: i32) {
    // SAFETY: kill takes no pointers.
    unsafe { libc::kill(-(group as i32), signal) };
}

/// Whether the tests run as root, who may change user and, outside of containers, mount file
/// systems.
pub fn am_root() -> bool {
    // SAFETY: geteuid has no preconditions.
    unsafe { libc::geteuid() == 0 }
}

/// Whether this process may make a mount namespace and mount a tmpfs in it.
pub fn can_mount() -> bool {
    static CAN: OnceLock<bool> = OnceLock::new();
    *CAN.get_or_init(|| {
        Command::new("unshare")
            .args(["-m", "sh", "-c", "mount -t tmpfs tmpfs /mnt"])
            .output()
            .is_ok_and(|out| out.status.success())
    })
}

/// Returns the permission bits of a file, including set-user-ID, set-group-ID and sticky. Of a
/// symbolic link, returns its own. Panics if there is no such file.
pub fn mode_of(path: &Path) -> u32 {
    path.symlink_metadata()
        .map(|metadata| metadata.mode() & 0o7777)
        .unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Returns this machine's name, as `uname -n` prints it.
pub fn host_name() -> String {
    std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap().trim().to_owned()
}

/// Returns the fields of `/proc/PID/stat` after the process's name: state, parent, and so on;
/// `None` if there is no such process.
fn stat_of(pid: u32) -> Option<Vec<String>> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    Some(stat.rsplit_once(')')?.1.split_whitespace().map(str::to_owned).collect())
}

/// Returns the state of a process, as `ps` shows it: `R`, `S`, `T`, `Z` and others; `None` if there
/// is no such process.
pub fn state_of(pid: u32) -> Option<char> {
    stat_of(pid)?.first()?.chars().next()
}

/// Returns the pid of each process, and its parent's.
fn pids_and_parents() -> Vec<(u32, u32)> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    pids.filter_map(|pid| Some((pid, stat_of(pid)?.get(1)?.parse().ok()?))).collect()
}

/// Returns the pids of a process's children, zombies included.
pub fn children_of(parent: u32) -> Vec<u32> {
    pids_and_parents().into_iter().filter(|(_, of)| *of == parent).map(|(pid, _)| pid).collect()
}

/// Kills the process group that a process leads, the process itself and all its descendants,
/// including those that left the group.
pub(crate) fn kill_tree(root: u32) {
    let mut pids = vec![root];
    let processes = pids_and_parents();
    let mut next = 0;
    while let Some(&parent) = pids.get(next) {
        pids.extend(processes.iter().filter(|(_, of)| *of == parent).map(|(pid, _)| *pid));
        next += 1;
    }
    kill_group(root, libc::SIGKILL);
    for pid in pids {
        kill(pid, libc::SIGKILL);
    }
}
