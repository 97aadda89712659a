//! The entry point for a fuzz target in `fuzz/`, which exists only with the feature `fuzzing`.

pub use crate::cpu::{RecordsRead, read_records};
