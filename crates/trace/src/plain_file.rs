//! Opens plain (regular) files and refuses all other kinds. Opening a named pipe blocks until
//! another process opens it for writing. Opening a device may have a side effect, and reading one
//! may never end.

use std::fs::{self, File, FileType, Metadata};
use std::io::{self, Read};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;

/// The value of `O_NONBLOCK` on every architecture that tprof is built for.
const O_NONBLOCK: i32 = 0o4000;

/// Opens a plain file for reading. A file of any other kind is refused before it is opened, unless
/// it takes the name at just that moment. Then it is opened without blocking, and refused.
pub fn open_plain(path: &Path) -> io::Result<File> {
    check_is_plain(&fs::metadata(path)?)?;
    let file = open_nonblocking(path)?;
    // Another file may have taken the name since the first check.
    check_is_plain(&file.metadata()?)?;
    Ok(file)
}

/// Returns the contents of a plain file.
pub fn read_plain(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open_plain(path)?.read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Opens a file that a person named as an input. It may be a plain file, or the pipe that a shell
/// made for a command (`<(zcat trace.gz)`, `/dev/stdin`). A named pipe is refused, because opening
/// it blocks if no process writes to it.
pub fn open_input(path: &Path) -> io::Result<File> {
    let about = fs::metadata(path)?;
    // The path of a shell's pipe is a link in `/proc` to a target like `pipe:[7]`, which is no
    // path. So `canonicalize` fails for it, and succeeds for a named pipe.
    match about.file_type().is_fifo() && fs::canonicalize(path).is_err() {
        true => File::open(path),
        false => open_plain(path),
    }
}

/// Opens a file with `O_NONBLOCK`, so that opening a named pipe doesn't wait for a writer. The flag
/// has no effect on reading a plain file.
fn open_nonblocking(path: &Path) -> io::Result<File> {
    File::options().read(true).custom_flags(O_NONBLOCK).open(path)
}

/// Returns an error if a file isn't plain.
fn check_is_plain(about: &Metadata) -> io::Result<()> {
    if about.is_file() {
        return Ok(());
    }
    if about.is_dir() {
        return Err(io::ErrorKind::IsADirectory.into());
    }
    let what = format!("it is {}, not a plain file", kind_name(about.file_type()));
    Err(io::Error::new(io::ErrorKind::InvalidInput, what))
}

/// Names the kind of a file that is neither plain nor a directory.
fn kind_name(kind: FileType) -> &'static str {
    if kind.is_fifo() {
        "a pipe"
    } else if kind.is_socket() {
        "a socket"
    } else {
        "a device"
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;
    use std::os::unix::net::UnixListener;
    use std::process::Command;

    #[test]
    fn only_plain_files_are_opened() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        fs::write(at("file"), "text").unwrap();
        symlink("file", at("link")).unwrap();
        assert!(Command::new("mkfifo").arg(at("pipe")).status().unwrap().success());
        symlink("pipe", at("link to pipe")).unwrap();
        symlink("/dev/zero", at("zero")).unwrap();
        fs::create_dir(at("directory")).unwrap();
        let _socket = UnixListener::bind(at("socket")).unwrap();
        for name in ["file", "link"] {
            assert_eq!(read_plain(&at(name)).unwrap(), b"text", "{name}");
            assert!(open_input(&at(name)).is_ok(), "{name}");
        }
        let others = [
            ("pipe", "a pipe"),
            ("link to pipe", "a pipe"),
            ("zero", "a device"),
            ("socket", "a socket"),
            ("directory", "is a directory"),
        ];
        for (name, what) in others {
            for refused in [read_plain(&at(name)).err(), open_input(&at(name)).err()] {
                let why = refused.expect(name).to_string();
                assert!(why.contains(what), "{name}: {why}");
            }
        }
    }
}
