//! Takes a stack: interprets rows that the collector compiled, memoised by
//! return address, within memory known to be readable.
//!
//! A frame pointer is trusted only where a row permits it. Nothing is
//! dereferenced outside the thread's stack and the read-only tables.

mod ahead;
mod ask;
mod check;
mod frame_pointers;
mod frames;
mod keep;
mod last;
mod learn;
mod remembering;
mod rows;
mod shape;
mod shapes;
mod short_row;
mod stack_bounds;
mod tables;
mod walk;

pub use ahead::ask_ahead;
pub use check::compare_ids;
pub use frames::Walk;
pub use last::forget;
pub use rows::{code_changed, prepare};
pub use shapes::{Guess, guess};
pub use walk::{complete, walk};
