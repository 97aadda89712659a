//! Reads and writes the files of the disk cache. Checks the directory before it is used, replaces
//! files by renaming, and limits the total size.

use super::file;
use super::key::{FileKind, LibraryKey, this_program};
use nix::fcntl::{OFlag, openat, renameat};
use nix::sys::stat::Mode;
use nix::unistd::{UnlinkatFlags, geteuid, unlinkat};
use std::fs::{DirBuilder, File, Metadata};
use std::io::{Read, Write};
use std::ops::{Deref, Range};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, SystemTime};
use tprof_wire::hash;

/// Largest number of bytes and of files in the cache. The files that were not used for longest are
/// evicted. The day of the last use is the precision.
const MAX_BYTES: u64 = 256 << 20;
const MAX_FILES: usize = 512;
/// Largest size of a file, bytes.
const MAX_FILE_BYTES: u64 = 64 << 20;
/// Longest time that writing a file may take. An older temporary file belongs to a process that was
/// killed.
const BEGUN_FOR: Duration = Duration::from_secs(3600);
const A_DAY: Duration = Duration::from_secs(24 * 3600);
/// Prefix of the names of temporary files, which are being written.
const BEGUN: &str = ".new-";

/// The content of a cached file.
#[derive(Debug)]
pub struct CachedContent {
    file: Vec<u8>,
    content: Range<usize>,
}

impl Deref for CachedContent {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.file[self.content.clone()]
    }
}

/// The cache for later runs, on disk.
#[derive(Debug)]
pub struct DiskCache {
    path: PathBuf,
    most_bytes: u64,
    program: Option<String>,
    /// The directory, once it was opened. The inner `None` means that it can't be used.
    opened: OnceLock<Option<OwnedFd>>,
    written: AtomicU64,
}

impl DiskCache {
    /// Returns a cache in this directory. The directory is created when something is first written.
    pub fn new(path: PathBuf) -> DiskCache {
        DiskCache::bounded(path, MAX_BYTES)
    }

    fn bounded(path: PathBuf, most_bytes: u64) -> DiskCache {
        let (opened, written) = (OnceLock::new(), AtomicU64::new(0));
        DiskCache { path, most_bytes, program: this_program(), opened, written }
    }

    /// Returns the cached content for a library; `None` if there is none or if it can't be trusted.
    pub fn read(&self, key: &LibraryKey, kind: FileKind) -> Option<CachedContent> {
        let directory = self.directory(false)?;
        let text = key.text(kind, self.program.as_ref()?);
        let flags = OFlag::O_RDONLY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC | OFlag::O_NONBLOCK;
        let name = name_of(key, kind, &text);
        let file = File::from(openat(directory, name.as_str(), flags, Mode::empty()).ok()?);
        let meta = file.metadata().ok().filter(is_own)?;
        if !meta.is_file() || meta.len() > MAX_FILE_BYTES {
            return None;
        }
        let mut bytes = Vec::with_capacity(meta.len() as usize + 1);
        (&file).take(MAX_FILE_BYTES).read_to_end(&mut bytes).ok()?;
        let content = file::content(&bytes, &text)?;
        if meta.modified().is_ok_and(|at| at.elapsed().is_ok_and(|age| age > A_DAY)) {
            let _ = file.set_modified(SystemTime::now());
        }
        Some(CachedContent { file: bytes, content })
    }

    /// Writes content for a library, in place of what was cached. If that fails, the cached content
    /// stays.
    pub fn write(&self, key: &LibraryKey, kind: FileKind, content: &[&[u8]]) {
        let Some(program) = &self.program else { return };
        let text = key.text(kind, program);
        let bytes: usize = content.iter().map(|part| part.len()).sum();
        if bytes as u64 + 4096 > MAX_FILE_BYTES.min(self.most_bytes) {
            return;
        }
        let Some(directory) = self.directory(true) else { return };
        let number = self.written.fetch_add(1, Relaxed);
        let begun = format!("{BEGUN}{}-{number}", std::process::id());
        let _ = unlinkat(directory, begun.as_str(), UnlinkatFlags::NoRemoveDir);
        let flags =
            OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let mode = Mode::S_IRUSR | Mode::S_IWUSR;
        let Ok(fd) = openat(directory, begun.as_str(), flags, mode) else { return };
        let written = File::from(fd).write_all(&file::encode(&text, content)).is_ok();
        let name = name_of(key, kind, &text);
        if !written || renameat(directory, begun.as_str(), directory, name.as_str()).is_err() {
            let _ = unlinkat(directory, begun.as_str(), UnlinkatFlags::NoRemoveDir);
        }
        self.evict(directory);
    }

    /// Returns the directory, if it belongs to the user and is closed to others. With `make` it may
    /// be created.
    fn directory(&self, make: bool) -> Option<&OwnedFd> {
        if !make && self.opened.get().is_none() && !self.path.exists() {
            return None;
        }
        self.opened.get_or_init(|| open(&self.path)).as_ref()
    }

    /// Evicts the files that were not used for longest, until the limits are met.
    fn evict(&self, directory: &OwnedFd) {
        let listed = std::fs::read_dir(format!("/proc/self/fd/{}", directory.as_raw_fd()));
        let entries = listed.into_iter().flatten().flatten();
        let mut files: Vec<_> = entries
            .filter_map(|entry| {
                let meta = entry.metadata().ok().filter(Metadata::is_file)?;
                Some((meta.modified().ok()?, meta.len(), entry.file_name()))
            })
            .collect();
        files.sort_by_key(|(modified, ..)| std::cmp::Reverse(*modified));
        let (mut bytes, mut count) = (0, 0);
        for (modified, len, name) in files {
            let begun = name.as_encoded_bytes().starts_with(BEGUN.as_bytes());
            let is_left = begun && modified.elapsed().is_ok_and(|age| age > BEGUN_FOR);
            (bytes, count) = (bytes + len, count + 1);
            let has_room = bytes <= self.most_bytes && count <= MAX_FILES;
            if is_left || !has_room && !begun {
                let _ = unlinkat(directory, name.as_os_str(), UnlinkatFlags::NoRemoveDir);
                (bytes, count) = (bytes - len, count - 1);
            }
        }
    }
}

/// Returns the name of a cached file. It contains the build id for people, and a hash of everything
/// that the content depends on.
fn name_of(key: &LibraryKey, kind: FileKind, text: &str) -> String {
    let build_id = key.build_id();
    let build_id = build_id.get(..40).unwrap_or(build_id);
    format!("{build_id}-{:016x}.{}", hash::fnv1a(text.as_bytes()), kind.suffix())
}

/// Opens the directory; creates it if it doesn't exist.
fn open(path: &Path) -> Option<OwnedFd> {
    let mut private = DirBuilder::new();
    private.mode(0o700);
    if !path.exists() {
        make_parents(path.parent()?)?;
        // If another run has created the directory meanwhile, this fails, and the directory is
        // opened anyway.
        let _ = private.create(path);
    }
    let flags = libc::O_DIRECTORY | libc::O_NOFOLLOW;
    let directory = File::options().read(true).custom_flags(flags).open(path).ok()?;
    let meta = directory.metadata().ok()?;
    is_own(&meta).then(|| directory.into())
}

/// Creates the missing parents of a path, but only below a directory of the user or one that is
/// open to all like /tmp. After `sudo`, the environment may name a directory of another user.
fn make_parents(parent: &Path) -> Option<()> {
    let there = parent.ancestors().find(|above| above.exists())?;
    let meta = there.metadata().ok()?;
    let is_for_all = meta.mode() & 0o1000 != 0;
    if meta.uid() != geteuid().as_raw() && !is_for_all {
        return None;
    }
    DirBuilder::new().recursive(true).mode(0o700).create(parent).ok()
}

/// Whether a file belongs to this user and is closed to others.
fn is_own(meta: &Metadata) -> bool {
    meta.uid() == geteuid().as_raw() && meta.mode() & 0o077 == 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::elf::Elf;

    fn own_key() -> LibraryKey {
        LibraryKey::of(&Elf::open(Path::new("/proc/self/exe")).unwrap()).unwrap()
    }

    /// Sets the time of each file in the directory whose name ends in `suffix`.
    fn age(directory: &Path, suffix: &str, hours: u64) {
        for entry in std::fs::read_dir(directory).unwrap().flatten() {
            if entry.file_name().to_string_lossy().ends_with(suffix) {
                let file = File::options().append(true).open(entry.path()).unwrap();
                file.set_modified(SystemTime::now() - Duration::from_secs(hours * 3600)).unwrap();
            }
        }
    }

    #[test]
    fn the_oldest_files_are_evicted_and_reading_makes_a_file_young() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("tables");
        let kept = DiskCache::bounded(path.clone(), 3 * 8192);
        let key = own_key();
        let content = vec![7; 8000];
        kept.write(&key, FileKind::Rows, &[&content]);
        kept.write(&key, FileKind::Symbols, &[&content]);
        age(&path, ".rows", 60);
        age(&path, ".symtab", 50);
        // This file is used now, so it becomes the youngest.
        assert_eq!(kept.read(&key, FileKind::Rows).as_deref(), Some(content.as_slice()));
        let left = path.join(".new-1-0");
        std::fs::write(&left, "left").unwrap();
        age(&path, ".new-1-0", 2);
        std::fs::write(path.join(".new-2-0"), "begun").unwrap();
        kept.write(&key, FileKind::DynamicSymbols, &[&content, &content[..4000]]);
        assert!(kept.read(&key, FileKind::Symbols).is_none());
        assert!(kept.read(&key, FileKind::Rows).is_some());
        assert!(kept.read(&key, FileKind::DynamicSymbols).is_some());
        assert!(!left.exists() && path.join(".new-2-0").exists());
    }

    #[test]
    fn content_above_the_limit_is_not_cached() {
        let scratch = tempfile::tempdir().unwrap();
        let kept = DiskCache::bounded(scratch.path().join("tables"), 8192);
        kept.write(&own_key(), FileKind::Rows, &[&[1; 8192]]);
        assert!(kept.read(&own_key(), FileKind::Rows).is_none());
        assert!(!scratch.path().join("tables").exists());
    }

    #[test]
    fn a_directory_of_another_user_is_not_used() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("tables");
        let kept = DiskCache::new(path.clone());
        kept.write(&own_key(), FileKind::Rows, &[b"content"]);
        // Only root can give a directory to another user. For other users, root's `/usr` is the
        // directory of another user.
        let is_given = std::os::unix::fs::chown(&path, Some(12345), None).is_ok();
        let kept = DiskCache::new(if is_given { path } else { "/usr".into() });
        assert!(kept.read(&own_key(), FileKind::Rows).is_none());
    }
}
