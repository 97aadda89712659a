//! Imports arbitrary bytes as a memory snapshot of PyTorch: a pickle that is refused, or becomes a
//! run that fulfils everything that is true of every import.
//!
//! ```text
//! cargo +nightly fuzz run snapshot_pickle
//! ```

#![no_main]

#[path = "../../crates/import/tests/common/mod.rs"]
mod common;

use libfuzzer_sys::fuzz_target;
use tprof_import::Options;
use tprof_trace::model::*;

/// The beginning of a pickle of protocol 4.
const PROTO: [u8; 2] = [0x80, 4];

fuzz_target!(|bytes: &[u8]| {
    // Other inputs would be read as another kind of file.
    let bytes = match bytes {
        [0x80, 2..=5, ..] => bytes.to_vec(),
        _ => [&PROTO[..], bytes].concat(),
    };
    let options = Options { max_input_bytes: 16 << 20, ..Options::new("fuzz") };
    let Ok(run) = common::import_files_with(&[("rank-2.pickle", &bytes)], &options) else { return };
    common::check(&run);
    let rows = run.rows::<AllocatorSegment>().len()
        + run.rows::<AllocatorBlock>().len()
        + run.rows::<AllocatorEvent>().len();
    // A reference of two bytes may put an object into many lists, but no object is copied for it:
    // a list of lists of lists would be a bomb.
    assert!(rows <= bytes.len() * bytes.len(), "{rows} rows of {} bytes", bytes.len());
});
