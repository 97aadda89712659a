//! Tests how files get their ranks, and how directories are imported.

use crate::common::*;
use tprof_import::{ImportError, Options, import, is_foreign};

fn trace(rank: Option<u32>) -> Vec<u8> {
    let info =
        rank.map_or(String::new(), |rank| format!("\"distributedInfo\": {{\"rank\": {rank}}},"));
    format!("{{{info} \"traceEvents\": [{{\"ph\":\"X\",\"name\":\"a\",\"pid\":1,\"tid\":1,\"ts\":5,\"dur\":2}}]}}").into_bytes()
}

fn names(run: &Run) -> Vec<String> {
    let name = |file: &tprof_trace::RankFile| {
        file.path.file_name().unwrap().to_string_lossy().into_owned()
    };
    run.dir.files().iter().map(name).collect()
}

#[test]
fn ranks_come_from_the_trace_then_the_name_then_the_order() {
    let (named, plain) = (trace(Some(2)), trace(None));
    let run = import_files(&[
        ("x.json", &plain),
        ("named.json", &named),
        ("worker0.pt.trace.json", &plain),
        ("y.json", &plain),
    ])
    .unwrap();
    check(&run);
    assert_eq!(names(&run), ["rank-0.tprof", "rank-1.tprof", "rank-2.tprof", "rank-3.tprof"]);
    let sources: Vec<_> = run
        .imported
        .files
        .iter()
        .map(|(_, source)| source.file_name().unwrap().to_owned())
        .collect();
    assert_eq!(sources, ["x.json", "named.json", "worker0.pt.trace.json", "y.json"]);
    assert_eq!(run.imported.notes.len(), 2, "{:?}", run.imported.notes);
    assert!(run.imported.notes[0].ends_with("names no rank: taken as rank 1"));
}

#[test]
fn a_second_file_of_a_rank_becomes_a_restart_and_is_reported() {
    let named = trace(Some(2));
    let run = import_files(&[("a.json", &named), ("b.json", &named)]).unwrap();
    assert_eq!(names(&run), ["rank-2.tprof", "rank-2.1.tprof"]);
    assert!(run.imported.notes[0].contains("is also of rank 2"));
}

#[test]
fn a_directory_of_plain_and_gzipped_traces_is_imported() {
    let scratch = tempfile::tempdir().unwrap();
    let (input, output) = (scratch.path().join("traces"), scratch.path().join("run"));
    std::fs::create_dir(&input).unwrap();
    assert!(!is_foreign(&input));
    std::fs::write(input.join("rank-1.json.gz"), gzip(&trace(None))).unwrap();
    std::fs::write(input.join("rank-0.json"), trace(None)).unwrap();
    std::fs::write(input.join("config.json"), b"{\"lr\": 0.1}").unwrap();
    std::fs::write(input.join("notes.txt"), b"hello").unwrap();
    assert!(is_foreign(&input) && is_foreign(&input.join("rank-0.json")));
    let imported = import(std::slice::from_ref(&input), &output, &Options::new("test")).unwrap();
    assert_eq!(imported.files.len(), 2);
    assert!(imported.notes[0].contains("config.json"), "{:?}", imported.notes);
    assert!(!is_foreign(&output));
    let left: Vec<_> =
        std::fs::read_dir(&output).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(left.len(), 3, "{left:?}");
}

#[test]
fn skipped_subdirectories_with_traces_are_noted() {
    let scratch = tempfile::tempdir().unwrap();
    let top = scratch.path().join("top");
    for path in ["a.json", "one/b.json", "two/deep/c.json.gz", "a_run/rank-0.json"] {
        let path = top.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, trace(None)).unwrap();
    }
    std::fs::write(top.join("a_run/run.json"), "{}").unwrap();
    std::fs::create_dir(top.join("empty")).unwrap();
    let options = Options::new("test");
    let into = |paths: &[std::path::PathBuf], name: &str| {
        import(paths, &scratch.path().join(name), &options)
    };
    let imported = into(std::slice::from_ref(&top), "r1").unwrap();
    assert_eq!(imported.files.len(), 1);
    let note = &imported.notes[0];
    assert!(
        note.starts_with("2 directories with traces in ") && note.contains("top/one"),
        "{note}"
    );
    // A subdirectory that the user named is imported, so the note doesn't list it.
    let imported = into(&[top.clone(), top.join("one")], "r2").unwrap();
    assert!(imported.notes[0].starts_with("1 directory with traces"), "{:?}", imported.notes);
    let within = match into(&[top.join("two")], "r3").err().unwrap() {
        ImportError::NoTraces { within, .. } => within,
        error => panic!("{error}"),
    };
    assert_eq!(within, [top.join("two/deep")]);
}

#[test]
fn unreadable_files_of_a_directory_are_named() {
    let scratch = tempfile::tempdir().unwrap();
    let (input, output) = (scratch.path().join("traces"), scratch.path().join("run"));
    std::fs::create_dir(&input).unwrap();
    let put_trouble = || {
        let pipe = std::process::Command::new("mkfifo").arg(input.join("rank-1.json")).status();
        assert!(pipe.unwrap().success());
        drop(std::os::unix::net::UnixListener::bind(input.join("socket")).unwrap());
        std::fs::write(input.join("rank-3.json.gz"), "").unwrap();
        std::fs::write(input.join("rank-4.pickle"), "").unwrap();
        std::os::unix::fs::symlink("nowhere", input.join("rank-5.json")).unwrap();
        std::os::unix::fs::symlink("rank-6.json", input.join("rank-6.json")).unwrap();
        std::os::unix::fs::symlink("/dev/zero", input.join("rank-7.log")).unwrap();
        // The names of these empty files suggest no content, so they are not reported.
        std::fs::write(input.join("job.log"), "").unwrap();
        std::fs::write(input.join("done"), "").unwrap();
    };
    let options = Options::new("test");
    let import = || import(std::slice::from_ref(&input), &output, &options);
    put_trouble();
    let unread = match import() {
        Err(ImportError::NoTraces { unread, .. }) => unread,
        other => panic!("{other:?}"),
    };
    let expected = [
        ("rank-1.json", "it is a pipe, not a plain file"),
        ("rank-3.json.gz", "it is empty"),
        ("rank-4.pickle", "it is empty"),
        ("rank-5.json", "it is a link that leads nowhere"),
        ("rank-6.json", "symbolic link"),
        ("rank-7.log", "it is a device, not a plain file"),
        ("socket", "it is a socket, not a plain file"),
    ];
    let are_said = |texts: &[String]| {
        assert_eq!(texts.len(), expected.len(), "{texts:?}");
        for (text, (name, why)) in texts.iter().zip(expected) {
            assert!(text.contains(&format!("/{name}`: ")) && text.contains(why), "{text}");
        }
    };
    are_said(&unread);
    assert!(is_foreign(&input) && !output.exists());
    std::fs::write(input.join("rank-0.json"), trace(None)).unwrap();
    let imported = import().unwrap();
    assert_eq!(imported.files.len(), 1);
    assert!(imported.notes.iter().all(|note| note.starts_with("skipped: ")));
    are_said(&imported.notes);
}

#[test]
fn a_file_that_was_named_must_be_a_trace() {
    let good = trace(None);
    let error = import_files(&[("a.json", &good), ("b.json", b"{\"lr\": 0.1}")]).err().unwrap();
    assert!(matches!(error, ImportError::NotATrace { .. }), "{error}");
    assert!(error.to_string().contains("b.json"));
}

#[test]
fn an_import_of_nothing_is_refused_with_the_reason() {
    let scratch = tempfile::tempdir().unwrap();
    let output = scratch.path().join("run");
    let options = Options::new("test");
    let error = import(&[scratch.path().to_owned()], &output, &options).err().unwrap();
    assert!(matches!(error, ImportError::NoTraces { .. }));
    let error = import(&[scratch.path().join("none.json")], &output, &options).err().unwrap();
    assert!(matches!(error, ImportError::Io { what: "open", .. }));
    assert!(!output.exists());
}
