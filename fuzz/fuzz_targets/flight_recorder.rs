//! Judges arbitrary bytes as a dump of PyTorch's Flight Recorder, beside a good one.
//!
//! ```text
//! cargo +nightly fuzz run flight_recorder
//! ```

#![no_main]

use libfuzzer_sys::fuzz_target;
use tprof_import::flight_recorder::standstill;

const GOOD: &[u8] = include_bytes!("../../crates/import/tests/flight_recorder/late/fr_rank_0");

fuzz_target!(|bytes: &[u8]| {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("fr_rank_0"), GOOD).unwrap();
    let file = directory.path().join("fr_rank_1");
    std::fs::write(&file, bytes).unwrap();
    // Of a file that isn't recognized, the dump is missing.
    let both = standstill(directory.path()).unwrap();
    assert!(both.has(0));
    let _ = (both.text(None), both.json(Some(1)));
    if let Ok(alone) = standstill(&file) {
        let _ = (alone.text(Some(1)), alone.json(None));
    }
});
