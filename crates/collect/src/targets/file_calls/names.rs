//! Names the files of an image by the numbers that its hooks gave them.

use crate::output::shown_path::shown_path;
use rustc_hash::{FxHashMap, FxHashSet};
use std::fs::read_link;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
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

/// The name of a file that has a number.
#[derive(Debug, Clone)]
struct File {
    kind: FileKind,
    name: String,
}

/// The names of an image's files.
#[derive(Debug)]
pub(super) struct Names {
    pid: u32,
    redact: bool,
    files: FxHashMap<u32, File>,
    /// The names of each directory's files that have a name of their own.
    directories: FxHashMap<String, FxHashSet<String>>,
    /// Number of all these names.
    count: usize,
    descriptors: Descriptors,
    /// The working directory, as it was read last.
    working_directory: Option<PathBuf>,
}

impl Names {
    /// Returns the state of a process without files. `begins_in` is its working directory if it has
    /// ended already.
    pub fn new(pid: u32, redact: bool, begins_in: Option<PathBuf>) -> Names {
        Names {
            pid,
            redact,
            working_directory: working_directory(pid).or(begins_in),
            files: FxHashMap::default(),
            directories: FxHashMap::default(),
            count: 0,
            descriptors: Descriptors::default(),
        }
    }

    /// Returns the working directory; of a process that has ended, as it was read last.
    pub fn working_directory(&self) -> Option<PathBuf> {
        working_directory(self.pid).or_else(|| self.working_directory.clone())
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
            naming::PEER => File { kind: FileKind::Socket, name: peer(name) },
            naming::LINK => self.link(&String::from_utf8_lossy(name)),
            _ => File { kind: FileKind::Unknown, name: String::new() },
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
                    working_directory(self.pid).or(self.working_directory.take());
                self.working_directory.clone()
            }
            None => None,
        };
        from.map_or_else(|| path.to_owned(), |from| from.join(path))
    }

    fn path(&mut self, path: PathBuf) -> File {
        let text = path.to_string_lossy();
        let is_made_up = NOT_ON_DISK.iter().any(|place| text.starts_with(place));
        let kind = if is_made_up { FileKind::Device } else { FileKind::File };
        let directory = path.parent().unwrap_or(&path).to_string_lossy().into_owned();
        let has_room = self.count < MAX_ALL_NAMES;
        let is_named = match self.directories.get_mut(&directory) {
            Some(files) if files.contains(&*text) => true,
            Some(files) if files.len() < MAX_NAMES && has_room => {
                self.count += 1;
                files.insert(text.into_owned())
            }
            None if has_room => {
                self.count += 1;
                let first = [text.into_owned()].into_iter().collect();
                self.directories.insert(directory.clone(), first).is_none()
            }
            _ => false,
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
        File { kind, name }
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
            _ => return File { kind: FileKind::Device, name: link.to_owned() },
        };
        File { kind, name: name.unwrap_or_default() }
    }

    /// Returns the name and kind of the file with this number.
    pub fn of(&self, file: u32, writer: &mut TraceWriter) -> (NameId, FileKind) {
        match self.files.get(&file) {
            Some(file) if !file.name.is_empty() => (writer.name(&file.name), file.kind),
            _ => (NameId(0), FileKind::Unknown),
        }
    }

    /// Forgets a file whose number isn't used any more.
    pub fn forget(&mut self, file: u32) {
        self.files.remove(&file);
    }
}

fn working_directory(pid: u32) -> Option<PathBuf> {
    read_link(format!("/proc/{pid}/cwd")).ok()
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
        let mut names = Names::new(std::process::id(), false, None);
        for at in 0..MAX_NAMES {
            assert_eq!(path(&mut names, &format!("/d/{at}.jpg")), format!("/d/{at}.jpg"));
        }
        assert_eq!(path(&mut names, "/d/new.jpg"), "/d/*.jpg");
        assert_eq!(path(&mut names, "/d/new"), "/d/*");
        assert_eq!(path(&mut names, "/d/7.jpg"), "/d/7.jpg", "it has its name already");
        assert_eq!(path(&mut names, "/e/new.jpg"), "/e/new.jpg");
    }

    #[test]
    fn a_child_that_has_ended_began_in_its_parents_working_directory() {
        let parent = Names::new(std::process::id(), false, None);
        // No process has this pid.
        let mut child = Names::new(u32::MAX, false, parent.working_directory());
        let expected = std::env::current_dir().unwrap().join("a/b");
        assert_eq!(Path::new(&path(&mut child, "a/b")), expected);
    }

    #[test]
    fn relative_paths_begin_at_the_working_directory() {
        let mut names = Names::new(std::process::id(), false, None);
        let expected = std::env::current_dir().unwrap().join("a/b");
        assert_eq!(Path::new(&path(&mut names, "a/b")), expected);
        let mut redacted = Names::new(std::process::id(), true, None);
        assert_eq!(path(&mut redacted, "/home/me/secret/model.pt"), "model.pt");
    }
}
