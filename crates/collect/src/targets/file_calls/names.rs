//! Names the files of an image by the numbers that its hooks gave them.

use crate::output::shown_path::shown_path;
use rustc_hash::{FxHashMap, FxHashSet};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tprof_os::mounts::{Mount, Mounts};
use tprof_os::proc::working_directory_of;
use tprof_sampler::cpu::Descriptors;
use tprof_trace::TraceWriter;
use tprof_trace::model::{FileKind, NameId};
use tprof_wire::io::{Named, naming};

/// Number of files of one directory that get names of their own.
pub(super) const MAX_NAMES: usize = 1_000;
/// Number of files, of all directories, that get names of their own.
const MAX_ALL_NAMES: usize = 100_000;
/// Number of open files that are followed. Calls on further ones have no name.
pub(super) const MAX_FILES: usize = 1 << 20;
/// Directories of devices and of files that the kernel makes up.
const NOT_ON_DISK: [&str; 3] = ["/dev/", "/proc/", "/sys/"];
/// The directory of shared memory, which is a file system like others.
const SHARED_MEMORY: &str = "/dev/shm/";

/// The name of a file that has a number.
#[derive(Debug, Clone, Default)]
struct File {
    kind: FileKind,
    name: String,
    file_system: FileSystem,
}

/// A file system as the trace names it.
#[derive(Debug, Clone, Default)]
struct FileSystem {
    /// Empty if it is unknown.
    name: Arc<str>,
    counts_reads: bool,
}

/// The files of a directory that the image opened.
#[derive(Debug)]
struct Directory {
    /// The names of those that have a name of their own.
    names: FxHashSet<String>,
    file_system: FileSystem,
}

/// The columns of a row that describe its file.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Described {
    pub kind: FileKind,
    pub name: NameId,
    pub file_system: NameId,
    /// Whether the kernel counts what it reads from the file's storage for a thread.
    pub counts_reads: bool,
}

/// The names of an image's files.
#[derive(Debug)]
pub(super) struct Names {
    pid: u32,
    redact: bool,
    files: FxHashMap<u32, File>,
    directories: FxHashMap<String, Directory>,
    /// Number of names in all directories.
    count: usize,
    /// Read when a file is named first. `None` if they are unknown.
    mounts: Option<Arc<Mounts>>,
    /// Whether the process has this id in this process's namespace, and its mounts weren't read yet.
    can_read_mounts: bool,
    /// The id of the process that started it.
    started_by: u32,
    descriptors: Descriptors,
    /// The working directory, as it was read last.
    working_directory: Option<PathBuf>,
}

impl Names {
    /// Returns the state of a process without files, which attached in this working directory; if that
    /// is unknown, in its parent's. If it has ended already, it has the mounts of its parent. Without
    /// `same_pids`, its mounts can't be read.
    pub fn new(
        pid: u32,
        started_by: u32,
        redact: bool,
        same_pids: bool,
        working_directory: Option<PathBuf>,
        parent: Option<&Names>,
    ) -> Names {
        let of_parent = || parent.and_then(Names::working_directory);
        Names {
            pid,
            redact,
            working_directory: working_directory.or_else(of_parent),
            files: FxHashMap::default(),
            directories: FxHashMap::default(),
            count: 0,
            mounts: parent.and_then(|parent| parent.mounts.clone()),
            can_read_mounts: same_pids,
            started_by,
            descriptors: Descriptors::default(),
        }
    }

    /// Returns the working directory; of a process that has ended, as it was read last.
    pub fn working_directory(&self) -> Option<PathBuf> {
        working_directory_of(self.pid).or_else(|| self.working_directory.clone())
    }

    /// Adds a file that got its number.
    pub fn named(&mut self, file: u32, named: Named, name: &[u8]) {
        let of = match named.naming {
            naming::PATH => {
                let path = PathBuf::from(std::ffi::OsStr::from_bytes(name));
                let whole = self.whole(&path, named.directory);
                self.path(whole)
            }
            naming::END_OF_PATH => {
                self.path(PathBuf::from(format!("…{}", String::from_utf8_lossy(name))))
            }
            naming::PEER => File { kind: FileKind::Socket, name: peer(name), ..File::default() },
            naming::LINK => self.link(&String::from_utf8_lossy(name)),
            _ => File::default(),
        };
        if self.files.len() < MAX_FILES {
            self.files.insert(file, of);
        }
    }

    /// Returns a path that begins at the root. A relative path begins at a directory that has a
    /// number, or at the working directory as it is now.
    fn whole(&mut self, path: &Path, directory: u32) -> PathBuf {
        if path.is_absolute() {
            return path.to_owned();
        }
        let from = match self.files.get(&directory) {
            Some(known) => Some(PathBuf::from(&known.name)),
            None if directory == 0 => {
                // A process that has ended has none.
                self.working_directory =
                    working_directory_of(self.pid).or(self.working_directory.take());
                self.working_directory.clone()
            }
            None => None,
        };
        from.map_or_else(|| path.to_owned(), |from| from.join(path))
    }

    fn path(&mut self, path: PathBuf) -> File {
        let text = path.to_string_lossy();
        let is_made_up = NOT_ON_DISK.iter().any(|place| text.starts_with(place))
            && !text.starts_with(SHARED_MEMORY);
        let kind = if is_made_up { FileKind::Device } else { FileKind::File };
        let parent = path.parent().unwrap_or(&path);
        let directory = parent.to_string_lossy().into_owned();
        let has_room = self.count < MAX_ALL_NAMES;
        let (is_named, file_system) = match self.directories.get_mut(&directory) {
            Some(known) => {
                let is_named = known.names.contains(&*text) || {
                    let is_new = has_room && known.names.len() < MAX_NAMES;
                    self.count += usize::from(is_new);
                    is_new && known.names.insert(text.into_owned())
                };
                (is_named, known.file_system.clone())
            }
            None => {
                let file_system = self.file_system(parent);
                if has_room {
                    self.count += 1;
                    let names = [text.into_owned()].into_iter().collect();
                    let known = Directory { names, file_system: file_system.clone() };
                    self.directories.insert(directory.clone(), known);
                }
                (has_room, file_system)
            }
        };
        let name = if is_named {
            shown_path(&path, self.redact)
        } else {
            let directory = shown_path(Path::new(&directory), self.redact);
            match path.extension() {
                Some(kind) => format!("{directory}/*.{}", kind.to_string_lossy()),
                None => format!("{directory}/*"),
            }
        };
        File { kind, name, file_system }
    }

    fn file_system(&mut self, directory: &Path) -> FileSystem {
        if std::mem::take(&mut self.can_read_mounts) {
            // A process that has ended has none.
            let own = Mounts::of(self.pid).map(Arc::new).or(self.mounts.take());
            self.mounts = own.or_else(|| Mounts::of(self.started_by).map(Arc::new));
        }
        let mount = self.mounts.as_ref().filter(|_| directory.is_absolute());
        let Some(mount) = mount.and_then(|mounts| mounts.of_directory(directory)) else {
            return FileSystem::default();
        };
        FileSystem { name: shown(mount, self.redact).into(), counts_reads: mount.counts_reads() }
    }

    /// Returns what a link in `/proc/PID/fd` stands for.
    fn link(&mut self, link: &str) -> File {
        if link.starts_with('/') {
            return self.path(PathBuf::from(link.trim_end_matches(" (deleted)")));
        }
        let name = self.descriptors.name_of_link(self.pid, link);
        let kind = match link.split_once(':') {
            Some(("socket", _)) => FileKind::Socket,
            Some(("pipe", _)) => FileKind::Pipe,
            _ => {
                let name = link.to_owned();
                return File { kind: FileKind::Device, name, ..File::default() };
            }
        };
        File { kind, name: name.unwrap_or_default(), ..File::default() }
    }

    /// Describes the file with this number.
    pub fn of(&self, file: u32, writer: &mut TraceWriter) -> Described {
        match self.files.get(&file) {
            Some(file) if !file.name.is_empty() => Described {
                kind: file.kind,
                name: writer.name(&file.name),
                file_system: writer.name(&file.file_system.name),
                counts_reads: file.file_system.counts_reads,
            },
            _ => Described::default(),
        }
    }

    /// Forgets a file whose number isn't used any more.
    pub fn forget(&mut self, file: u32) {
        self.files.remove(&file);
    }
}

/// Names a file system: `nfs4 at /data (server:/export)`; with `redact`, only its type.
fn shown(mount: &Mount, redact: bool) -> String {
    let Mount { at, kind, source } = mount;
    match redact {
        true => kind.clone(),
        false if matches!(source.as_str(), "" | "none") || source == kind => {
            format!("{kind} at {}", at.display())
        }
        false => format!("{kind} at {} ({source})", at.display()),
    }
}

/// Returns the peer of a `struct sockaddr`, as the names of sockets in use have it.
fn peer(address: &[u8]) -> String {
    const UNIX: u16 = 1;
    const INET: u16 = 2;
    const INET6: u16 = 10;
    let word = |at: usize| {
        let bytes = address.get(at..at + 2)?;
        Some([bytes[0], bytes[1]])
    };
    let port = word(2).map_or(0, u16::from_be_bytes);
    let text = match word(0).map(u16::from_ne_bytes) {
        Some(INET) => address
            .get(4..8)
            .and_then(|bytes| <[u8; 4]>::try_from(bytes).ok())
            .map(|bytes| format!("{}:{port}", Ipv4Addr::from(bytes))),
        Some(INET6) => {
            address.get(8..24).and_then(|bytes| <[u8; 16]>::try_from(bytes).ok()).map(|bytes| {
                match Ipv6Addr::from(bytes).to_ipv4_mapped() {
                    Some(address) => format!("{address}:{port}"),
                    None => format!("[{}]:{port}", Ipv6Addr::from(bytes)),
                }
            })
        }
        Some(UNIX) => address.get(2..).map(|path| {
            let path = String::from_utf8_lossy(path);
            // The name of an abstract socket begins with NUL, for which the kernel shows `@`.
            path.strip_prefix('\0')
                .map_or_else(|| path.trim_end_matches('\0').to_owned(), |name| format!("@{name}"))
        }),
        _ => None,
    };
    match text.filter(|text| !text.is_empty()) {
        Some(text) => format!("socket {text}"),
        None => "socket".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peers_are_written_as_the_kernel_lists_them() {
        let mut inet = vec![2, 0, 0x1f, 0x90, 127, 0, 0, 1];
        inet.extend([0; 8]);
        assert_eq!(peer(&inet), "socket 127.0.0.1:8080");
        let mut inet6 = vec![10, 0, 0, 80, 0, 0, 0, 0];
        inet6.extend([0; 15]);
        inet6.push(1);
        assert_eq!(peer(&inet6), "socket [::1]:80");
        assert_eq!(peer(b"\x01\0/run/a.sock\0"), "socket /run/a.sock");
        assert_eq!(peer(b"\x01\0\0name"), "socket @name");
        assert_eq!(peer(b"\x01"), "socket");
        assert_eq!(peer(b"\x11\0xxxxxxxx"), "socket");
    }

    fn path(names: &mut Names, path: &str) -> String {
        let named =
            Named { descriptor: 3, naming: naming::PATH, bytes: path.len() as u32, directory: 0 };
        names.named(1, named, path.as_bytes());
        names.files[&1].name.clone()
    }

    #[test]
    fn files_of_a_large_directory_are_named_together() {
        let mut names = Names::new(std::process::id(), 1, false, true, None, None);
        for at in 0..MAX_NAMES {
            assert_eq!(path(&mut names, &format!("/d/{at}.jpg")), format!("/d/{at}.jpg"));
        }
        assert_eq!(path(&mut names, "/d/new.jpg"), "/d/*.jpg");
        assert_eq!(path(&mut names, "/d/new"), "/d/*");
        assert_eq!(path(&mut names, "/d/7.jpg"), "/d/7.jpg", "it has its name already");
        assert_eq!(path(&mut names, "/e/new.jpg"), "/e/new.jpg");
    }

    #[test]
    fn shared_memory_is_a_file_and_other_files_in_dev_are_not() {
        let mut names = Names::new(std::process::id(), 1, false, true, None, None);
        for (of, kind) in [("/dev/shm/a", FileKind::File), ("/dev/null", FileKind::Device)] {
            path(&mut names, of);
            assert_eq!(names.files[&1].kind, kind, "{of}");
        }
    }

    #[test]
    fn a_child_that_has_ended_began_in_its_parents_working_directory() {
        let parent = Names::new(std::process::id(), 1, false, true, None, None);
        // No process has this pid.
        let mut child = Names::new(u32::MAX, std::process::id(), false, true, None, Some(&parent));
        let expected = std::env::current_dir().unwrap().join("a/b");
        assert_eq!(Path::new(&path(&mut child, "a/b")), expected);
        assert!(!child.files[&1].file_system.name.is_empty(), "its parent's mounts");
    }

    #[test]
    fn a_process_that_has_ended_had_the_working_directory_in_which_it_attached() {
        let mut names = Names::new(u32::MAX, 1, false, true, Some("/data".into()), None);
        assert_eq!(path(&mut names, "a/b"), "/data/a/b");
    }

    #[test]
    fn relative_paths_begin_at_the_working_directory() {
        let mut names = Names::new(std::process::id(), 1, false, true, None, None);
        let expected = std::env::current_dir().unwrap().join("a/b");
        assert_eq!(Path::new(&path(&mut names, "a/b")), expected);
        let mut redacted = Names::new(std::process::id(), 1, true, true, None, None);
        assert_eq!(path(&mut redacted, "/home/me/secret/model.pt"), "model.pt");
        let file_system = &redacted.files[&1].file_system.name;
        assert!(!file_system.is_empty() && !file_system.contains('/'), "{file_system}");
    }
}
