//! Exit statuses. The status of a program that a signal ended is in `interrupt`.

/// Exit status of a failed query.
pub const QUERY: u8 = 1;
/// Exit status of a wrong command line.
pub const MISUSE: u8 = 2;
