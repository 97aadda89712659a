//! Opens plain files and refuses other kinds. A name in a directory may belong to a pipe, on which
//! opening blocks until another process writes. It may also belong to a device, which may react to
//! being opened or never end.

use std::fs::{self, File, FileType, Metadata};
use std::io::{self, Read};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;

/// The value of `O_NONBLOCK` on every architecture that tprof is built for.
const O_NONBLOCK: i32 = 0o4000;

/// Opens a plain file for reading. Any other kind of file is refused without being opened.
pub fn open_plain(path: &Path) -> io::Result<File> {
    check(&fs::metadata(path)?)?;
    let file = unblocked(path)?;
    // Check the opened file too, because another file may have taken the name since the first
    // check.
    check(&file.metadata()?)?;
    Ok(file)
}

/// Returns the contents of a plain file.
pub fn read_plain(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open_plain(path)?.read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Opens a file that a person named as an input. It may be a plain file, or the pipe that a shell
/// made for a command (`<(zcat trace.gz)`, `/dev/stdin`). A pipe with a name in the file system is
/// refused.
pub fn open_input(path: &Path) -> io::Result<File> {
    let about = fs::metadata(path)?;
    // A shell's pipe has no name in the file system, so the link to it can't be resolved.
    match about.file_type().is_fifo() && fs::canonicalize(path).is_err() {
        true => File::open(path),
        false => open_plain(path),
    }
}

/// Opens a file without waiting for the writer of a pipe. The flag has no effect on reading a plain
/// file.
fn unblocked(path: &Path) -> io::Result<File> {
    File::options().read(true).custom_flags(O_NONBLOCK).open(path)
}

fn check(about: &Metadata) -> io::Result<()> {
    if about.is_file() {
        return Ok(());
    }
    if about.is_dir() {
        return Err(io::ErrorKind::IsADirectory.into());
    }
    let what = format!("it is {}, not a plain file", name(about.file_type()));
    Err(io::Error::new(io::ErrorKind::InvalidInput, what))
}

fn name(kind: FileType) -> &'static str {
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
