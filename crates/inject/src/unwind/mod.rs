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

mod ask;
mod check;
mod frame_pointers;
mod frames;
mod last_walk;
mod learn_shape;
mod loaded_rows;
mod mappings;
mod prefetch;
mod rows;
mod save_walk;
mod shape;
mod shapes;
mod short_row;
mod stack_bounds;
mod tables;
mod walk;
mod walk_reuse;

pub use check::compare_ids;
pub use frame_pointers::know_code;
pub use frames::Walk;
pub use last_walk::forget;
pub use loaded_rows::let_readers_leave;
pub use prefetch::prefetch_tables;
pub use rows::{code_changed, has_memo, map_memo, prepare};
pub use shapes::{Guess, guess};
pub use walk::{complete, walk};
