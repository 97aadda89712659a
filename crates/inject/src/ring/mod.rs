//! Writes records: reserves a slot, fills it, and makes it valid.
//!
//! A slot is reserved by one `xadd` without `lock`, so that a signal handler that interrupts a hook
//! gets the next slot and never the same. A slot becomes valid when its first word is stored, which
//! happens last. A handler that leaves by `longjmp` leaves a hole, which the collector notices and
//! counts.
//!
//! A chunk's limit lies `SPARE` slots before its end, so that reservations by nested handlers still
//! fall inside the chunk in the few instructions before the limit is noticed.

mod chunks;
mod full;
mod lost;
mod next_chunk;
mod wait;
mod write;

pub use chunks::{give_back, open_some, prepare, take};
pub use lost::lose;
pub use next_chunk::first_chunk;
pub use write::{ext, heap, quick};
