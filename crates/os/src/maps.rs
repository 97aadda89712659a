//! Reads the mappings of a process, from the text of `/proc/PID/maps` or by requests to the kernel.
//!
//! A CUDA process has thousands of mappings, and they are read again after each `dlopen`. If the
//! kernel supports it, the executable mappings are requested one by one. Otherwise the whole text
//! is parsed, but paths are copied only for the mappings that are kept.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

use crate::sys;

/// A mapping of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// First address of the mapping.
    pub start: u64,
    /// One past the last address.
    pub end: u64,
    /// Offset in the file.
    pub offset: u64,
    /// Device of the file, `major << 32 | minor`; 0 if no file is mapped.
    pub dev: u64,
    /// Inode of the file; 0 if no file is mapped.
    pub inode: u64,
    /// Path as the process sees it, a name like `[vdso]`, or empty.
    pub path: PathBuf,
    /// Whether the mapping is executable.
    pub exec: bool,
    /// Whether the file has been removed or replaced since it was mapped.
    pub deleted: bool,
}

/// Reads all mappings of a process.
pub fn read_maps(pid: u32) -> io::Result<Vec<Mapping>> {
    Ok(parse_maps(&read(pid)?, |_| true))
}

/// Reads the executable mappings of a process.
pub fn read_code_maps(pid: u32) -> io::Result<Vec<Mapping>> {
    match query_code_maps(pid) {
        // The process has ended, so it has no mappings.
        Err(e) if e.raw_os_error() == Some(libc::ESRCH) => Ok(Vec::new()),
        // The kernel is too old for such requests, or a filter refuses them.
        Err(_) => Ok(code_of(&read(pid)?)),
        mappings => mappings,
    }
}

/// Parses the executable mappings in the text, except for the kernel's page for system calls, which
/// a request doesn't return either.
fn code_of(text: &[u8]) -> Vec<Mapping> {
    let mut mappings = parse_maps(text, |exec| exec);
    mappings.retain(|mapping| mapping.start >> 63 == 0);
    mappings
}

/// Requests the executable mappings from the kernel, one by one.
fn query_code_maps(pid: u32) -> io::Result<Vec<Mapping>> {
    let file = File::open(format!("/proc/{pid}/maps"))?;
    let mut name = [0; libc::PATH_MAX as usize];
    let mut mappings = Vec::new();
    let mut from = 0;
    while let Some(found) = sys::code_mapping_from(&file, from, &mut name)? {
        from = found.end;
        let path = &name[..(found.name_len as usize).saturating_sub(1).min(name.len())];
        let (path, deleted) = strip_deleted_mark(path, found.inode);
        mappings.push(Mapping {
            start: found.start,
            end: found.end,
            offset: found.offset,
            dev: u64::from(found.major) << 32 | u64::from(found.minor),
            inode: found.inode,
            path: PathBuf::from(OsString::from_vec(path.to_vec())),
            exec: true,
            deleted,
        });
    }
    Ok(mappings)
}

/// Removes the kernel's mark for a removed file from a path. Returns whether the path had the mark.
fn strip_deleted_mark(path: &[u8], inode: u64) -> (&[u8], bool) {
    match path.strip_suffix(b" (deleted)") {
        Some(path) if inode != 0 => (path, true),
        _ => (path, false),
    }
}

/// Reads the text. The kernel returns at most a page at a time, and less if the buffer is smaller.
/// `std::fs::read` doesn't know the size, so it needs nine system calls for a small program.
fn read(pid: u32) -> io::Result<Vec<u8>> {
    const ROOM: usize = 8 << 10;
    let mut file = File::open(format!("/proc/{pid}/maps"))?;
    let mut text = vec![0; 2 * ROOM];
    let mut len = 0;
    loop {
        if text.len() - len < ROOM {
            text.resize(text.len() * 2, 0);
        }
        match file.read(&mut text[len..]) {
            Ok(0) => break,
            Ok(got) => len += got,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    text.truncate(len);
    Ok(text)
}

/// Parses the text of a `maps` file. `keep` tells from whether a mapping is executable whether it
/// is kept. Malformed lines are skipped.
pub fn parse_maps(text: &[u8], keep: impl Fn(bool) -> bool) -> Vec<Mapping> {
    text.split(|b| *b == b'\n').filter_map(|line| parse_line(line, &keep)).collect()
}

fn parse_line(line: &[u8], keep: impl Fn(bool) -> bool) -> Option<Mapping> {
    let (start, rest) = hex(line)?;
    let (end, rest) = hex(rest.strip_prefix(b"-")?)?;
    let rest = rest.strip_prefix(b" ")?;
    let exec = *rest.get(2)? == b'x';
    if !keep(exec) {
        return None;
    }
    let (offset, rest) = hex(rest.get(4..)?.strip_prefix(b" ")?)?;
    let (major, rest) = hex(rest.strip_prefix(b" ")?)?;
    let (minor, rest) = hex(rest.strip_prefix(b":")?)?;
    let rest = rest.strip_prefix(b" ")?;
    let digits = rest.iter().position(|b| !b.is_ascii_digit()).unwrap_or(rest.len());
    let inode = std::str::from_utf8(&rest[..digits]).ok()?.parse().ok()?;
    // The kernel pads with spaces up to a column and then writes the path. A path may contain
    // spaces.
    let path = rest[digits..].trim_ascii_start();
    let (path, deleted) = strip_deleted_mark(path, inode);
    let path = PathBuf::from(OsString::from_vec(unescape(path)));
    let dev = major << 32 | (minor & 0xffff_ffff);
    (start < end).then_some(Mapping { start, end, offset, dev, inode, path, exec, deleted })
}

/// Parses a hexadecimal number. Returns it and the text after it.
fn hex(text: &[u8]) -> Option<(u64, &[u8])> {
    let digits = text.iter().position(|b| !b.is_ascii_hexdigit()).unwrap_or(text.len());
    if digits == 0 || digits > 16 {
        return None;
    }
    let value = text[..digits]
        .iter()
        .fold(0, |n: u64, b| n << 4 | u64::from((*b as char).to_digit(16).unwrap_or(0)));
    Some((value, &text[digits..]))
}

/// Reverts the kernel's escaping of newlines, the only bytes that it escapes.
fn unescape(path: &[u8]) -> Vec<u8> {
    if !path.contains(&b'\\') {
        return path.to_vec();
    }
    let mut out = Vec::with_capacity(path.len());
    let mut rest = path;
    while let Some((first, tail)) = rest.split_first() {
        match rest.strip_prefix(b"\\012") {
            Some(tail) => {
                out.push(b'\n');
                rest = tail;
            }
            None => {
                out.push(*first);
                rest = tail;
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(line: &str) -> Option<Mapping> {
        parse_maps(line.as_bytes(), |_| true).pop()
    }

    #[test]
    fn the_line_of_a_library_is_parsed() {
        let m = one("7f0102030000-7f0102031000 r-xp 00028000 fe:01 1234567    /usr/lib/a b.so")
            .unwrap();
        assert_eq!((m.start, m.end, m.offset), (0x7f01_0203_0000, 0x7f01_0203_1000, 0x28000));
        assert_eq!((m.dev, m.inode, m.exec, m.deleted), (0xfe << 32 | 1, 1_234_567, true, false));
        assert_eq!(m.path, PathBuf::from("/usr/lib/a b.so"));
    }

    #[test]
    fn removed_files_anonymous_memory_and_newlines_are_distinguished() {
        let m = one("1000-2000 rw-p 00000000 00:00 0 ").unwrap();
        assert_eq!((m.path, m.exec, m.inode), (PathBuf::new(), false, 0));
        let m = one("1000-2000 r-xp 00000000 08:01 9      /tmp/x (deleted)").unwrap();
        assert_eq!((m.path, m.deleted), (PathBuf::from("/tmp/x"), true));
        let m = one("1000-2000 r-xp 00000000 08:01 9      /tmp/x\\012y").unwrap();
        assert_eq!(m.path, PathBuf::from("/tmp/x\ny"));
        let m = one("7ffd0000-7ffd2000 r-xp 00000000 00:00 0    [vdso]").unwrap();
        assert_eq!((m.path, m.exec), (PathBuf::from("[vdso]"), true));
    }

    #[test]
    fn malformed_lines_are_skipped() {
        for line in [
            "",
            "x",
            "1-",
            "1-2",
            "1-2 ",
            "1-2 rw",
            "1-2 rwxp",
            "2-1 r-xp 0 0:0 0",
            "1-2 r-xp 0 0:0 ",
            "11111111111111111-2 r-xp 0 0:0 0",
            "1-2 r-xp 0 0 0 /x",
        ] {
            assert_eq!(one(line), None, "{line:?}");
        }
    }

    /// Both ways must also agree on a removed file whose name has escaped bytes.
    #[test]
    #[allow(unsafe_code)] // a mapping
    fn both_ways_to_read_code_agree() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a b\\\nc (deleted)");
        std::fs::write(&path, [0; 8192]).unwrap();
        let file = File::open(&path).unwrap();
        // SAFETY: nobody else knows the file, and this test doesn't change it while it is mapped or
        // run anything in it.
        let map = unsafe { memmap2::MmapOptions::new().offset(4096).map_exec(&file) }.unwrap();
        std::fs::remove_file(&path).unwrap();
        let text = code_of(&read(std::process::id()).unwrap());
        let own = text.iter().find(|m| m.start == map.as_ptr().addr() as u64).unwrap();
        assert_eq!((&own.path, own.offset, own.deleted), (&path, 4096, true));
        assert_eq!(read_code_maps(std::process::id()).unwrap(), text);
    }

    #[test]
    fn own_mappings_are_read() {
        let all = read_maps(std::process::id()).unwrap();
        let code = read_code_maps(std::process::id()).unwrap();
        assert!(code.len() < all.len() && code.iter().all(|m| m.exec));
        let exe = std::env::current_exe().unwrap();
        assert!(code.iter().any(|m| m.path == exe));
    }
}
