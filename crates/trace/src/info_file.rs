//! Which files of a directory a collector wrote, by their contents: a directory that holds a run
//! may be a user's, with files of such names.

use crate::file::MAGIC;
use crate::run::RunInfo;
use serde_json::Value;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;

/// What a file with the name of an info file holds.
#[derive(Debug)]
pub enum InfoFile {
    /// What a collector wrote, of this version or a newer one that this build can read.
    Run(Box<RunInfo>),
    /// What a newer collector wrote, in a form that this build cannot read; its version.
    Newer(u64),
    /// Nothing: a collector has made the file, and has not written yet.
    Empty,
    /// No whole JSON, or it cannot be read; why. Whose it is, is unknown.
    Damaged(String),
    /// JSON that no collector wrote.
    Foreign,
}

impl InfoFile {
    /// Reads a file.
    pub fn read(path: &Path) -> InfoFile {
        match fs::read(path) {
            Ok(bytes) => InfoFile::parse(&bytes),
            Err(error) => InfoFile::Damaged(error.to_string()),
        }
    }

    /// Reads a file's contents.
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
        // From the text: through a value, numbers beyond 64 bits would be refused in other words.
        match serde_json::from_slice(bytes) {
            Ok(info) => InfoFile::Run(Box::new(info)),
            Err(_) if version > u64::from(crate::run::RUN_VERSION) => InfoFile::Newer(version),
            Err(error) => InfoFile::Damaged(error.to_string()),
        }
    }

    /// Whether a collector made it.
    pub fn is_own(&self) -> bool {
        matches!(self, InfoFile::Run(_) | InfoFile::Newer(_) | InfoFile::Empty)
    }
}

/// Whether a file of this name may be the `run.json` of a collector.
pub fn is_info_name(name: &str) -> bool {
    name == "run.json" || name.starts_with("run-") && name.ends_with(".json")
}

/// Whether a file begins as a trace file does, as far as it goes; one that was cut off before its
/// first byte does.
///
/// Fails where the file cannot be read.
pub fn is_trace_file(path: &Path) -> io::Result<bool> {
    let mut bytes = Vec::new();
    File::open(path)?.take(MAGIC.len() as u64).read_to_end(&mut bytes)?;
    Ok(MAGIC.starts_with(&bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_no_collector_wrote_is_no_info() {
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
    fn a_trace_file_begins_as_one_or_is_cut_off() {
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
