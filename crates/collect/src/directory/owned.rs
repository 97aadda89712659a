//! Claims private directories in shared places such as /tmp, and removes those whose owner was
//! killed. Each directory contains a file that names its owner, who keeps it locked. If the owner
//! was killed, the next tprof of the same user removes the directory.
//!
//! A directory is removed only if all of this is true:
//!
//! - Its name has the prefix of tprof's directories.
//! - It is a directory of this user, closed to others, and not a link.
//! - A process of this machine has written the owner's file there since the last boot. A shared
//!   /tmp may contain directories of other hosts, and a copy is recognized by its inode.
//! - No process has locked that file, or the file of a collector in charge of a session.

use super::lock;
use super::names::{LOCK, OWNER};
use serde::{Deserialize, Serialize};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use tprof_os::sys;

/// Prefix of the names of private directories.
pub const PREFIX: &str = "tprof-";
/// A value in every owner's file, by which it is recognized.
const MAGIC: &str = "tprof directory 1";
/// Largest size of an owner's file, bytes.
const OWNER_BYTES: u64 = 4096;
/// Largest number of entries of a shared place that are listed, and of directories that are
/// examined. So a sweep takes at most some milliseconds.
const MAX_ENTRIES: usize = 10_000;
const MAX_EXAMINED: usize = 64;

/// Returns the id of this machine's current boot.
fn boot() -> Option<String> {
    let text = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    Some(text.trim().to_owned()).filter(|boot| !boot.is_empty())
}

/// The content of an owner's file.
#[derive(Serialize, Deserialize)]
struct OwnerFile {
    magic: String,
    boot: String,
    /// Pid of the owner, for people who read the file.
    pid: u32,
    /// Inode of the file itself. A copy of the file has another inode.
    inode: u64,
}

/// A claim on a directory. The owner's file stays locked until this is dropped.
#[derive(Debug)]
pub struct Owned {
    _locked: File,
}

/// Claims a private directory for this process. If the directory's owner has ended, this process
/// becomes its owner.
pub fn claim(directory: &Path) -> io::Result<Owned> {
    let boot = boot().ok_or(io::ErrorKind::Unsupported)?;
    let mut file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .custom_flags(libc::O_NOFOLLOW)
        .open(directory.join(OWNER))?;
    file.try_lock()?;
    let inode = file.metadata()?.ino();
    let owner = OwnerFile { magic: MAGIC.to_owned(), boot, pid: std::process::id(), inode };
    file.set_len(0)?;
    file.rewind()?;
    file.write_all(&serde_json::to_vec(&owner)?)?;
    Ok(Owned { _locked: file })
}

/// Removes the directories in these places whose owner has ended, and returns their number.
pub fn sweep(places: &[PathBuf]) -> usize {
    let Some(boot) = boot() else { return 0 };
    let mut swept = 0;
    for (at, place) in places.iter().enumerate() {
        if places[..at].contains(place) {
            continue;
        }
        let Ok(entries) = fs::read_dir(place) else { continue };
        let named = |entry: &fs::DirEntry| {
            entry.file_name().as_encoded_bytes().starts_with(PREFIX.as_bytes())
        };
        let ours = entries.take(MAX_ENTRIES).flatten().filter(named).take(MAX_EXAMINED);
        swept += ours.filter(|entry| sweep_one(&entry.path(), &boot).is_some()).count();
    }
    swept
}

/// Removes a directory if its owner has ended.
fn sweep_one(directory: &Path, boot: &str) -> Option<()> {
    let meta = fs::symlink_metadata(directory).ok()?;
    let closed = meta.permissions().mode() & 0o077 == 0;
    if !meta.is_dir() || meta.uid() != sys::user() || !closed {
        return None;
    }
    let mut file = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
        .open(directory.join(OWNER))
        .ok()?;
    let held = file.metadata().ok()?;
    if !held.is_file() || held.uid() != sys::user() {
        return None;
    }
    let mut text = Vec::new();
    (&mut file).take(OWNER_BYTES).read_to_end(&mut text).ok()?;
    let owner: OwnerFile = serde_json::from_slice(&text).ok()?;
    if owner.magic != MAGIC || owner.boot != boot || owner.inode != held.ino() {
        return None;
    }
    file.try_lock().ok()?;
    // A collector on demand locks this file before it takes charge of a session.
    let _charge = lock::lock(directory, LOCK).ok()??;
    // Another sweep may have removed the directory, and a new one may have the name.
    let now = fs::symlink_metadata(directory.join(OWNER)).ok()?;
    if (now.dev(), now.ino()) != (held.dev(), held.ino()) {
        return None;
    }
    fs::remove_dir_all(directory).ok()
}

/// Returns the places in which private directories are created.
pub fn places() -> Vec<PathBuf> {
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let shared = ["/tmp", "/var/tmp", "/dev/shm"].map(PathBuf::from);
    let all = runtime.into_iter().chain([std::env::temp_dir()]).chain(shared);
    all.filter(|place| place.is_absolute()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    /// Returns a place with a private directory whose owner, a process of this user, has ended.
    fn dead() -> (tempfile::TempDir, PathBuf) {
        let place = tempfile::tempdir().unwrap();
        let directory = sys::make_private_directory(place.path(), PREFIX).unwrap();
        drop(claim(&directory).unwrap());
        fs::write(directory.join("sock"), "").unwrap();
        (place, directory)
    }

    fn swept(place: &tempfile::TempDir) -> usize {
        sweep(&[place.path().to_owned(), place.path().to_owned()])
    }

    /// Changes one value in an owner's file, without creating a new file.
    fn rewrite(directory: &Path, key: &str, value: serde_json::Value) {
        let path = directory.join(OWNER);
        let mut owner: serde_json::Value =
            serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        owner[key] = value;
        fs::write(path, owner.to_string()).unwrap();
    }

    #[test]
    fn only_directories_whose_owner_has_ended_are_swept() {
        let (place, directory) = dead();
        let living = sys::make_private_directory(place.path(), PREFIX).unwrap();
        let held = claim(&living).unwrap();
        assert_eq!(swept(&place), 1);
        assert!(!directory.exists() && living.join(OWNER).exists());
        assert_eq!(swept(&place), 0);
        drop(held);
        assert_eq!(swept(&place), 1);
    }

    #[test]
    fn a_session_with_a_collector_in_charge_is_not_swept() {
        let (place, directory) = dead();
        let charge = lock::lock_session(&directory).unwrap().unwrap();
        assert_eq!(swept(&place), 0);
        // The collector claims the directory as well.
        drop(claim(&directory).unwrap());
        assert_eq!(swept(&place), 0);
        drop(charge);
        assert_eq!(swept(&place), 1);
    }

    #[test]
    fn directories_that_only_look_like_tprofs_are_not_swept() {
        let (place, directory) = dead();
        rewrite(&directory, "boot", "another-boot-or-another-host".into());
        assert_eq!(swept(&place), 0, "it belongs to another host");
        rewrite(&directory, "boot", boot().unwrap().into());
        rewrite(&directory, "magic", "something else".into());
        assert_eq!(swept(&place), 0, "it belongs to another program");
        rewrite(&directory, "magic", MAGIC.into());
        let named = place.path().join("results");
        fs::rename(&directory, &named).unwrap();
        assert_eq!(swept(&place), 0, "it has another name");
        fs::rename(&named, &directory).unwrap();
        fs::set_permissions(&directory, fs::Permissions::from_mode(0o755)).unwrap();
        assert_eq!(swept(&place), 0, "it is open to others");
        fs::set_permissions(&directory, fs::Permissions::from_mode(0o700)).unwrap();
        let copy = place.path().join("tprof-copy");
        fs::create_dir(&copy).unwrap();
        fs::set_permissions(&copy, fs::Permissions::from_mode(0o700)).unwrap();
        fs::copy(directory.join(OWNER), copy.join(OWNER)).unwrap();
        let bare = sys::make_private_directory(place.path(), PREFIX).unwrap();
        let elsewhere = dead();
        symlink(&elsewhere.1, place.path().join("tprof-link")).unwrap();
        let linked = sys::make_private_directory(place.path(), PREFIX).unwrap();
        symlink(elsewhere.1.join(OWNER), linked.join(OWNER)).unwrap();
        assert_eq!(swept(&place), 1, "only one directory is tprof's");
        assert!(!directory.exists());
        assert!(copy.join(OWNER).exists() && bare.exists() && linked.exists());
        assert!(elsewhere.1.join(OWNER).exists() && elsewhere.1.join("sock").exists());
    }
}
