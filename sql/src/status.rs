//! Exit statuses; of a program that a signal ended they are in `interrupt`.

/// Of a failed query.
pub const QUERY: u8 = 1;
/// Of a wrong command line.
pub const MISUSE: u8 = 2;
