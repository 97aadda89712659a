//! Reads the rings of a process that writes anything to the memory that it shares: headers, slots,
//! links of chunks, and records. Reading ends, and what is written of it is a sound trace.
//!
//! ```text
//! cargo +nightly fuzz run ring
//! ```

#![no_main]

use libfuzzer_sys::fuzz_target;
use tprof_collect::fuzzing::read_rings;
use tprof_trace::TraceFile;
use tprof_trace::model::*;
use tprof_wire::region::REGION_BYTES;

fuzz_target!(|input: &[u8]| {
    let directory = tempfile::tempdir().unwrap();
    let (read, trace) = read_rings(input, directory.path());
    // Chunks are cleared as they are read, and an input fills a slot with every 16 bytes at most.
    let slots = (REGION_BYTES / 16).min(input.len() / 2 + 16) as u64;
    assert!(read.recorded <= slots, "{} records of {slots} slots", read.recorded);
    let file = TraceFile::open(&trace.expect("a file was created")).unwrap();
    assert_eq!(file.problems(), []);
    let (mut heap, mut maps) = (file.heap_events(), file.map_events());
    let events = heap.by_ref().count() as u64 + maps.by_ref().count() as u64;
    assert!(events <= 2 * read.recorded, "{events} of {}", read.recorded);
    assert_eq!((heap.problems(), maps.problems()), (&[][..], &[][..]));
    assert_eq!(file.rows::<Span>().1, []);
    assert_eq!(file.rows::<Kernel>().1, []);
    assert_eq!(file.rows::<MemoryCopy>().1, []);
    assert_eq!(file.rows::<DeviceAllocation>().1, []);
    assert_eq!(file.rows::<Collective>().1, []);
    assert_eq!(file.rows::<ChannelWork>().1, []);
    assert_eq!(file.rows::<FlowPoint>().1, []);
});
