//! Uses the kernel's perf events: opens counters, reads their rings, and decodes the records in
//! them.
//!
//! The attribute, the constants and the requests come from `perf-event-open-sys2`. This module
//! reads rings and records itself, for three reasons: the counters of a processor share one ring,
//! samples have several layouts, and a sample's stack is unwound in place (10 ns per sample). Other
//! crates don't fit:
//!
//! - `perf-event-open` creates a ring per counter and hides the counter's descriptor. Its parser
//!   doesn't skip `PERF_SAMPLE_IDENTIFIER`, and copies the stack, which takes 0.9 µs for 32 KiB, or
//!   1.6 µs with its plain iterator. It depends on `futures`, which takes 9 s of processor time to
//!   compile.
//! - `perf-event2` exposes the descriptor and borrows the stack, which takes 0.25 µs per sample.
//!   But a parser of it is for the attribute of one counter. So each layout would need a parser,
//!   and the record's id would have to be read first to choose the parser.
//!
//! docs/design.md has the measurements.

pub mod attr;
pub mod first;
pub mod record;
pub mod ring;

pub use attr::{Attr, Counter, attr_of};
pub use ring::Ring;
