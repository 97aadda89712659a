//! Numbers with their units: as they are shown ([`count`], [`estimate`], [`bytes`], [`rate`],
//! [`duration`], [`percent`], [`small_share`]), and as a command line has them ([`parse_size`],
//! [`parse_duration`]).
//!
//! What is shown is rounded: a number that a person may give back to a command is written
//! by [`exact_size`] or [`exact_duration`].

mod read;
mod things;
mod write;

pub use read::{exact_duration, exact_size, parse_duration, parse_size};
pub use things::{counted, processes, recorded, signal};
pub use write::{bytes, count, duration, estimate, percent, rate, signed_bytes, small_share};
