//! Tests that records of spans become rows, or are counted as losses with a reason.

use super::*;
use crate::targets::interned::Definition;
use tprof_wire::interned::{WORDS, pack};

#[test]
fn records_without_a_name_are_counted_at_once_if_no_name_can_follow() {
    let dir = tempfile::tempdir().unwrap();
    let mut writer =
        TraceWriter::create(&dir.path().join("rank-0.tprof"), &Default::default()).unwrap();
    let (mut spans, mut interned) = (Spans::new(0, MemoryRecording::Off), Interned::default());
    let mut losses = Losses::default();
    let mark = |name| SpanRecord::decode(ExtKind::SpanMark, name, &[0, 0]).unwrap();
    // The name may still be defined, so the mark waits.
    spans.take(mark(u32::MAX), (0, (0, 0)), 1, &mut interned, &mut writer);
    spans.write(2, true, &mut interned, &mut writer).unwrap();
    assert_eq!((spans.waiting.len(), spans.refused), (1, 0));

    let mut words = [0; WORDS];
    let used = pack(b"a", &mut words);
    let mut id = 0;
    while !interned.is_full() {
        id += 1;
        let definition = Definition::decode(ExtKind::Name, &words[..used]).unwrap();
        interned.define(id, definition, &mut losses);
    }
    spans.take(mark(u32::MAX - 1), (0, (0, 0)), 3, &mut interned, &mut writer);
    spans.take(mark(1), (0, (0, 0)), 3, &mut interned, &mut writer);
    spans.write(4, true, &mut interned, &mut writer).unwrap();
    assert!(spans.waiting.is_empty(), "no further name is defined, so nothing waits");
    spans.finish(5, &mut interned, &mut writer, &mut losses);
    let lost: Vec<_> = losses.iter().collect();
    assert_eq!(lost, [("spans, marks and values", "there were too many names", 2)]);
}

#[test]
fn an_addition_that_is_read_late_has_the_time_of_the_last_change() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("rank-0.tprof");
    let mut writer = TraceWriter::create(&path, &Default::default()).unwrap();
    let (mut spans, mut interned) = (Spans::new(0, MemoryRecording::Off), Interned::default());
    let mut words = [0; WORDS];
    let used = pack(b"a", &mut words);
    let definition = Definition::decode(ExtKind::Name, &words[..used]).unwrap();
    interned.define(1, definition, &mut Losses::default());
    let one = [1.0f64.to_bits(), 1];
    let add = SpanRecord::decode(ExtKind::CounterValue, 1, &one).unwrap();
    spans.take(add, (0, (0, 0)), 5, &mut interned, &mut writer);
    spans.take(add, (0, (0, 0)), 7, &mut interned, &mut writer);
    spans.write(10, false, &mut interned, &mut writer).unwrap();
    spans.write(20, false, &mut interned, &mut writer).unwrap();
    // This thread read the clock at 6, and the scheduler stopped it before it wrote the record.
    spans.take(add, (1, (0, 0)), 6, &mut interned, &mut writer);
    spans.take(add, (0, (0, 0)), 22, &mut interned, &mut writer);
    spans.finish(30, &mut interned, &mut writer, &mut Losses::default());
    writer.finish().unwrap();
    let file = tprof_trace::TraceFile::open(&path).unwrap();
    let rows: Vec<_> = file.counters().iter().map(|row| (row.time_ns, row.value)).collect();
    assert_eq!(rows, [(5, 1.0), (7, 2.0), (7, 3.0), (22, 4.0)]);
}
