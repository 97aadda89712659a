//! Tests with files that are cut, damaged or foreign. Whole parts are read, other parts are
//! reported, and nothing panics.

use crate::common;
use proptest::prelude::*;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use tprof_trace::{FORMAT_VERSION, Problem, TraceError, TraceFile};

struct Small {
    _directory: tempfile::TempDir,
    path: PathBuf,
    bytes: &'static [u8],
}

/// Returns the small file, with or without an index, and a directory for variants of it.
fn small(finished: bool) -> Small {
    static BYTES: LazyLock<[Vec<u8>; 2]> = LazyLock::new(|| {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("small.tprof");
        let writer = common::write(&path);
        let open = std::fs::read(&path).unwrap();
        writer.finish().unwrap();
        [open, std::fs::read(&path).unwrap()]
    });
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("small.tprof");
    Small { _directory: directory, path, bytes: &BYTES[usize::from(finished)] }
}

/// Opens bytes as a file and reads all of it. Returns the number of events, and the problems.
fn read(path: &Path, bytes: &[u8]) -> Result<(usize, Vec<Problem>), TraceError> {
    std::fs::write(path, bytes).unwrap();
    let file = TraceFile::open(path)?;
    let mut events = file.heap_events();
    let mut maps = file.map_events();
    let count = events.by_ref().count() + maps.by_ref().count();
    Ok((count, [file.problems(), events.problems(), maps.problems()].concat()))
}

#[test]
fn a_file_cut_anywhere_opens_with_its_whole_blocks() {
    // An unfinished file is the beginning of the finished one, so cuts in the common part are
    // tested once.
    for (finished, from) in [(false, 0), (true, small(false).bytes.len())] {
        let small = small(finished);
        let whole = read(&small.path, small.bytes).unwrap();
        assert_eq!(whole.1, []);
        let (mut before, mut clean) = (0, 0);
        for length in from..small.bytes.len() {
            match read(&small.path, &small.bytes[..length]) {
                Ok((events, problems)) => {
                    assert!(events >= before, "events vanish at {length}");
                    before = events;
                    assert!(problems.len() <= 1, "{problems:?}");
                    clean += usize::from(problems.is_empty());
                }
                Err(TraceError::Empty { .. }) => assert_eq!(length, 0),
                Err(TraceError::CutOff { .. }) => assert!((1..400).contains(&length)),
                Err(error) => panic!("cut at {length}: {error}"),
            }
        }
        assert_eq!(before, whole.0);
        assert!(clean >= if finished { 2 } else { 10 }, "a cut between blocks leaves no trace");
    }
}

#[test]
fn a_file_without_its_end_is_not_closed() {
    let small = small(true);
    let closed = |bytes: &[u8]| {
        std::fs::write(&small.path, bytes).unwrap();
        TraceFile::open(&small.path).unwrap().is_closed()
    };
    assert!(closed(small.bytes));
    let blocks: Vec<usize> =
        (0..small.bytes.len()).filter(|at| small.bytes[*at..].starts_with(b"tpB\xf1")).collect();
    for at in &blocks[1..] {
        assert!(!closed(&small.bytes[..*at]), "cut at block {at}");
    }
    // A closed file with a damaged index is still closed.
    let mut bytes = small.bytes.to_vec();
    bytes[blocks[blocks.len() - 2] + 20] ^= 1;
    assert!(closed(&bytes));
}

#[test]
fn all_blocks_around_a_damaged_one_are_read() {
    let small = small(false);
    let whole = read(&small.path, small.bytes).unwrap().0;
    let blocks: Vec<usize> =
        (0..small.bytes.len()).filter(|at| small.bytes[*at..].starts_with(b"tpB\xf1")).collect();
    for at in &blocks {
        // Damage the magic, a length, the process, the header's checksum, and the payload.
        for within in [0, 17, 21, 61, 66] {
            let mut bytes = small.bytes.to_vec();
            bytes[at + within] ^= 0x40;
            let (events, problems) = read(&small.path, &bytes).unwrap();
            assert_eq!(problems.len(), 1, "{problems:?}");
            assert_eq!(problems[0].offset, *at as u64);
            assert!(events + 32 >= whole);
        }
    }
}

#[test]
fn a_free_of_an_allocation_in_a_lost_block_has_no_ordinal() {
    use tprof_trace::model::HeapChange;
    let small = small(true);
    std::fs::write(&small.path, small.bytes).unwrap();
    let file = TraceFile::open(&small.path).unwrap();
    let free = |file: &TraceFile| {
        let last = file
            .heap_events_of(0)
            .filter(|event| matches!(event.what, HeapChange::Free { .. }))
            .last();
        last.map(|event| event.what)
    };
    assert_eq!(free(&file), Some(HeapChange::Free { ordinal: Some(0), realloc: false }));
    // The first block of heap events: table id 16.
    let at =
        (0..small.bytes.len()).find(|at| small.bytes[*at..].starts_with(b"tpB\xf1\x10\0")).unwrap();
    let mut bytes = small.bytes.to_vec();
    bytes[at + 70] ^= 1;
    std::fs::write(&small.path, bytes).unwrap();
    let file = TraceFile::open(&small.path).unwrap();
    assert_eq!(free(&file), Some(HeapChange::Free { ordinal: None, realloc: false }));
    let next = file.heap_events_of(0).find_map(|event| match event.what {
        HeapChange::Alloc { ordinal, .. } => Some(ordinal),
        HeapChange::Free { .. } => None,
    });
    assert_eq!(next, Some(20));
}

#[test]
fn errors_name_the_file_and_the_cause() {
    let small = small(true);
    let refuse = |bytes: &[u8]| read(&small.path, bytes).unwrap_err();
    let with = |at: usize, value: u8| {
        let mut bytes = small.bytes.to_vec();
        bytes[at] = value;
        bytes
    };
    let newest = FORMAT_VERSION;
    assert!(refuse(b"").to_string().contains("is empty"));
    assert!(refuse(b"{\"traceEvents\":[]}").to_string().contains("is not a tprof file"));
    assert!(refuse(b"TPROF").to_string().contains("cut off within its header"));
    let newer = refuse(&with(10, 9)).to_string();
    assert!(
        newer.contains("reader of format 9") && newer.contains(&format!("reads 1 to {newest}")),
        "{newer}"
    );
    assert!(matches!(refuse(&with(8, 0)), TraceError::Older { written: 0, .. }));
    assert!(matches!(refuse(&with(16, 4)), TraceError::Features { bits: 4, .. }));
    let missing = TraceFile::open(Path::new("/nonexistent/rank-0.tprof")).unwrap_err().to_string();
    assert!(missing.starts_with("cannot open `/nonexistent/rank-0.tprof`: "), "{missing}");
}

/// Returns the bytes of a block with valid checksums. Each column is an id, a kind, an encoding, a
/// number of values, and stored bytes.
fn forged(table: u16, process: u32, rows: u32, columns: &[(u16, u8, u8, u32, &[u8])]) -> Vec<u8> {
    let mut payload = (columns.len() as u16).to_le_bytes().to_vec();
    let mut raw_len = 0;
    for (id, kind, encoding, values, stored) in columns {
        payload.extend(id.to_le_bytes());
        payload.extend([*kind, *encoding]);
        payload.extend(values.to_le_bytes());
        payload.extend((stored.len() as u32).to_le_bytes());
        raw_len += values * if *kind == 1 { 8 } else { 1 };
    }
    columns.iter().for_each(|column| payload.extend(column.4));
    let mut block = b"tpB\xf1".to_vec();
    block.extend(table.to_le_bytes());
    block.extend(0u16.to_le_bytes());
    for word in [rows, raw_len, payload.len() as u32, process] {
        block.extend(word.to_le_bytes());
    }
    block.extend([0; 24]);
    block.extend(crc32fast::hash(&payload).to_le_bytes());
    block.extend([0; 8]);
    block.extend(crc32fast::hash(&block).to_le_bytes());
    block.extend(payload);
    block
}

#[test]
fn a_small_file_cannot_ask_for_much_memory() {
    let small = small(false);
    let (rows, zero, bits) = (1 << 20, &[0][..], &[1, 0, 0][..]);
    // Times rise from 0 in steps of 1, so the reader must have a block of every process open at
    // once.
    let times = &[0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 1][..];
    let mut bytes = small.bytes.to_vec();
    for process in 10..200 {
        let columns = [
            (1, 1, 1, rows, times),
            (2, 3, 3, rows, bits),
            (3, 3, 3, rows, bits),
            (4, 3, 3, rows, bits),
        ];
        let values =
            [(5, 1, 0, 1, zero), (6, 1, 0, rows, zero), (7, 1, 0, rows, zero), (8, 1, 0, 0, zero)];
        bytes.extend(forged(16, process, rows, &[columns, values].concat()));
    }
    std::fs::write(&small.path, &bytes).unwrap();
    let file = TraceFile::open(&small.path).unwrap();
    assert_eq!(file.problems(), []);
    let mut events = file.heap_events();
    assert_eq!(events.by_ref().take(1000).count(), 1000);
    assert!(!events.problems().is_empty(), "some 190 blocks of 27 MB cannot be open at once");
    // These names have no text. Each block has 1,048,576 rows in a few bytes, and there are many
    // blocks.
    let mut bytes = small.bytes.to_vec();
    for _ in 0..200 {
        bytes.extend(forged(
            1,
            0,
            rows,
            &[(1, 1, 1, rows, times), (0x4002, 1, 0, rows, zero), (2, 4, 0, 0, zero)],
        ));
    }
    std::fs::write(&small.path, &bytes).unwrap();
    let problems = TraceFile::open(&small.path).unwrap().problems().to_vec();
    assert!(problems[0].what.contains("more memory than its file's size allows"), "{problems:?}");
}

#[test]
fn stacks_that_share_more_frames_than_exist_are_refused() {
    let small = small(false);
    let problem = |own: &[u8], shared: &[u8], spare: u32| {
        let mut block = forged(
            8,
            u32::MAX,
            2,
            &[
                (1, 1, 0, 2, &[0]),
                (2, 1, 0, 2, &[1, 1, 7, 8]),
                (3, 1, 0, 2, &[0]),
                (5, 1, 0, 2, shared),
                (0x4006, 1, 0, 2, &[1, 1, 2, 1]),
                (6, 1, 0, 3, own),
                (7, 1, 0, 2, &[1, 1, 5, 6]),
            ],
        );
        let room = u32::from_le_bytes(block[12..16].try_into().unwrap()) + spare;
        block[12..16].copy_from_slice(&room.to_le_bytes());
        let sum = crc32fast::hash(&block[..60]);
        block[60..64].copy_from_slice(&sum.to_le_bytes());
        std::fs::write(&small.path, [small.bytes, &block].concat()).unwrap();
        let file = TraceFile::open(&small.path).unwrap();
        let found = file.stack(0, 8).map(|stack| stack.frames.clone());
        (found, file.problems().first().map(|problem| problem.what.clone()))
    };
    // This block is valid: its first row has frames of its own, and its second row shares the outer
    // one.
    assert_eq!(problem(&[1, 1, 0, 1, 0], &[1, 1, 0, 1], 8), (Some(vec![5, 6]), None));
    let refused = |found: (Option<Vec<u64>>, Option<String>), why: &str| {
        assert!(found.0.is_none() && found.1.is_some_and(|what| what.contains(why)), "{why}");
    };
    refused(problem(&[1, 1, 0, 1, 0], &[1, 1, 0, 1], 0), "more than its header has");
    refused(problem(&[1, 1, 0, 1, 0], &[1, 1, 0, 3], 800), "shares frames that are not there");
    refused(problem(&[1, 1, 0, 1, 2], &[1, 1, 0, 1], 8), "unknown frame");
}

#[test]
fn tables_and_columns_of_later_formats_are_skipped() {
    let small = small(false);
    let before = read(&small.path, small.bytes).unwrap();
    let mut bytes = small.bytes.to_vec();
    bytes.extend(forged(33, 0, 2, &[(1, 77, 99, 2, &[1, 2, 3])]));
    let mark = [(99, 9, 9, 1, &[5, 5][..]), (1, 1, 1, 1, &[0; 9][..]), (0x8002, 3, 3, 1, &[0][..])];
    let rest = [(2, 1, 0, 1, &[0][..]), (3, 1, 0, 1, &[0][..]), (4, 1, 0, 1, &[0][..])];
    bytes.extend(forged(11, u32::MAX, 1, &[mark, rest].concat()));
    assert_eq!(read(&small.path, &bytes).unwrap(), before);
    assert_eq!(TraceFile::open(&small.path).unwrap().marks().len(), 5);
}

#[test]
fn a_later_format_that_older_readers_may_read_is_read() {
    let small = small(true);
    let mut bytes = small.bytes.to_vec();
    bytes[8] = 200;
    let (events, _) = read(&small.path, &bytes).unwrap();
    assert_eq!(events, read(&small.path, small.bytes).unwrap().0);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn flipped_bytes_never_panic(flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8), finished: bool) {
        let small = small(finished);
        let mut bytes = small.bytes.to_vec();
        for (at, value) in flips {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        let _ = read(&small.path, &bytes);
    }

    /// Makes the checksums valid, as a hostile writer would. Otherwise they would stop all random
    /// damage.
    #[test]
    fn flipped_bytes_under_right_checksums_never_panic(flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6)) {
        let small = small(false);
        let mut bytes = small.bytes.to_vec();
        let blocks: Vec<usize> =
            (0..bytes.len()).filter(|at| bytes[*at..].starts_with(b"tpB\xf1")).collect();
        for (at, value) in flips {
            let block = blocks[at.index(blocks.len())];
            let end = blocks.iter().copied().find(|next| *next > block).unwrap_or(bytes.len());
            let at = block + 4 + at.index(end - block - 4);
            bytes[at] = value;
        }
        for (block, end) in blocks.iter().zip(blocks.iter().skip(1).chain([&bytes.len()])).map(|(a, b)| (*a, *b)).collect::<Vec<_>>() {
            let crc = crc32fast::hash(&bytes[block + 64..end]).to_le_bytes();
            bytes[block + 48..block + 52].copy_from_slice(&crc);
            let crc = crc32fast::hash(&bytes[block..block + 60]).to_le_bytes();
            bytes[block + 60..block + 64].copy_from_slice(&crc);
        }
        let _ = read(&small.path, &bytes);
    }

    #[test]
    fn arbitrary_bytes_never_panic(mut bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("arbitrary.tprof");
        let _ = read(&path, &bytes);
        bytes.splice(0..0, *b"TPROF\0\r\n\x01\0\x01\0");
        let _ = read(&path, &bytes);
    }
}

#[test]
fn a_stated_number_of_rows_takes_no_more_memory_than_its_file_may() {
    use tprof_trace::model::ChannelWork;
    let small = small(false);
    // The header of a block of channels' work (table id 50), which states as many rows as it can.
    let mut bytes = small.bytes.to_vec();
    let at = bytes.len();
    bytes.extend(b"tpB\xf1\x32\0\0\0\xff\xff\xff\xff");
    bytes.resize(at + 60, 0);
    let checksum = crc32fast::hash(&bytes[at..]);
    bytes.extend(checksum.to_le_bytes());
    std::fs::write(&small.path, &bytes).unwrap();
    let file = TraceFile::open(&small.path).unwrap();
    let stated = file.row_count::<ChannelWork>();
    assert!(stated >= u32::MAX.into(), "the block was found: {stated}");
    let reserved = file.blocks::<ChannelWork>().rows_left() * size_of::<ChannelWork>();
    assert!(reserved < 512 << 20, "{reserved} bytes");
    assert_eq!(file.rows::<ChannelWork>().1.len(), 1);
}
