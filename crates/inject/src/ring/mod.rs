//! Writes records into a thread's ring of chunks: reserves slots, fills them, and makes them valid.
//!
//! A slot is reserved by one `xadd` without `lock`. So a signal handler that interrupts a hook gets
//! the next slot and never the same one. A slot becomes valid when its first word is stored, which
//! happens last. A handler that leaves a hook by `longjmp` leaves a hole, which the collector
//! notices and counts.
//!
//! A chunk's limit is `SPARE` slots before its end. In the few instructions before a thread notices
//! that it passed the limit, nested handlers may reserve more slots, which are then still inside
//! the chunk.

mod chunks;
mod full;
mod lost;
mod next_chunk;
mod wait;
mod write;

pub use chunks::{give_back, open_some, prepare, take};
pub use lost::lose;
pub use next_chunk::first_chunk;
pub use write::{ext, heap, quick, quick_text};

#[cfg(test)]
mod tests;
