//! Finds the file systems of paths, in the mounts that `/proc/PID/mountinfo` lists.
//!
//! Nothing here asks a file system that may be on another host, because a call on a mount whose
//! server has gone doesn't return: symbolic links are followed only on local file systems.

use std::fs::read_link;
use std::path::{Component, Path, PathBuf};

/// Maximum number of symbolic links that are followed, as in the kernel.
const MAX_LINKS: u32 = 40;

/// Where the files of a file system are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Storage {
    /// They are kept in memory, as in tmpfs.
    Memory,
    /// They are kept on a block device of this host.
    Disk,
    /// They are kept on another host.
    Network,
    /// It is unknown: the type is FUSE, or isn't listed here.
    Other,
}

/// A file system that is mounted somewhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// The directory at which it is mounted.
    pub at: PathBuf,
    /// Its type, such as `ext4` or `nfs4`.
    pub kind: String,
    /// What is mounted, such as `/dev/sda1` or `server:/export`.
    pub source: String,
}

impl Mount {
    /// Where its files are kept.
    pub fn storage(&self) -> Storage {
        match self.kind.as_str() {
            "tmpfs" | "ramfs" | "rootfs" | "hugetlbfs" | "devtmpfs" => Storage::Memory,
            "ext2" | "ext3" | "ext4" | "xfs" | "btrfs" | "f2fs" | "bcachefs" | "overlay"
            | "squashfs" | "erofs" | "iso9660" | "udf" | "vfat" | "exfat" | "ntfs3" => {
                Storage::Disk
            }
            "nfs" | "nfs4" | "cifs" | "smb3" | "9p" | "ceph" | "lustre" | "gpfs" | "beegfs"
            | "afs" | "glusterfs" | "virtiofs" | "wekafs" => Storage::Network,
            _ => Storage::Other,
        }
    }

    /// Whether the kernel counts what it reads from this file system's storage for a thread
    /// (`read_bytes` in `/proc/PID/io`). It does so in its block layer and in NFS.
    pub fn counts_reads(&self) -> bool {
        match self.storage() {
            Storage::Memory | Storage::Disk => true,
            Storage::Network => matches!(self.kind.as_str(), "nfs" | "nfs4"),
            Storage::Other => false,
        }
    }
}

/// The mounts that a process sees.
#[derive(Clone, Debug, Default)]
pub struct Mounts {
    /// The directory through which the process's root can be reached.
    root: PathBuf,
    /// In the order in which they were mounted.
    mounts: Vec<Mount>,
}

impl Mounts {
    /// Reads the mounts of a process; `None` if they can't be read.
    pub fn of(pid: u32) -> Option<Mounts> {
        let text = std::fs::read(format!("/proc/{pid}/mountinfo")).ok()?;
        let text = String::from_utf8_lossy(&text);
        let mounts = text.lines().filter_map(parsed).collect();
        Some(Mounts { root: format!("/proc/{pid}/root").into(), mounts })
    }

    /// Returns the file system of the directory with this absolute path; `None` if no mount has it.
    pub fn of_directory(&self, path: &Path) -> Option<&Mount> {
        let mut links = 0;
        let mut seen = PathBuf::from("/");
        let mut mount = self.mounted_above(&seen);
        let mut rest: Vec<PathBuf> = reversed(path);
        while let Some(part) = rest.pop() {
            if part.as_os_str() == ".." {
                seen.pop();
                mount = self.mounted_above(&seen);
                continue;
            }
            seen.push(part);
            mount = self.mounted_above(&seen);
            if !mount.is_some_and(|at| matches!(at.storage(), Storage::Memory | Storage::Disk)) {
                // Another host isn't asked whether this is a link.
                continue;
            }
            let within_root = seen.strip_prefix("/").unwrap_or(&seen);
            let Ok(target) = read_link(self.root.join(within_root)) else { continue };
            links += 1;
            if links > MAX_LINKS {
                return None;
            }
            seen.pop();
            if target.is_absolute() {
                seen = PathBuf::from("/");
            }
            rest.extend(reversed(&target));
        }
        mount
    }

    /// Returns the mount with the longest path that a path begins with; of several at one place the
    /// last, which hides the others.
    fn mounted_above(&self, path: &Path) -> Option<&Mount> {
        let above = self.mounts.iter().filter(|mount| path.starts_with(&mount.at));
        above.max_by_key(|mount| mount.at.as_os_str().len())
    }
}

/// Returns the parts of a path below the root, the last one first.
fn reversed(path: &Path) -> Vec<PathBuf> {
    let part = |part: Component<'_>| match part {
        Component::Normal(_) | Component::ParentDir => Some(PathBuf::from(part.as_os_str())),
        _ => None,
    };
    path.components().rev().filter_map(part).collect()
}

/// Parses a line of `mountinfo`, which proc(5) describes.
fn parsed(line: &str) -> Option<Mount> {
    let (before, after) = line.split_once(" - ")?;
    let at = before.split(' ').nth(4)?;
    let mut after = after.split(' ');
    let (kind, source) = (after.next()?, after.next().unwrap_or_default());
    Some(Mount { at: unescaped(at).into(), kind: kind.to_owned(), source: unescaped(source) })
}

/// Undoes the kernel's escapes of spaces, tabs, newlines and backslashes.
fn unescaped(text: &str) -> String {
    let escapes = [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")];
    escapes.iter().fold(text.to_owned(), |text, (escape, plain)| text.replace(escape, plain))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    const LINES: &str = "\
22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
23 22 0:21 / /tmp rw - tmpfs tmpfs rw
24 22 0:50 /x /mnt/my\\040data rw shared:5 master:2 - nfs4 server:/export rw,vers=4.2
25 22 0:51 / /mnt rw - fuse.sshfs me@host: rw
26 23 0:52 / /tmp rw - ext4 /dev/loop0 rw
";

    fn mounts(root: &Path) -> Mounts {
        Mounts { root: root.to_owned(), mounts: LINES.lines().filter_map(parsed).collect() }
    }

    #[test]
    fn the_longest_mount_point_above_a_path_is_its_file_system() {
        let dir = tempfile::tempdir().unwrap();
        let mounts = mounts(dir.path());
        let of = |path: &str| {
            let mount = mounts.of_directory(Path::new(path)).unwrap();
            (mount.kind.as_str(), mount.source.as_str(), mount.counts_reads())
        };
        assert_eq!(of("/"), ("ext4", "/dev/sda1", true));
        assert_eq!(of("/mntx/a"), ("ext4", "/dev/sda1", true));
        assert_eq!(of("/mnt/a"), ("fuse.sshfs", "me@host:", false));
        assert_eq!(of("/mnt/my data/a"), ("nfs4", "server:/export", true));
        assert_eq!(of("/tmp/a"), ("ext4", "/dev/loop0", true), "the last mount hides the first");
        assert_eq!(of("/mnt/../tmp/a"), ("ext4", "/dev/loop0", true));
    }

    #[test]
    fn links_of_local_directories_are_followed() {
        let dir = tempfile::tempdir().unwrap();
        let make = |path: &str| std::fs::create_dir_all(dir.path().join(path)).unwrap();
        make("mnt/my data/set");
        make("home/me");
        symlink("/mnt/my data/set", dir.path().join("data")).unwrap();
        symlink("../../data/../set", dir.path().join("home/me/work")).unwrap();
        symlink("loop", dir.path().join("loop")).unwrap();
        let mounts = mounts(dir.path());
        let of = |path: &str| mounts.of_directory(Path::new(path)).map(|mount| &*mount.kind);
        assert_eq!(of("/data/train"), Some("nfs4"));
        assert_eq!(of("/home/me/work/train"), Some("nfs4"));
        assert_eq!(of("/home/me/train"), Some("ext4"));
        assert_eq!(of("/loop/a"), None);
    }

    #[test]
    fn this_process_has_a_root() {
        let mounts = Mounts::of(std::process::id()).unwrap();
        assert!(mounts.of_directory(Path::new("/")).is_some());
        assert!(Mounts::of(u32::MAX).is_none());
    }
}
