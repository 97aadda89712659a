//! The kernel's perf events: counters, their rings, and the records in the rings.
//!
//! The attribute, the constants and the requests come from `perf-event-open-sys2`. This module
//! reads rings and records itself, because the counters of a processor share one ring, its samples
//! have several layouts, and a sample's stack is unwound in place (10 ns per sample). Other crates
//! do not fit:
//!
//! - `perf-event-open` gives each counter its own ring and hides its descriptor. Its parser does
//!   not skip `PERF_SAMPLE_IDENTIFIER`, and copies the stack, which takes 0.9 µs for 32 KiB, or 1.6
//!   µs with its plain iterator. It depends on `futures`, which takes 9 s of processor time to
//!   compile.
//! - `perf-event2` exposes the descriptor and borrows the stack, which takes 0.25 µs per sample. It
//!   parses by the attribute of one counter, so each layout would need a parser, which would have
//!   to be chosen by the id first.
//!
//! docs/design.md has the measurements.

pub mod attr;
pub mod first;
pub mod record;
pub mod ring;

pub use attr::{Attr, Counter, attr_of};
pub use record::Record;
pub use ring::Ring;
