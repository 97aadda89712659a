//! Finds out by content which files of a directory a collector wrote. The user's own files may be
//! in the same directory under the same names.

use crate::file::MAGIC;
use crate::plain_file::{open_plain, read_plain};
use crate::run::RunInfo;
use serde_json::Value;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// The extension of the marker whose path [`unwritten_marker`] returns.
const UNWRITTEN: &str = "unwritten";
/// The first version of `run.json` that always has a checksum.
const WITH_CHECKSUM: u64 = 2;
/// The last key of an info file. Its value is the CRC-32 of the bytes before it.
const CHECKSUM: &str = "checksum";
/// The bytes before the value of the checksum.
const BEFORE_CHECKSUM: &str = ",\n  \"checksum\": ";

/// The content of a file that has the name of an info file.
#[derive(Debug)]
pub enum InfoFile {
    /// An info file of this version, or of a newer version that this build can read.
    Run(Box<RunInfo>),
    /// An info file of a newer version that this build can't read; its version.
    Newer(u64),
    /// The file is empty: a collector has created it and hasn't written to it yet.
    Empty,
    /// The JSON is incomplete or can't be read; the reason. The file's owner isn't known.
    Damaged(String),
    /// The file contains JSON that no collector wrote.
    Foreign,
}

impl InfoFile {
    /// Reads a file and parses it.
    pub fn read(path: &Path) -> InfoFile {
        match read_plain(path) {
            Ok(bytes) => InfoFile::parse(&bytes),
            Err(error) => InfoFile::Damaged(error.to_string()),
        }
    }

    /// Parses a file's contents.
    pub fn parse(bytes: &[u8]) -> InfoFile {
        if bytes.is_empty() {
            return InfoFile::Empty;
        }
        let value: Value = match serde_json::from_slice(bytes) {
            Ok(value) => value,
            Err(error) => return InfoFile::Damaged(error.to_string()),
        };
        let version = value["version"].as_u64().filter(|version| *version > 0);
        let stamp = version.filter(|_| value["tprof"].is_string());
        let Some(version) = stamp.filter(|_| value["collector_pid"].is_u64()) else {
            return InfoFile::Foreign;
        };
        // Parse from the text. Converting a `Value` would refuse numbers beyond 64 bits with
        // another message.
        match serde_json::from_slice(bytes) {
            Ok(info) => {
                let has_checksum = version >= WITH_CHECKSUM || value.get(CHECKSUM).is_some();
                let is_changed = has_checksum && !is_as_written(bytes);
                InfoFile::Run(Box::new(RunInfo { is_changed, ..info }))
            }
            Err(_) if version > u64::from(crate::run::RUN_VERSION) => InfoFile::Newer(version),
            Err(error) => InfoFile::Damaged(error.to_string()),
        }
    }

    /// Whether a collector wrote the file.
    pub fn is_own(&self) -> bool {
        matches!(self, InfoFile::Run(_) | InfoFile::Newer(_) | InfoFile::Empty)
    }
}

/// Returns the text of an info file, with its checksum.
pub fn info_text(info: &RunInfo) -> serde_json::Result<Vec<u8>> {
    let mut text = serde_json::to_vec_pretty(info)?;
    text.truncate(text.len().saturating_sub("\n}".len()));
    let crc = crc32fast::hash(&text);
    text.extend_from_slice(format!("{BEFORE_CHECKSUM}\"{crc:08x}\"\n}}\n").as_bytes());
    Ok(text)
}

/// Whether the bytes before the checksum match it.
fn is_as_written(bytes: &[u8]) -> bool {
    let before = BEFORE_CHECKSUM.as_bytes();
    let at = bytes.windows(before.len()).rposition(|window| window == before);
    at.is_some_and(|at| {
        let crc = crc32fast::hash(&bytes[..at]);
        bytes[at + before.len()..] == *format!("\"{crc:08x}\"\n}}\n").as_bytes()
    })
}

/// Whether a file of this name may be the `run.json` of a collector.
pub fn is_info_name(name: &str) -> bool {
    name == "run.json" || name.starts_with("run-") && name.ends_with(".json")
}

/// Returns the path of the marker that a collector leaves next to its info file while the disk is
/// full. The marker contains the reason if the disk accepts that much. An empty marker can always
/// be created, because it needs no block of the disk.
pub fn unwritten_marker(info: &Path) -> PathBuf {
    info.with_extension(UNWRITTEN)
}

/// Whether a file of this name may be a collector's [`unwritten_marker`].
pub fn is_unwritten_name(name: &str) -> bool {
    let stem = name.strip_suffix(UNWRITTEN).and_then(|stem| stem.strip_suffix('.'));
    stem.is_some_and(|stem| is_info_name(&format!("{stem}.json")))
}

/// Whether a file begins with the first bytes of a trace file. An empty file, or a file that is cut
/// off within these bytes, counts as a trace file too.
///
/// Fails if the file can't be read.
pub fn is_trace_file(path: &Path) -> io::Result<bool> {
    let mut bytes = Vec::new();
    open_plain(path)?.take(MAGIC.len() as u64).read_to_end(&mut bytes)?;
    Ok(MAGIC.starts_with(&bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn a_file_that_no_collector_wrote_is_not_an_info_file() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("run-config.json");
        let read = |text: &str| {
            fs::write(&path, text).unwrap();
            InfoFile::read(&path)
        };
        for foreign in ["{}", "[]", "7", r#"{"lr": 0.1}"#, r#"{"version": 3, "tprof": "mine"}"#] {
            assert!(matches!(read(foreign), InfoFile::Foreign), "{foreign}");
        }
        let info = RunInfo { version: 1, tprof: "0.1.0".to_owned(), ..RunInfo::default() };
        let text = serde_json::to_string(&info).unwrap();
        assert!(matches!(read(&text), InfoFile::Run(_)));
        let newer = r#"{"version": 9, "tprof": "9.0.0", "collector_pid": 4, "host": ["a"]}"#;
        assert!(matches!(read(newer), InfoFile::Newer(9)));
        assert!(matches!(read(&text[..40]), InfoFile::Damaged(_)));
        assert!(matches!(read(""), InfoFile::Empty));
    }

    #[test]
    fn each_flipped_bit_of_an_info_file_is_noticed() {
        let ranks = vec![crate::run::RankInfo { rank: 3, size: Some(8), ..Default::default() }];
        let info = RunInfo { version: 2, tprof: "0.1.0".to_owned(), ranks, ..RunInfo::default() };
        let text = info_text(&info).unwrap();
        let whole = |bytes: &[u8]| match InfoFile::parse(bytes) {
            InfoFile::Run(read) => !read.is_changed,
            _ => false,
        };
        assert!(whole(&text), "{}", String::from_utf8_lossy(&text));
        for at in 0..text.len() {
            for bit in 0..8 {
                let mut flipped = text.clone();
                flipped[at] ^= 1 << bit;
                assert!(!whole(&flipped), "bit {bit} of byte {at}");
            }
        }
        assert!(!whole(&serde_json::to_vec_pretty(&info).unwrap()), "no checksum");
        let old = RunInfo { version: 1, ..info };
        assert!(whole(&serde_json::to_vec_pretty(&old).unwrap()), "of an older tprof");
    }

    #[test]
    fn an_edited_info_file_is_read_and_marked_as_changed() {
        let info = RunInfo { version: 1, tprof: "0.1.0".to_owned(), ..RunInfo::default() };
        let text = String::from_utf8(info_text(&info).unwrap()).unwrap();
        let edited = text.replace(r#""host": """#, r#""host": "other""#);
        assert_ne!(text, edited);
        let value: Value = serde_json::from_str(&text).unwrap();
        for changed in [edited, value.to_string()] {
            let InfoFile::Run(read) = InfoFile::parse(changed.as_bytes()) else {
                panic!("{changed}")
            };
            assert!(read.is_changed, "{changed}");
        }
    }

    #[test]
    fn a_trace_file_begins_with_the_magic_or_a_part_of_it() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("rank-0.tprof");
        for (bytes, is_trace) in
            [(&b""[..], true), (b"TPROF", true), (b"TPROF\0\r\n and more", true), (b"my ", false)]
        {
            fs::write(&path, bytes).unwrap();
            assert_eq!(is_trace_file(&path).unwrap(), is_trace, "{bytes:?}");
        }
    }
}
