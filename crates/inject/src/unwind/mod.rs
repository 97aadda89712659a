//! Takes the stack of the running thread. It interprets unwind rows, which the collector compiled
//! or which are in the unwind information of the loaded code. Rows are cached by return address,
//! and only memory that is known to be readable is read.
//!
//! A frame pointer is used only where a row says so. The only memory that is dereferenced is the
//! thread's stack, the read-only tables, and the segments of loaded objects with unwind
//! information.
//!
//! A stack has at most 192 frames. When much code is loaded at once, the process waits while the
//! collector compiles its tables, for up to 64 MiB of unwind information or one second. Beyond
//! that, the first stacks are cut, and the run counts them.

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

pub use ask::{are_names_owed, is_code_known, set_watched_late, wait_for_owed_names};
pub use check::compare_ids;
pub use frame_pointers::know_code;
pub use frames::Walk;
pub use last_walk::forget;
pub use loaded_rows::let_readers_leave;
pub use prefetch::prefetch_tables;
pub use rows::{code_changed, has_memo, map_memo, prepare};
pub use shapes::{Guess, guess};
#[cfg(test)]
pub use stack_bounds::readable;
pub use stack_bounds::{ReadableSp, has_room};
pub use walk::{complete, walk};
