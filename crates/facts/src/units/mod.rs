//! Formats numbers with their units ([`count`], [`estimate`], [`bytes`], [`rate`], [`duration`],
//! [`since_start`], [`percent`], [`small_share`]), and parses those of command lines ([`parse_size`],
//! [`parse_duration`]).
//!
//! Displayed numbers are rounded. If a user may pass a number to a command again, [`exact_size`] or
//! [`exact_duration`] formats it.

mod read;
mod things;
mod write;

pub use read::{exact_duration, exact_size, parse_duration, parse_size};
pub use things::{counted, processes, recorded, signal};
pub use write::{
    bytes, count, duration, estimate, percent, rate, signed_bytes, since_start, small_share, utc,
};
