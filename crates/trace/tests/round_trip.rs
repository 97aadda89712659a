//! Tests that reading a file returns everything that was written: heap events of any kind, and rows
//! of every table.

use crate::common;
use proptest::prelude::*;
use tprof_trace::model::*;
use tprof_trace::{HeapBlock, TraceFile, TraceHeader, TraceWriter};

#[derive(Clone, Copy, Debug)]
struct Event {
    process: u32,
    time_ns: u64,
    thread: u32,
    size: u64,
    stack: u32,
    /// For a free, how many allocations ago the freed block was allocated; `None` for an
    /// allocation.
    distance: Option<u64>,
    realloc: bool,
}

fn size() -> impl Strategy<Value = u64> {
    prop_oneof![0..300u64, 0..1u64 << 34, any::<u64>()]
}

fn event() -> impl Strategy<Value = (u32, i64, u32, u64, u32, Option<u64>, bool)> {
    let step = prop_oneof![8 => 0..500i64, 2 => -200..200i64, 1 => any::<i32>().prop_map(i64::from), 1 => any::<i64>()];
    let thread = prop_oneof![3 => Just(7u32), 1 => 0..3u32, 1 => any::<u32>()];
    let distance = prop::option::of(prop_oneof![5 => 0..40u64, 1 => size()]);
    (0..3u32, step, thread, size(), any::<u32>(), distance, prop::bool::weighted(0.1))
}

/// Generates events in order of time over all processes, or, with `backwards`, in any order.
fn events(backwards: bool) -> impl Strategy<Value = Vec<Event>> {
    prop::collection::vec(event(), 0..300).prop_map(move |rows| {
        let mut time_ns = 1u64 << 62;
        rows.into_iter()
            .map(|(process, step, thread, size, stack, distance, realloc)| {
                time_ns = match backwards {
                    true => time_ns.wrapping_add_signed(step),
                    false => time_ns.saturating_add(step.unsigned_abs()),
                };
                Event { process, time_ns, thread, size, stack, distance, realloc }
            })
            .collect()
    })
}

/// Writes events in blocks of the given length. Returns the events that reading must return.
fn write(events: &[Event], per_block: usize, writer: &mut TraceWriter) -> Vec<HeapEvent> {
    let mut blocks: Vec<HeapBlock> = (0..3).map(HeapBlock::new).collect();
    let mut expected = Vec::new();
    for event in events {
        let block = &mut blocks[event.process as usize];
        let next = block.next_ordinal();
        let (realloc, thread, time_ns) = (event.realloc, event.thread, event.time_ns);
        let what = match event.distance {
            None => {
                block.alloc(time_ns, thread, event.size, event.stack, realloc);
                HeapChange::Alloc { ordinal: next, size: event.size, stack: event.stack, realloc }
            }
            Some(distance) => {
                block.free(time_ns, thread, distance, realloc);
                HeapChange::Free {
                    ordinal: next.checked_sub(distance).filter(|_| distance > 0),
                    realloc,
                }
            }
        };
        expected.push(HeapEvent { time_ns, process: event.process, thread, what });
        if block.len() >= per_block {
            assert!(block.first_ns().is_some());
            writer.heap(block).unwrap();
            assert!(block.is_empty() && block.first_ns().is_none());
        }
    }
    blocks.iter_mut().for_each(|block| writer.heap(block).unwrap());
    expected
}

proptest! {
    #[test]
    fn heap_events_of_several_processes_are_read_in_order(list in events(false), per_block in 1..100usize) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("heap.tprof");
        let mut writer = TraceWriter::create(&path, &TraceHeader::default()).unwrap();
        let mut expected = write(&list, per_block, &mut writer);
        writer.finish().unwrap();
        let file = TraceFile::open(&path).unwrap();
        prop_assert_eq!(file.problems(), &[]);
        prop_assert_eq!(file.heap_event_count(), expected.len() as u64);
        let mut read: Vec<HeapEvent> = file.heap_events().collect();
        // The order of events of several processes at the same time isn't defined.
        expected.sort_by_key(|event| (event.time_ns, event.process));
        prop_assert!(read.is_sorted_by_key(|event| event.time_ns));
        read.sort_by_key(|event| (event.time_ns, event.process));
        prop_assert_eq!(read, expected);
    }

    #[test]
    fn time_may_step_back(list in events(true), per_block in 1..100usize) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("heap.tprof");
        let mut writer = TraceWriter::create(&path, &TraceHeader::default()).unwrap();
        let expected = write(&list, per_block, &mut writer);
        drop(writer);
        let file = TraceFile::open(&path).unwrap();
        prop_assert_eq!(file.problems(), &[]);
        for process in 0..3 {
            let of = |event: &&HeapEvent| event.process == process;
            let expected: Vec<HeapEvent> = expected.iter().filter(of).copied().collect();
            prop_assert_eq!(file.heap_events_of(process).collect::<Vec<_>>(), expected.clone());
            let merged: Vec<HeapEvent> = file.heap_events().filter(|event| of(&event)).collect();
            prop_assert_eq!(merged, expected);
        }
    }

    #[test]
    fn names_are_interned_and_read_back(names in prop::collection::vec(".{0,20}", 0..50)) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("names.tprof");
        let mut writer = TraceWriter::create(&path, &TraceHeader::default()).unwrap();
        let ids: Vec<NameId> = names.iter().map(|name| writer.name(name)).collect();
        let again: Vec<NameId> = names.iter().map(|name| writer.name(name)).collect();
        prop_assert_eq!(&ids, &again);
        writer.finish().unwrap();
        let file = TraceFile::open(&path).unwrap();
        for (id, name) in ids.iter().zip(&names) {
            prop_assert_eq!(file.name(*id), name);
            prop_assert_eq!(id.0 == 0, name.is_empty());
        }
    }

    #[test]
    fn measured_rows_are_read_as_written(rows in prop::collection::vec((any::<[u64; 7]>(), any::<[u32; 4]>(), any::<[Option<u64>; 3]>(), any::<f64>(), 0..4u8), 0..200)) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("rows.tprof");
        let mut writer = TraceWriter::create(&path, &TraceHeader::default()).unwrap();
        let mut recording = vec![];
        let (mut totals, mut counters, mut marks, mut losses, mut maps) = (vec![], vec![], vec![], vec![], vec![]);
        for (a, b, c, value, kind) in rows {
            let time_ns = a[0];
            let process = c[0].map(|process| process as u32);
            totals.push(HeapTotals { time_ns, process: b[0], allocations: a[1], frees: a[2], allocated_bytes: a[3], live_bytes: c[0], peak_bytes: c[1], peak_at_ns: c[2] });
            recording.push(RecordingTotals { time_ns, process: b[0], notes: a[1], device_records: a[2], call_records: a[1], operators: a[3], stack_ns: a[4], wait_ns: a[5], collector_ns: a[6] });
            counters.push(Counter { time_ns, process, device: process, name: NameId(b[1]), value });
            let mark = [MarkKind::Mark, MarkKind::Step, MarkKind::RecordingOn, MarkKind::RecordingOff][usize::from(kind)];
            marks.push(Mark { time_ns, process, name: NameId(b[1]), kind: mark });
            losses.push(Loss { time_ns, process, what: NameId(b[1]), count: a[1], why: NameId(b[2]) });
            let kind = [MapKind::Map, MapKind::Unmap, MapKind::Remap][usize::from(kind % 3)];
            maps.push(MapEvent { time_ns, process: b[0], thread: b[1], kind, address: a[4], length: a[5], old_length: a[6], stack: b[3] });
            writer.totals(totals[totals.len() - 1]);
            writer.recording(recording[recording.len() - 1]);
            writer.counter(counters[counters.len() - 1]);
            writer.mark(marks[marks.len() - 1]);
            writer.loss(losses[losses.len() - 1]);
            writer.map(maps[maps.len() - 1]);
            if a[1] % 16 == 0 {
                writer.flush().unwrap();
                prop_assert_eq!(writer.pending_bytes(), 0);
            }
        }
        writer.finish().unwrap();
        totals.sort_by_key(|row| row.time_ns);
        recording.sort_by_key(|row| row.time_ns);
        counters.sort_by_key(|row| row.time_ns);
        marks.sort_by_key(|row| row.time_ns);
        losses.sort_by_key(|row| row.time_ns);
        maps.sort_by_key(|row| row.time_ns);
        let file = TraceFile::open(&path).unwrap();
        prop_assert_eq!(file.problems(), &[]);
        prop_assert_eq!(file.totals(), totals);
        prop_assert_eq!(file.recording(), recording);
        prop_assert_eq!(format!("{:?}", file.counters()), format!("{counters:?}"));
        prop_assert_eq!(file.marks(), marks);
        prop_assert_eq!(file.losses(), losses);
        prop_assert_eq!(file.map_events().collect::<Vec<_>>(), maps);
    }

    #[test]
    fn rows_of_processes_and_code_are_read_as_written(rows in prop::collection::vec((any::<[u64; 4]>(), any::<[u32; 6]>(), any::<Option<u32>>(), prop::collection::vec(any::<u64>(), 0..9), 0..4u8), 0..100)) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("rows.tprof");
        let mut writer = TraceWriter::create(&path, &TraceHeader::default()).unwrap();
        let mut expected = Vec::new();
        for ((a, b, rank, frames, kind), index) in rows.into_iter().zip(0..) {
            let memory = [MemoryRecording::Off, MemoryRecording::Exact, MemoryRecording::Sampled { interval: a[1] }][usize::from(kind % 3)];
            let process = Process { process: index, pid: b[0], parent: b[1], rank, command: NameId(b[2]), exe: NameId(b[3]), start_ns: a[0], memory };
            let thread = Thread { thread: index, process: b[0], tid: b[1], start_ns: a[0] };
            let module = Module { process: b[0], start: a[1], end: a[2], bias: a[3], path: NameId(b[2]), build_id: NameId(b[3]), time_ns: a[0] };
            let stack = Stack { process: b[0], stack: index, end: kind, frames };
            let symbol = Symbol { process: b[0], address: a[1], depth: b[1] as u16, function: NameId(b[2]), file: NameId(b[3]), line: b[4], module: NameId(b[5]) };
            let end = [ProcessEnd::Exited(b[4] as i32), ProcessEnd::Signal(b[4] as i32), ProcessEnd::Exec, ProcessEnd::Unknown][usize::from(kind)];
            writer.process(&process);
            writer.process_end(index, a[0], end);
            writer.thread(&thread);
            writer.thread_end(index, a[0]);
            writer.module(&module);
            writer.stack(&stack);
            writer.symbol(&symbol);
            expected.push((process, thread, module, stack, symbol, (a[0], end)));
        }
        writer.finish().unwrap();
        let file = TraceFile::open(&path).unwrap();
        prop_assert_eq!(file.problems(), &[]);
        prop_assert_eq!(file.processes().len(), expected.len());
        for ((process, thread, module, stack, symbol, end), index) in expected.into_iter().zip(0..) {
            prop_assert_eq!(&file.processes()[index], &process);
            prop_assert_eq!(&file.threads()[index], &thread);
            prop_assert_eq!(&file.modules()[index], &module);
            prop_assert_eq!(file.process_end(process.process), Some(end));
            prop_assert_eq!(file.thread_end(thread.thread), Some(end.0));
            prop_assert_eq!(file.stack(stack.process, stack.stack), Some(&stack));
            prop_assert!(file.symbols(symbol.process, symbol.address).contains(&symbol));
        }
    }
}

#[test]
fn a_long_run_has_an_index_in_parts_and_full_blocks() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("long.tprof");
    let mut writer = TraceWriter::create(&path, &common::header()).unwrap();
    let mut block = HeapBlock::new(0);
    let mut events = 0;
    while !block.is_full() {
        block.alloc(common::START + events * 50, 0, 64, 1, false);
        events += 1;
    }
    let held = block.memory_bytes();
    writer.heap(&mut block).unwrap();
    assert!(block.memory_bytes() + 100 > held, "a busy block keeps its memory");
    for _ in 0..9000 {
        block.free(common::START + events * 50, 0, 1, false);
        writer.heap(&mut block).unwrap();
        events += 1;
    }
    assert!(block.memory_bytes() < 1000, "an idle block holds {} bytes", block.memory_bytes());
    writer.finish().unwrap();
    let file = TraceFile::open(&path).unwrap();
    assert_eq!(file.problems(), []);
    assert_eq!(file.heap_event_count(), events);
    assert_eq!(file.heap_events().count() as u64, events);
    assert_eq!(file.header(), &common::header());
}

#[test]
fn a_stack_may_be_written_after_an_event_that_uses_it() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("late.tprof");
    let mut writer = TraceWriter::create(&path, &TraceHeader::default()).unwrap();
    let mut block = HeapBlock::new(0);
    block.alloc(1, 0, 64, 9, false);
    writer.heap(&mut block).unwrap();
    let stack = Stack { process: 0, stack: 9, end: 0, frames: vec![1, 2] };
    writer.stack(&stack);
    writer.flush().unwrap();
    assert_eq!(TraceFile::open(&path).unwrap().stack(0, 9), Some(&stack));
}
