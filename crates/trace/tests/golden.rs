//! Tests that files of every readable format version still open and have the same content.
//!
//! After an intended change of the format, `TPROF_BLESS=1` rewrites the pair of files of the
//! current version. The pairs of earlier versions never change.

use crate::common;
use std::path::Path;
use tprof_trace::{FORMAT_VERSION, TraceFile};

#[test]
fn files_of_every_readable_version_have_unchanged_content() {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    if std::env::var_os("TPROF_BLESS").is_some() {
        let path = golden.join(format!("v{FORMAT_VERSION}.tprof"));
        let _ = std::fs::remove_file(&path);
        common::write(&path).finish().unwrap();
        let text = common::describe(&TraceFile::open(&path).unwrap());
        std::fs::write(path.with_extension("txt"), text).unwrap();
    }
    for version in tprof_trace::OLDEST_READABLE..=FORMAT_VERSION {
        let path = golden.join(format!("v{version}.tprof"));
        let file = TraceFile::open(&path).unwrap();
        assert_eq!(file.problems(), []);
        let expected = std::fs::read_to_string(path.with_extension("txt")).unwrap();
        assert_eq!(common::describe(&file), expected);
    }
}

#[test]
fn a_file_written_now_has_the_content_of_the_golden_file() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("now.tprof");
    common::write(&path).finish().unwrap();
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    let expected = std::fs::read_to_string(golden.join(format!("v{FORMAT_VERSION}.txt"))).unwrap();
    assert_eq!(common::describe(&TraceFile::open(&path).unwrap()), expected);
}
