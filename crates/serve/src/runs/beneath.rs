//! Opens files beneath a directory. A path that leads out of it, by `..` or a link, is refused.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Component, Path};

use nix::errno::Errno;
use nix::fcntl::{OFlag, OpenHow, ResolveFlag, openat, openat2};
use nix::sys::stat::Mode;

/// Opens a directory that the user named, wherever it is.
pub fn directory(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    Ok(nix::fcntl::open(path, flags, Mode::empty())?)
}

/// Opens a file or directory beneath `directory` for reading.
///
/// Fails with `EXDEV` if the path leads out of `directory`, even by a link. Refuses a pipe or a
/// device, because opening or reading it could block or have side effects.
pub fn open(directory: impl AsFd, path: &Path) -> io::Result<File> {
    // Without O_NONBLOCK, opening a pipe that nobody writes to would block the thread.
    let flags = OFlag::O_RDONLY | OFlag::O_CLOEXEC | OFlag::O_NONBLOCK;
    let resolve = ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_MAGICLINKS;
    let how = OpenHow::new().flags(flags).resolve(resolve);
    // If something is renamed meanwhile, openat2(2) returns EAGAIN and asks the caller to try
    // again.
    let file = loop {
        match openat2(&directory, path, how) {
            Err(Errno::EAGAIN) => {}
            // The call doesn't exist before Linux 5.6 (ENOSYS), and older container runtimes deny
            // it (EPERM).
            Err(Errno::ENOSYS | Errno::EPERM) => break step_by_step(directory.as_fd(), path)?,
            opened => break File::from(opened?),
        }
    };
    let about = file.metadata()?;
    match about.is_file() || about.is_dir() {
        true => Ok(file),
        false => Err(io::Error::new(io::ErrorKind::InvalidInput, "neither a file nor a directory")),
    }
}

/// Does what [`open`] does without `openat2`: no part of the path may be a link.
fn step_by_step(directory: BorrowedFd<'_>, path: &Path) -> io::Result<File> {
    let flags = OFlag::O_RDONLY | OFlag::O_CLOEXEC | OFlag::O_NONBLOCK | OFlag::O_NOFOLLOW;
    let mut at: Option<OwnedFd> = None;
    for part in path.components() {
        let Component::Normal(name) = part else { return Err(Errno::EXDEV.into()) };
        let from = at.as_ref().map_or(directory, AsFd::as_fd);
        at = Some(openat(from, name, flags, Mode::empty())?);
    }
    Ok(File::from(at.ok_or(Errno::ENOENT)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::os::unix::fs::symlink;

    #[test]
    fn only_files_beneath_the_directory_are_opened() {
        let outer = tempfile::tempdir().unwrap();
        let inner = outer.path().join("runs");
        std::fs::create_dir_all(inner.join("a")).unwrap();
        std::fs::write(outer.path().join("secret"), "secret").unwrap();
        std::fs::write(inner.join("a/file"), "own").unwrap();
        symlink("../../secret", inner.join("a/out")).unwrap();
        symlink(outer.path().join("secret"), inner.join("absolute")).unwrap();
        symlink("a/file", inner.join("within")).unwrap();
        nix::unistd::mkfifo(&inner.join("pipe"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        let root = directory(&inner).unwrap();
        let read = |path: &str| {
            let mut text = String::new();
            open(&root, Path::new(path))?.read_to_string(&mut text).map(|_| text)
        };
        assert_eq!(read("a/file").unwrap(), "own");
        assert_eq!(read("within").unwrap(), "own");
        let stepped = |path: &str| step_by_step(root.as_fd(), Path::new(path));
        assert!(stepped("a/file").is_ok());
        for path in ["../secret", "a/../../secret", "a/out", "absolute", "/etc/passwd"] {
            assert!(read(path).is_err(), "{path}");
            assert!(stepped(path).is_err(), "{path}");
        }
        assert!(read("pipe").is_err());
    }
}
