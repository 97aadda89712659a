//! Tests importing logs of `torch.compile`, alone and together with a trace of torch.profiler.

use crate::common::import_files;
use std::fs;
use std::path::PathBuf;
use tprof_facts::compile::RunLogs;
use tprof_import::{ImportError, Options, import, is_foreign};
use tprof_trace::{RunDir, TraceFile};

const NAME: &str = "dedicated_log_torch_trace_rank_3_x7.log.zst";

fn stored(version: &str) -> Vec<u8> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    fs::read(path.join(format!("../trace/tests/compile/torch-{version}.log.zst"))).unwrap()
}

/// Returns the rank of each file of a run, and the number of its compilations.
fn compiled(run: &RunDir) -> Vec<(Option<u32>, usize)> {
    let of = |file: &tprof_trace::RankFile| {
        let trace = TraceFile::open(&file.path).unwrap();
        let found = RunLogs::of(run).of_rank(file, &trace);
        assert!(found.problems.is_empty(), "{:?}", found.problems);
        (file.rank, found.logs.iter().map(|read| read.log.frames.len()).sum())
    };
    run.files().iter().map(of).collect()
}

#[test]
fn a_log_becomes_a_run_of_its_rank() {
    let run = import_files(&[(NAME, &stored("2.8"))]).unwrap();
    assert_eq!(compiled(&run.dir), [(Some(3), 10)]);
    let process = &run.info.processes[0];
    assert!(process.pid > 0 && process.end_ns.unwrap() > process.start_ns);
    assert!(run.imported.notes[0].contains("9 compilations by torch.compile, rank 3"));
    // The log's times are converted to the file's clock, which counts from the start of the run.
    let file = &run.files[0];
    let found = RunLogs::of(&run.dir).of_rank(&run.dir.files()[0], file);
    let read = &found.logs[0];
    let (start, end) = read.interval_ns(&read.log.frames[0]).unwrap();
    assert_eq!(read.log.frames[0].total_us.unwrap(), (end - start) / 1000);
    assert!(start >= file.header().start_ns && end <= run.info.end_ns.unwrap() + 1_000_000_000);
}

#[test]
fn a_log_next_to_a_trace_belongs_to_its_rank() {
    let trace = br#"{"distributedInfo": {"rank": 3}, "baseTimeNanoseconds": 1795511558000000000,
        "traceEvents": [{"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 7, "tid": 7,
        "ts": 600000, "dur": 2}]}"#;
    let log = stored("2.8");
    let name = "dedicated_log_torch_trace_x7.log.zst";
    let run = import_files(&[("t.json", trace), (name, &log)]).unwrap();
    assert_eq!(compiled(&run.dir), [(Some(3), 10)]);
    let other = "dedicated_log_torch_trace_rank_1_x8.log.zst";
    let run = import_files(&[("t.json", trace), (NAME, &log), (other, &log)]).unwrap();
    assert_eq!(compiled(&run.dir), [(Some(1), 10), (Some(3), 10)]);
}

#[test]
fn a_directory_of_plain_and_gzipped_logs_is_read() {
    let scratch = tempfile::tempdir().unwrap();
    let logs = scratch.path().join("logs");
    fs::create_dir(&logs).unwrap();
    let plain = zstd::decode_all(&*stored("2.4")).unwrap();
    fs::write(logs.join("dedicated_log_torch_trace_rank_0_a.log"), &plain).unwrap();
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    std::io::Write::write_all(&mut gzip, &plain).unwrap();
    let gzip = gzip.finish().unwrap();
    fs::write(logs.join("dedicated_log_torch_trace_rank_1_b.log.gz"), gzip).unwrap();
    fs::write(logs.join("notes.log"), "nothing\n").unwrap();
    assert!(is_foreign(&logs));
    let output = scratch.path().join("run");
    import(&[logs], &output, &Options::new("test")).unwrap();
    assert_eq!(compiled(&RunDir::open(&output).unwrap()), [(Some(0), 9), (Some(1), 9)]);
}

#[test]
fn each_log_of_any_name_in_a_directory_is_a_rank() {
    let log = zstd::decode_all(&*stored("2.8")).unwrap();
    for names in [["rank_0.log", "rank_1.log"], ["rank_0.txt", "rank_1"]] {
        let scratch = tempfile::tempdir().unwrap();
        let logs = scratch.path().join("logs");
        fs::create_dir(&logs).unwrap();
        for name in names {
            fs::write(logs.join(name), &log).unwrap();
        }
        // The directory also contains a JSON file that is not a trace, and a log of the job itself.
        fs::write(logs.join("config.json"), "{\"lr\": 1}").unwrap();
        fs::write(logs.join("rank_2.log"), "nothing\n").unwrap();
        let output = scratch.path().join("run");
        if names[0].ends_with(".txt") {
            fs::remove_file(logs.join("config.json")).unwrap();
        }
        assert!(is_foreign(&logs));
        import(&[logs], &output, &Options::new("test")).unwrap();
        assert_eq!(compiled(&RunDir::open(&output).unwrap()), [(Some(0), 10), (Some(1), 10)]);
    }
    // The error about a directory above these names the directory of logs.
    let scratch = tempfile::tempdir().unwrap();
    let within = scratch.path().join("top/logs");
    fs::create_dir_all(&within).unwrap();
    fs::write(within.join("rank_0.log"), &log).unwrap();
    let top = scratch.path().join("top");
    let error = import(&[top], &scratch.path().join("run"), &Options::new("test"));
    assert!(
        matches!(&error, Err(ImportError::NoTraces { within: named, .. }) if *named == [within]),
        "{error:?}"
    );
}

#[test]
fn an_import_of_a_log_that_is_too_large_leaves_no_files() {
    let scratch = tempfile::tempdir().unwrap();
    let log = scratch.path().join(NAME);
    fs::write(&log, stored("2.8")).unwrap();
    let output = scratch.path().join("run");
    let options = Options { max_input_bytes: 1 << 20, ..Options::new("test") };
    let error = import(&[log], &output, &options).unwrap_err();
    assert!(matches!(error, ImportError::TooLarge { limit: 1_048_576, .. }), "{error}");
    assert!(!output.exists());
}

#[test]
fn skipped_subdirectories_with_logs_are_listed() {
    let scratch = tempfile::tempdir().unwrap();
    let logs = scratch.path().join("logs");
    let other = logs.join("host-b");
    fs::create_dir_all(&other).unwrap();
    for directory in [&logs, &other] {
        fs::write(directory.join(NAME), stored("2.4")).unwrap();
    }
    let import = |paths: &[PathBuf], run: &str| {
        import(paths, &scratch.path().join(run), &Options::new("test")).unwrap().notes
    };
    let notes = import(std::slice::from_ref(&logs), "one");
    let skips = |notes: &[String]| notes.iter().any(|note| note.contains("skipped"));
    assert!(notes.iter().any(|note| note.starts_with("1 directory with traces in ")), "{notes:?}");
    let both = import(&[logs.clone(), other.clone()], "both");
    assert!(!skips(&both) && both.len() == 2, "{both:?}");
    // If a directory has no logs, the error names its subdirectory that has some.
    fs::remove_file(logs.join(NAME)).unwrap();
    let error = tprof_import::import(&[logs], &scratch.path().join("none"), &Options::new("test"));
    assert!(
        matches!(&error, Err(ImportError::NoTraces { within, .. }) if *within == [other]),
        "{error:?}"
    );
}
