//! Reads arbitrary bytes as a log of `torch.compile`, to their end and in bounded memory.
//!
//! ```text
//! cargo +nightly fuzz run compile_log CORPUS     (any logs that TORCH_TRACE wrote, plain)
//! ```

#![no_main]

use libfuzzer_sys::fuzz_target;
use tprof_trace::compile_log::{Bounds, read};

fuzz_target!(|bytes: &[u8]| {
    let Ok(log) = read(bytes, Bounds::default()) else { return };
    assert_eq!(log.bytes, bytes.len() as u64);
    let of_events: u64 = log.events.values().map(|row| row.bytes).sum();
    assert!(of_events <= log.bytes && log.bytes_not_kept >= u64::from(bytes.contains(&0)));
    // A bound that these bytes can reach: rows stay within it, and omitted rows are counted.
    let kept = bytes.len() / 8;
    let Ok(bounded) = read(bytes, Bounds { kept, ..Bounds::default() }) else { return };
    assert!(bounded.kept_bytes <= kept && log.left_out.rows == 0);
    assert!(bounded.left_out.rows > 0 || bounded.frames.len() == log.frames.len());
    for frame in &log.frames {
        let phases = [frame.phases.dynamo_us, frame.phases.aot_us, frame.phases.inductor_us];
        // A log may state nonsense, but sums of it must not end the program.
        let _ = phases.into_iter().flatten().fold(0_u64, u64::saturating_add);
    }
});
