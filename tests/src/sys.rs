//! Makes the few system calls for which the standard library has no safe function.
#![allow(unsafe_code)]

use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;

/// Takes a lock that is released when the file is closed.
pub(crate) fn lock(file: &File) {
    // SAFETY: flock takes no pointers; the descriptor is open while `file` lives.
    while unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX) } != 0 {
        let error = std::io::Error::last_os_error();
        assert_eq!(error.kind(), std::io::ErrorKind::Interrupted, "flock: {error}");
    }
}

/// Sends a signal; false if there is no such process.
pub fn kill(pid: u32, signal: i32) -> bool {
    // SAFETY: kill takes no pointers.
    unsafe { libc::kill(pid as i32, signal) == 0 }
}

/// Sends a signal to a process group.
pub(crate) fn kill_group(group: u32, signal: i32) {
    // SAFETY: kill takes no pointers.
    unsafe { libc::kill(-(group as i32), signal) };
}

/// Whether the tests run as root, who may mount file systems and change user.
pub fn am_root() -> bool {
    // SAFETY: geteuid has no preconditions.
    unsafe { libc::geteuid() == 0 }
}

/// Whether this process may make a mount namespace with a tmpfs in it.
pub fn can_mount() -> bool {
    static CAN: OnceLock<bool> = OnceLock::new();
    *CAN.get_or_init(|| {
        Command::new("unshare")
            .args(["-m", "sh", "-c", "mount -t tmpfs tmpfs /mnt"])
            .output()
            .is_ok_and(|out| out.status.success())
    })
}

/// Returns the permission bits of a file, without following a link.
pub fn mode_of(path: &Path) -> u32 {
    path.symlink_metadata()
        .map(|m| m.mode() & 0o7777)
        .unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// Returns this machine's name, as `uname -n` prints it.
pub fn host_name() -> String {
    std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap().trim().to_owned()
}

/// Returns the fields of `/proc/PID/stat` after the process's name: state, parent, and so on.
fn stat_of(pid: u32) -> Option<Vec<String>> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    Some(stat.rsplit_once(')')?.1.split_whitespace().map(str::to_owned).collect())
}

/// Returns the state of a process, as `ps` shows it: `R`, `S`, `T`, `Z`.
pub fn state_of(pid: u32) -> Option<char> {
    stat_of(pid)?.first()?.chars().next()
}

/// Returns the pid and the parent of each process.
fn parents() -> Vec<(u32, u32)> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    pids.filter_map(|pid| Some((pid, stat_of(pid)?.get(1)?.parse().ok()?))).collect()
}

/// Returns the children of a process.
pub fn children_of(parent: u32) -> Vec<u32> {
    parents().into_iter().filter(|(_, p)| *p == parent).map(|(pid, _)| pid).collect()
}

/// Kills a process and all its descendants, including children that left its group.
pub(crate) fn kill_tree(root: u32) {
    let mut doomed = vec![root];
    let parents = parents();
    let mut at = 0;
    while at < doomed.len() {
        let parent = doomed[at];
        doomed.extend(parents.iter().filter(|(_, p)| *p == parent).map(|(pid, _)| *pid));
        at += 1;
    }
    kill_group(root, libc::SIGKILL);
    for pid in doomed {
        kill(pid, libc::SIGKILL);
    }
}
