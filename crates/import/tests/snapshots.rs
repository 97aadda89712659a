//! Tests importing memory snapshots of PyTorch, and refusing other pickles. `snapshots.py` writes
//! the files.

use crate::common::{Run, check, gzip, import_files};
use proptest::prelude::*;
use tprof_import::ImportError;
use tprof_trace::model::*;

const NEWER: &[u8] = include_bytes!("corpus/snapshot-newer.pickle");
const OLDER: &[u8] = include_bytes!("corpus/snapshot-older.pickle");
const EMPTY: &[u8] = include_bytes!("corpus/snapshot-empty.pickle");
const MIB: u64 = 1 << 20;
const START_NS: u64 = 1_748_000_000_000_000_000;

fn imported(bytes: &[u8]) -> Result<Run, ImportError> {
    let run = import_files(&[("rank-2.snapshot", bytes)])?;
    check(&run);
    Ok(run)
}

/// Returns why a pickle is refused: offset, reason, and whether it is cut off.
fn refused(bytes: &[u8]) -> (Option<u64>, String, bool) {
    match imported(bytes).err() {
        Some(ImportError::NotASnapshot { offset, why, is_cut, .. }) => (offset, why, is_cut),
        other => panic!("{other:?}"),
    }
}

#[test]
fn segments_blocks_and_entries_are_stored_unchanged() {
    let run = imported(NEWER).unwrap();
    let segments = run.rows::<AllocatorSegment>();
    let blocks = run.rows::<AllocatorBlock>();
    let events = run.rows::<AllocatorEvent>();
    assert_eq!((segments.len(), blocks.len(), events.len()), (3, 6, 10));
    let pool = |row: &AllocatorSegment| (row.device, row.pool_minor, row.expandable, row.stream);
    assert_eq!(pool(&segments[1]), (Some(0), Some(3), Some(true), 7));
    assert_eq!(pool(&segments[2]), (Some(1), Some(0), Some(false), 0));
    assert_eq!(blocks[1].address, segments[0].address + 40 * MIB);
    assert_eq!(run.name(blocks[1].state), "active_allocated");
    let oom = events.iter().find(|row| run.name(row.action) == "oom").unwrap();
    assert_eq!((oom.device_free_bytes, oom.bytes, oom.address), (Some(7 * MIB), 900 * MIB, None));
    assert_eq!(oom.time_ns, Some(START_NS + 7_000_000));
    let host = events.iter().find(|row| row.device.is_none()).unwrap();
    assert_eq!((host.bytes, host.time_ns), (4096, Some(START_NS + 500_000)));
    let stack = run.file().stack(0, blocks[1].stack).unwrap();
    let names: Vec<_> = (stack.frames.iter())
        .map(|frame| &run.file().symbols(0, *frame)[0])
        .map(|symbol| (run.name(symbol.function), symbol.line))
        .collect();
    assert_eq!(names[1..], [("forward", 12), ("train", 40)]);
    assert_eq!((run.files[0].header().rank, run.imported.lost), (Some(2), 0));
}

#[test]
fn allocations_have_the_totals_of_the_allocator() {
    for (bytes, timed) in [(NEWER, true), (OLDER, false)] {
        let run = imported(bytes).unwrap();
        let rows = run.rows::<DeviceAllocation>();
        let framework = rows.iter().filter(|row| row.allocator == Allocator::Framework);
        let totals: Vec<_> = (framework.filter(|row| row.device == Some(0)))
            .map(|row| {
                let of = |total: Option<u64>| total.unwrap() / MIB;
                (row.free, of(row.total_allocated_bytes), of(row.total_reserved_bytes))
            })
            .collect();
        assert_eq!(totals, [(false, 40, 60), (false, 50, 60), (true, 10, 60), (false, 60, 110)]);
        let taken = rows.iter().filter(|row| row.allocator == Allocator::Library);
        assert_eq!(taken.map(|row| row.bytes.unwrap() / MIB).collect::<Vec<_>>(), [60, 50]);
        assert_eq!(rows[0].time_ns >= START_NS, timed);
        let has_note = run.imported.notes.iter().any(|note| note.contains("no times"));
        assert_eq!(has_note, !timed, "{:?}", run.imported.notes);
    }
}

#[test]
fn a_history_that_does_not_fit_the_segments_has_no_totals() {
    // The first request asks for more bytes than are in use at the end.
    let mut bytes = NEWER.to_vec();
    let find = |from: usize, text: &[u8]| {
        let found = bytes[from..].windows(text.len()).position(|part| part == text);
        from + found.unwrap()
    };
    let at = find(find(0, b"device_traces"), b"J\0\0\x80\x02");
    bytes[at + 4] = 0x7f;
    let run = imported(&bytes).unwrap();
    let rows = run.rows::<DeviceAllocation>();
    assert!(rows.iter().all(|row| row.device.is_none() || row.total_allocated_bytes.is_none()));
    let notes = &run.imported.notes;
    assert!(notes.iter().any(|note| note.contains("segments of device 0")), "{notes:?}");
}

#[test]
fn an_empty_snapshot_is_noted() {
    let run = imported(EMPTY).unwrap();
    assert_eq!(run.rows::<AllocatorSegment>(), []);
    assert!(run.imported.notes[0].starts_with("the snapshot is empty"), "{:?}", run.imported.notes);
}

#[test]
fn a_gzipped_snapshot_is_found_by_its_content() {
    let run = imported(&gzip(NEWER)).unwrap();
    assert_eq!(run.rows::<AllocatorSegment>().len(), 3);
}

#[test]
fn opcodes_that_make_python_call_something_are_refused_by_name() {
    let cases: &[(&[u8], &str)] = &[
        (b"cos\nsystem\n", "GLOBAL"),
        (b"\x8c\x02os\x8c\x06system\x93", "STACK_GLOBAL"),
        (b"}}R", "REDUCE"),
        (b"}}b", "BUILD"),
        (b"(i", "INST"),
        (b"(o", "OBJ"),
        (b"\x82\x01", "EXT1"),
        (b"\x83\x01\0", "EXT2"),
        (b"\x84\x01\0\0\0", "EXT4"),
        (b"P1\n", "PERSID"),
        (b"NQ", "BINPERSID"),
        (b"}}\x81", "NEWOBJ"),
    ];
    for (program, name) in cases {
        let bytes = [b"\x80\x04", *program, b"."].concat();
        let (offset, why, is_cut) = refused(&bytes);
        assert!(why.contains(&format!("opcode {name} ")), "{why}");
        assert!(offset.is_some_and(|offset| offset >= 2) && !is_cut);
    }
}

#[test]
fn a_cut_is_noticed_at_every_offset() {
    for length in (2..NEWER.len()).step_by(13) {
        let (offset, _, is_cut) = refused(&NEWER[..length]);
        assert!(is_cut && offset.is_some_and(|offset| offset <= length as u64), "{length}");
    }
}

#[test]
fn other_pickles_are_refused_with_their_content() {
    for (bytes, what) in [
        (&b"\x80\x02}."[..], "a dict without"),
        (b"\x80\x02K\x01.", "type int"),
        (b"\x80\x02](K\x01e.", "a list of something else"),
        (b"\x80\x02}X\x08\0\0\0segmentsNs.", "`segments` is a None"),
    ] {
        let (_, why, _) = refused(bytes);
        assert!(why.contains(what), "{why}");
    }
}

#[test]
fn nesting_and_sharing_cost_no_more_than_the_files_length() {
    // A million lists lie within each other. The reader must not recurse.
    let deep = [b"\x80\x02".as_slice(), &b"]".repeat(1 << 20), &b"a".repeat((1 << 20) - 1), b"."];
    refused(&deep.concat());
    // This dict contains itself.
    let mut program = b"\x80\x02}q\0X\x08\0\0\0segments]s".to_vec();
    program.extend_from_slice(b"X\x04\0\0\0selfh\0s.");
    let run = imported(&program).unwrap();
    assert_eq!(run.lost("not JSON"), 1);
    // Each of 40 lists occurs twice in the next one, so JSON would have 2^40 values.
    let mut program = b"\x80\x02]q\0(K\x01K\x01e".to_vec();
    for at in 1..40_u8 {
        program.extend_from_slice(&[b']', b'q', at, b'(', b'h', at - 1, b'h', at - 1, b'e']);
    }
    program.extend_from_slice(b"}X\x08\0\0\0segments]sX\x01\0\0\0ah\x27s.");
    assert_eq!(imported(&program).unwrap().lost("not JSON"), 1);
    // One list of blocks occurs in many segments, so there would be endless rows.
    let mut program = b"\x80\x02}X\x08\0\0\0segments](".to_vec();
    program.extend_from_slice(b"}(X\x0a\0\0\0total_sizeK\x01X\x06\0\0\0blocks](");
    program.extend_from_slice(&b"N".repeat(1 << 12));
    program.extend_from_slice(b"eu");
    program.extend_from_slice(b"q\0");
    program.extend_from_slice(&b"h\0".repeat(1 << 12));
    program.extend_from_slice(b"es.");
    assert!(refused(&program).1.contains("more rows"));
    // The index of this memo is far larger than the file.
    assert!(refused(b"\x80\x02}r\xff\xff\xff\x7f.").1.contains("memo"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn damage_causes_an_error_or_a_consistent_run(
        edits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
        older in any::<bool>(),
    ) {
        let mut bytes = if older { OLDER } else { NEWER }.to_vec();
        for (at, byte) in edits {
            let at = at.index(bytes.len() - 2) + 2;
            bytes[at] = byte;
        }
        // `imported` checks the properties that every imported run has.
        let _ = imported(&bytes);
    }

    #[test]
    fn known_opcodes_in_any_order_cause_an_error_or_a_consistent_run(
        program in prop::collection::vec(prop::sample::select(
            b"(.NJKMGX]lae)td}suhjqr\x80\x85\x86\x87\x88\x89\x8a\x8b\x8c\x94\x01\0".to_vec()), 0..60),
    ) {
        let _ = imported(&[b"\x80\x04", &program[..]].concat());
    }
}

#[test]
fn an_unset_time_becomes_that_of_the_previous_entry() {
    let time_us = (START_NS / 1000 + 7000).to_le_bytes();
    let at = NEWER.windows(7).position(|part| part == &time_us[..7]).unwrap();
    let mut bytes = NEWER.to_vec();
    bytes[at..at + 7].fill(0);
    let run = imported(&bytes).unwrap();
    assert_eq!(run.lost("that of the one before"), 1);
    let events = run.rows::<AllocatorEvent>();
    let oom = events.iter().position(|row| run.name(row.action) == "oom").unwrap();
    assert_eq!(events[oom].time_ns, events[oom - 1].time_ns);
    let whole = imported(NEWER).unwrap();
    assert_eq!(run.info.start_ns, whole.info.start_ns);
}
