//! Reads arbitrary and damaged bytes as a `.tprof`: at once, and as a file that grows. The reader
//! refuses the file or reads what is whole of it.
//!
//! Most inputs get the checksums that their damaged bytes should have; otherwise none would reach
//! the decoders.
//!
//! ```text
//! cargo +nightly fuzz run trace_file
//! ```

#![no_main]

use libfuzzer_sys::{fuzz_mutator, fuzz_target, fuzzer_mutate};
use std::fs::File;
use std::io::Write;
use std::path::Path;
use tprof_trace::model::*;
use tprof_trace::{
    CodeMap, FilePart, TailDecoder, TailOptions, TraceFile, TraceRow, TraceTail, address_of,
};

const PREFIX: usize = 32;
const BLOCK: usize = 64;
const BLOCK_MAGIC: &[u8] = b"tpB\xf1";

fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| {
    let size = fuzzer_mutate(data, size, max_size);
    if !seed.is_multiple_of(8) {
        repair(&mut data[..size], seed & 8 != 0);
    }
    size
});

fuzz_target!(|bytes: &[u8]| {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("rank-0.tprof");
    follow(&path, bytes);
    let Ok(mut file) = TraceFile::open(&path) else { return };
    let all = read(&file);
    assert_eq!(file.bytes(), bytes.len() as u64);
    let middle = file.last_ns() / 2;
    file.read_only(FilePart { times_ns: vec![(0, middle)], ..FilePart::default() });
    assert!(read(&file) <= all, "a part has more rows than the whole");
});

/// Reads everything in a file, and returns the number of rows in its large tables.
fn read(file: &TraceFile) -> u64 {
    fn rows<R: TraceRow>(file: &TraceFile) -> u64 {
        let (rows, _) = file.rows::<R>();
        assert!(rows.len() as u64 <= file.row_count::<R>());
        let mut in_order = file.in_order::<R>(0, u64::MAX);
        let sorted: usize = in_order.by_ref().map(|batch| batch.len()).sum();
        assert!(sorted <= rows.len());
        rows.len() as u64
    }
    let code = CodeMap::new(file);
    for stack in file.stacks() {
        for frame in &stack.frames {
            let _ = (address_of(*frame), file.symbols(stack.process, *frame).len());
            let _ = code.unnamed(file, stack.process, *frame);
        }
    }
    for process in file.processes() {
        let _ = (file.process_end(process.process), file.name(process.command));
        let _ = file.heap_events_of(process.process).count();
    }
    for thread in file.threads() {
        let _ = (file.thread_name(thread.thread), file.thread_end(thread.thread));
    }
    let _ = (file.extent_ns(), file.recorded(), file.last_name(), file.properties().count());
    let heap = file.heap_events().count() as u64;
    assert!(heap <= file.heap_event_count());
    heap + file.map_events().count() as u64
        + rows::<DeviceAllocation>(file)
        + rows::<Span>(file)
        + rows::<Kernel>(file)
        + rows::<MemoryCopy>(file)
        + rows::<Synchronization>(file)
        + rows::<Collective>(file)
        + rows::<ChannelWork>(file)
        + rows::<Sample>(file)
        + rows::<EventSample>(file)
        + rows::<DeviceSpan>(file)
        + rows::<FlowPoint>(file)
        + rows::<ExternalId>(file)
        + rows::<AllocatorSegment>(file)
        + rows::<AllocatorBlock>(file)
        + rows::<AllocatorEvent>(file)
}

/// Writes a file in three steps, and reads after each what was added.
fn follow(path: &Path, bytes: &[u8]) {
    let mut decoder = TailDecoder::new().unwrap();
    let wants = TailOptions { spans: Some(|_, _| true), samples: true, allocator_events: true };
    let mut tail = TraceTail::new(path, wants);
    let mut writer = File::create(path).unwrap();
    let file = File::open(path).unwrap();
    let (half, most) = (bytes.len() / 2, bytes.len() * 7 / 8);
    for part in [&bytes[..half], &bytes[half..most], &bytes[most..]] {
        writer.write_all(part).unwrap();
        // A call reads at least a block, or says that there is nothing more.
        for _ in 0..=bytes.len() / BLOCK + 1 {
            let Ok(news) = tail.read_more(&file, &mut decoder) else { break };
            for (_, name) in &news.thread_names {
                let _ = tail.name(&news, &file, &mut decoder, *name);
            }
            if !news.more {
                break;
            }
        }
    }
    let _ = (tail.events(), tail.damaged(), tail.is_closed());
}

/// Gives the header and every block the checksums that their bytes have. With `whole`, a block's
/// payload extends to the next block.
fn repair(bytes: &mut [u8], whole: bool) {
    if bytes.len() < PREFIX {
        return;
    }
    let length = u32_at(bytes, 12) as usize;
    if let Some(body) = bytes[PREFIX..].get(..length) {
        let checksum = crc32fast::hash(body);
        put(bytes, 24, checksum);
    }
    let checksum = crc32fast::hash(&bytes[..28]);
    put(bytes, 28, checksum);
    let mut at = find(bytes, PREFIX);
    while at + BLOCK <= bytes.len() {
        let next = find(bytes, at + BLOCK);
        if whole {
            put(bytes, at + 16, (next - at - BLOCK) as u32);
        }
        let stored = u32_at(bytes, at + 16) as usize;
        if let Some(payload) = bytes[at + BLOCK..].get(..stored) {
            let checksum = crc32fast::hash(payload);
            put(bytes, at + 48, checksum);
        }
        let checksum = crc32fast::hash(&bytes[at..at + 60]);
        put(bytes, at + 60, checksum);
        at = next;
    }
}

/// Where the next block begins, or where the file ends.
fn find(bytes: &[u8], from: usize) -> usize {
    let found = bytes
        .get(from..)
        .and_then(|rest| rest.windows(BLOCK_MAGIC.len()).position(|window| window == BLOCK_MAGIC));
    found.map_or(bytes.len(), |at| from + at)
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap())
}

fn put(bytes: &mut [u8], at: usize, value: u32) {
    bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
}
