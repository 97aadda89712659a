//! Tests that files are recognized by their content, whatever their names are.

use crate::common::*;
use std::fs;
use std::path::Path;
use tprof_import::{Options, import, is_foreign, packed_as};
use tprof_trace::model::*;

const TRACE: &str = r#"{"traceEvents": [{"ph":"X","name":"a","pid":1,"tid":1,"ts":5,"dur":2}]}"#;
const LOG: &str =
    "V1127 10:00:00.000000 77 torch/_logging/structured.py:28] {\"str\": [\"/a.py\", 0]}\n";

fn zstd(text: &[u8]) -> Vec<u8> {
    zstd::encode_all(text, 1).unwrap()
}

fn spans(path: &Path) -> usize {
    let scratch = tempfile::tempdir().unwrap();
    let run = scratch.path().join("run");
    let imported = import(&[path.to_owned()], &run, &Options::new("test")).unwrap();
    let files = imported.files.iter().map(|(file, _)| tprof_trace::TraceFile::open(file).unwrap());
    files.map(|file| file.rows::<Span>().0.len()).sum()
}

#[test]
fn traces_and_logs_are_recognized_by_content() {
    let scratch = tempfile::tempdir().unwrap();
    let list = r#"[{"ph":"X","name":"a","pid":1,"tid":1,"ts":5,"dur":2}"#;
    let files = [
        ("trace", TRACE.as_bytes().to_vec()),
        ("trace.txt", format!("\u{feff}{TRACE}").into_bytes()),
        ("t.pt.trace", format!("\n {TRACE}").into_bytes()),
        ("list", list.as_bytes().to_vec()),
        ("trace.gz", gzip(TRACE.as_bytes())),
        ("rank0_gz", gzip(TRACE.as_bytes())),
        ("plain.json.gz", TRACE.as_bytes().to_vec()),
        ("trace.json.zst", zstd(TRACE.as_bytes())),
    ];
    for (name, bytes) in files {
        let path = scratch.path().join(name);
        fs::write(&path, bytes).unwrap();
        assert!(is_foreign(&path), "{name}");
        assert_eq!(spans(&path), 1, "{name}");
    }
    let log = LOG.as_bytes();
    for (name, bytes) in [("log.txt", log.to_vec()), ("l", gzip(log)), ("z.gz", zstd(log))] {
        let path = scratch.path().join(name);
        fs::write(&path, bytes).unwrap();
        assert!(is_foreign(&path), "{name}");
        let run = scratch.path().join(format!("run of {name}"));
        let imported = import(&[path], &run, &Options::new("test")).unwrap();
        assert!(imported.notes[0].contains("torch.compile"), "{:?}", imported.notes);
    }
    let path = scratch.path().join("notes.txt");
    fs::write(&path, "hello").unwrap();
    assert!(!is_foreign(&path));
}

#[test]
fn a_directory_of_traces_with_unusual_names_is_imported() {
    let scratch = tempfile::tempdir().unwrap();
    let directory = scratch.path().join("traces");
    fs::create_dir(&directory).unwrap();
    fs::write(directory.join("settings"), r#"{"lr": [1, 2]}"#).unwrap();
    assert!(!is_foreign(&directory));
    fs::write(directory.join("rank0"), TRACE).unwrap();
    fs::write(directory.join("rank1.txt"), gzip(TRACE.as_bytes())).unwrap();
    assert!(is_foreign(&directory));
    assert_eq!(spans(&directory), 2);
}

#[test]
fn archives_are_recognized_by_content() {
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("trace.json");
    let packed = |bytes: &[u8]| {
        fs::write(&path, bytes).unwrap();
        packed_as(&path)
    };
    assert_eq!(packed(b"PK\x03\x04\x14\0"), Some("zip archive"));
    assert_eq!(packed(b"BZh91AY"), Some("bzip2 file"));
    let mut tar = [0; 1024];
    tar[257..262].copy_from_slice(b"ustar");
    assert_eq!(packed(&gzip(&tar)), Some("tar archive"));
    assert_eq!(packed(TRACE.as_bytes()), None);
    assert_eq!(packed(b""), None);
}

#[test]
fn a_damaged_log_is_read_up_to_the_damage() {
    let scratch = tempfile::tempdir().unwrap();
    let mut bytes = gzip(LOG.as_bytes());
    let at = bytes.len() - 8;
    bytes[at] ^= 1;
    let path = scratch.path().join("log.gz");
    fs::write(&path, bytes).unwrap();
    let run = scratch.path().join("run");
    let imported = import(&[path], &run, &Options::new("test")).unwrap();
    assert_eq!(imported.losses.len(), 1);
    assert!(imported.losses[0].why.contains("checksum"), "{:?}", imported.losses);
}
