//! Takes a stack: interprets rows that the collector compiled, or that are found in the frame
//! information of the code itself, memoised by return address, within memory known to be readable.
//!
//! A frame pointer is trusted only where a row permits it. Nothing is
//! dereferenced outside the thread's stack, the read-only tables, and the segments of loaded objects that
//! hold frame information.
//!
//! A stack has at most 192 frames. Code that is loaded at once has its tables compiled while the
//! process waits, for up to 64 MiB of frame information or a second. Beyond that, first stacks
//! are cut, and counted.

mod ahead;
mod ask;
mod check;
mod frame_pointers;
mod frames;
mod keep;
mod last;
mod learn;
mod loaded_rows;
mod mappings;
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
pub use frame_pointers::know_code;
pub use frames::Walk;
pub use last::forget;
pub use loaded_rows::let_readers_leave;
pub use rows::{code_changed, has_memo, map_memo, prepare};
pub use shapes::{Guess, guess};
pub use walk::{complete, walk};
