//! Imports arbitrary bytes: an import refuses them, or makes a run that fulfils
//! everything that is true of every import.
//!
//! ```text
//! cargo +nightly fuzz run import crates/import/tests/corpus
//! ```

#![no_main]

#[path = "../../crates/import/tests/common/mod.rs"]
mod common;

use libfuzzer_sys::fuzz_target;
use tprof_import::Options;

fuzz_target!(|bytes: &[u8]| {
    let options = Options { max_input_bytes: 16 << 20, ..Options::new("fuzz") };
    if let Ok(run) = common::import_files_with(&[("trace.json", bytes)], &options) {
        common::check(&run);
    }
});
