//! Reads arbitrary bytes as the ring of a perf counter: the samples are unwound, and the intervals
//! of threads are computed.
//!
//! ```text
//! cargo +nightly fuzz run perf
//! ```

#![no_main]

use libfuzzer_sys::fuzz_target;
use tprof_sampler::fuzzing::read_records;

/// Bytes of a record's header.
const HEADER: usize = 8;
/// Most frames that the walk over a stack finds.
const MAX_FRAMES: usize = 512;

fuzz_target!(|input: &[u8]| {
    let Some(([flags, at], bytes)) = input.split_first_chunk::<2>() else { return };
    // Records begin at multiples of eight bytes.
    let read = read_records(bytes, u64::from(*at) * 8, flags & 1 != 0);
    assert!(read.frames <= MAX_FRAMES + bytes.len() / 8);
    // A record gives a sample and ends at most two intervals, and its thread's counts.
    assert!(read.samples <= 8 * (bytes.len() / HEADER));
});
