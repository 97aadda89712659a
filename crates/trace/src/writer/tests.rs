//! Tests failures of the disk, and the state of the file after them.

use super::*;
use crate::reader::TraceFile;

fn mark(writer: &mut TraceWriter, text: &str) {
    let name = writer.name(text);
    writer.mark(Mark { time_ns: 1, process: None, name, kind: MarkKind::Mark });
}

fn marks(path: &Path) -> Vec<String> {
    let file = TraceFile::open(path).unwrap();
    assert_eq!(file.problems(), []);
    file.marks().iter().map(|mark| file.name(mark.name).to_owned()).collect()
}

#[test]
fn names_of_steps_are_written_and_not_remembered() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("rank-0.tprof");
    let mut writer = TraceWriter::create(&path, &TraceHeader::default()).unwrap();
    mark(&mut writer, "first");
    let names = writer.names.len();
    for step in 0..1000 {
        writer.mark_named((Some(0), 2 + step), MarkKind::Step, &format!("step {step}"));
    }
    assert_eq!(writer.names.len(), names);
    mark(&mut writer, "last");
    writer.finish().unwrap();
    let marks = marks(&path);
    assert_eq!((marks.len(), &*marks[0], &*marks[1001]), (1002, "first", "step 999"));
    assert_eq!(marks[1], "last", "in order of time");
}

#[test]
fn a_failed_write_is_cut_off_and_repeated_later() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("rank-0.tprof");
    let mut writer = TraceWriter::create(&path, &TraceHeader::default()).unwrap();
    mark(&mut writer, "first");
    writer.flush().unwrap();
    // A file that is open only for reading refuses writes, as a full disk does. It also refuses
    // truncation.
    let good = std::mem::replace(&mut writer.file, File::open(&path).unwrap());
    mark(&mut writer, "second");
    for _ in 0..2 {
        assert!(matches!(writer.flush(), Err(TraceError::Io { what: "write", .. })));
    }
    let mut block = HeapBlock::new(0);
    block.alloc(1, 0, 1, 0, false);
    assert!(writer.heap(&mut block).is_err());
    assert_eq!((block.len(), block.next_ordinal()), (0, 1));
    // Append a part of a block, as a write that runs out of space leaves it.
    writer.file = good;
    writer.file.write_all(&writer.out[..writer.out.len() / 2]).unwrap();
    assert!(writer.torn);
    block.free(2, 0, 1, false);
    writer.heap(&mut block).unwrap();
    writer.finish().unwrap();
    assert_eq!(marks(&path), ["first", "second"]);
    let file = TraceFile::open(&path).unwrap();
    let freed: Vec<_> = file.heap_events().map(|event| event.what).collect();
    // The allocation has no ordinal, because it was in the block that couldn't be written.
    assert_eq!(freed, [HeapChange::Free { ordinal: None, realloc: false }]);
}

#[test]
fn rows_that_the_disk_refuses_are_finally_dropped_and_counted() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("rank-0.tprof");
    let mut writer = TraceWriter::create(&path, &TraceHeader::default()).unwrap();
    let good = std::mem::replace(&mut writer.file, File::open(&path).unwrap());
    mark(&mut writer, "lost");
    let frames = vec![7; 1000];
    let mut count = 1;
    while writer.pending_bytes() <= MAX_PENDING_BYTES {
        writer.stack(&Stack { process: 0, stack: count, end: 0, frames: frames.clone() });
        count += 1;
    }
    assert!(writer.flush().is_err());
    assert!(writer.pending_bytes() < 1000);
    assert_eq!((writer.take_dropped(), writer.take_dropped()), (u64::from(count), 0));
    writer.file = good;
    mark(&mut writer, "lost");
    writer.finish().unwrap();
    assert_eq!(marks(&path), ["lost"]);
}

#[test]
fn losses_have_names_even_after_pending_names_were_dropped() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("rank-0.tprof");
    let mut writer = TraceWriter::create(&path, &TraceHeader::default()).unwrap();
    for text in ["rows", "one", "two"] {
        mark(&mut writer, text);
    }
    writer.give_up();
    assert_eq!((writer.take_dropped(), writer.pending_bytes()), (3, 0));
    let (what, why) = (writer.name("rows"), writer.name("the disk was full"));
    writer.loss(Loss { time_ns: 1, process: None, what, count: 3, why });
    writer.finish().unwrap();
    let file = TraceFile::open(&path).unwrap();
    let losses: Vec<_> = file.losses().iter().collect();
    assert_eq!(losses.len(), 1);
    assert_eq!(
        (file.name(losses[0].what), file.name(losses[0].why)),
        ("rows", "the disk was full")
    );
    assert!(file.marks().is_empty());
}

#[test]
fn an_existing_file_or_link_is_not_overwritten() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("rank-0.tprof");
    std::os::unix::fs::symlink(directory.path().join("elsewhere"), &path).unwrap();
    let error = TraceWriter::create(&path, &TraceHeader::default()).err().unwrap().to_string();
    assert!(error.starts_with("cannot create") && error.contains("rank-0.tprof"), "{error}");
    assert!(!directory.path().join("elsewhere").exists());
}

#[test]
fn only_the_owner_may_read_the_file() {
    use std::os::unix::fs::PermissionsExt;
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("rank-0.tprof");
    TraceWriter::create(&path, &TraceHeader::default()).unwrap();
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
}

#[test]
fn long_names_are_cut_between_characters() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("rank-0.tprof");
    let mut writer = TraceWriter::create(&path, &TraceHeader::default()).unwrap();
    let name = format!("x{}", "\u{e9}".repeat(MAX_NAME_BYTES / 2 + 9));
    let id = writer.name(&name);
    writer.finish().unwrap();
    let file = TraceFile::open(&path).unwrap();
    assert_eq!(file.name(id).len(), MAX_NAME_BYTES - 1);
    assert!(name.starts_with(file.name(id)));
}
