//! Writes records: reserve a slot, fill it, make it valid.
//!
//! A slot is reserved by one unlocked `xadd`, so a signal handler that
//! interrupts a hook gets the next slot, never the same. A slot becomes valid
//! when its first word is stored, last. A handler that leaves by `longjmp`
//! leaves a hole, which the collector notices and counts.
//!
//! Chunks end `SPARE` slots early: reservations made by nested handlers in
//! the few instructions before the limit is noticed still fall inside the chunk.

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
