//! Numbers with their units: formatting ([`count`], [`estimate`], [`bytes`], [`rate`],
//! [`duration`], [`percent`], [`small_share`]), and parsing of command lines ([`parse_size`],
//! [`parse_duration`]).
//!
//! Displayed numbers are rounded. A number that a user may pass to a command again is formatted by
//! [`exact_size`] or [`exact_duration`].

mod read;
mod things;
mod write;

pub use read::{exact_duration, exact_size, parse_duration, parse_size};
pub use things::{counted, processes, recorded, signal};
pub use write::{bytes, count, duration, estimate, percent, rate, signed_bytes, small_share};
