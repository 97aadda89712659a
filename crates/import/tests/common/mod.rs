//! Imports texts for the tests, and reads the resulting runs.

#![allow(dead_code, reason = "every test uses a part")]

use std::path::PathBuf;
use tempfile::TempDir;
use tprof_import::{ImportError, Imported, Options, import};
use tprof_trace::model::*;
use tprof_trace::run::RunInfo;
use tprof_trace::{RunDir, TraceFile, TraceRow};

/// An imported run.
pub struct Run {
    pub imported: Imported,
    pub info: RunInfo,
    pub dir: RunDir,
    pub files: Vec<TraceFile>,
    _scratch: TempDir,
}

/// Imports files of these names and contents.
pub fn import_files(files: &[(&str, &[u8])]) -> Result<Run, ImportError> {
    import_files_with(files, &Options::new("test"))
}

pub fn import_files_with(files: &[(&str, &[u8])], options: &Options) -> Result<Run, ImportError> {
    let scratch = tempfile::tempdir().unwrap();
    let write = |(name, bytes): &(&str, &[u8])| {
        let path = scratch.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        path
    };
    let paths: Vec<PathBuf> = files.iter().map(write).collect();
    let output = scratch.path().join("run");
    let imported = match import(&paths, &output, options) {
        Ok(imported) => imported,
        Err(error) => {
            assert!(!output.exists(), "a failed import left something behind");
            return Err(error);
        }
    };
    let dir = RunDir::open(&output).unwrap();
    assert_eq!(dir.problems(), []);
    let files = dir.files().iter().map(|file| TraceFile::open(&file.path).unwrap()).collect();
    Ok(Run { imported, info: dir.infos()[0].clone(), dir, files, _scratch: scratch })
}

/// Imports one text.
pub fn import_text(text: &[u8]) -> Result<Run, ImportError> {
    let run = import_files(&[("trace.json", text)])?;
    check(&run);
    Ok(run)
}

/// Imports a list of events.
pub fn import_events(events: &[&str]) -> Run {
    let text = format!("{{\"traceEvents\": [\n{}\n]}}", events.join(",\n"));
    import_text(text.as_bytes()).unwrap()
}

impl Run {
    pub fn file(&self) -> &TraceFile {
        &self.files[0]
    }

    pub fn rows<R: TraceRow>(&self) -> Vec<R> {
        let (rows, problems) = self.file().rows::<R>();
        assert_eq!(problems, []);
        rows
    }

    pub fn name(&self, id: NameId) -> &str {
        self.file().name(id)
    }

    /// Returns how many parts of the source were lost for reasons whose text contains `why`.
    pub fn lost(&self, why: &str) -> u64 {
        let file = self.file();
        let losses = file.losses().iter().filter(|loss| file.name(loss.why).contains(why));
        losses.map(|loss| loss.count).sum()
    }
}

/// Checks the properties that every imported run must have.
pub fn check(run: &Run) {
    for file in &run.files {
        assert_eq!(file.problems(), []);
        let whole = |args: NameId| {
            let text = file.name(args);
            if !text.is_empty() {
                let value: serde_json::Value = serde_json::from_str(text).unwrap();
                assert!(value.is_object(), "{text}");
            }
        };
        fn all<R: TraceRow>(file: &TraceFile) -> Vec<R> {
            let (rows, problems) = file.rows::<R>();
            assert_eq!(problems, []);
            rows
        }
        let inside = |process: u32, thread: u32| {
            assert!(file.threads()[thread as usize].process == process);
            assert!((process as usize) < file.processes().len());
        };
        for row in all::<Span>(file) {
            assert!(row.start_ns.checked_add(row.duration_ns).is_some());
            inside(row.process, row.thread);
            assert!(file.threads()[row.thread as usize].start_ns <= row.start_ns);
            assert!(file.processes()[row.process as usize].start_ns <= row.start_ns);
            assert!(file.header().start_ns <= row.start_ns);
            whole(row.args);
            assert!(row.stack == 0 || file.stack(row.process, row.stack).is_some());
        }
        all::<Kernel>(file).iter().for_each(|row| whole(row.args));
        all::<MemoryCopy>(file).iter().for_each(|row| whole(row.args));
        all::<Synchronization>(file).iter().for_each(|row| whole(row.args));
        all::<DeviceSpan>(file).iter().for_each(|row| whole(row.args));
        all::<DeviceAllocation>(file).iter().for_each(|row| inside(row.process, row.thread));
        all::<Collective>(file);
        all::<FlowPoint>(file);
        for (_, value) in file.properties() {
            serde_json::from_str::<serde_json::Value>(value).unwrap();
        }
        assert!(file.counters().iter().all(|row| row.value.is_finite()));
    }
    assert!(run.info.completeness.lost == run.imported.lost);
}

/// Compresses a text by gzip.
pub fn gzip(text: &[u8]) -> Vec<u8> {
    use std::io::Write;
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(text).unwrap();
    encoder.finish().unwrap()
}
