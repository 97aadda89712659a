//! Memory of the tables that the first stack and the first kept block need: many short processes
//! have neither. The kernel empties it in a forked child, since it refers to what its parent has
//! defined: the child's ids begin anew in its own region.

use crate::fork_tables;
use crate::state::HOT;
use core::sync::atomic::AtomicPtr;

/// Memory of `recent_stacks`: a page, and 256 KiB. Null, or mapped for good, zeroed, at a page.
pub static RECENT: AtomicPtr<u8> = AtomicPtr::new(core::ptr::null_mut());
/// Bytes of [`RECENT`].
pub const RECENT_BYTES: usize = (4 << 10) + (256 << 10);
/// Memory of the first table of `stacks`. Null, or mapped for good, zeroed, at a page.
pub static STACKS: AtomicPtr<u8> = AtomicPtr::new(core::ptr::null_mut());
/// Bytes of [`STACKS`].
pub const STACKS_BYTES: usize = 8 << 10;
/// Bytes of `sampled_blocks`: its filter, a page, and 512 KiB.
pub const SAMPLED_BLOCKS_BYTES: usize = (16 << 10) + (4 << 10) + (512 << 10);

/// Maps those that are not mapped yet.
pub fn map() {
    let tables = [
        (&RECENT, RECENT_BYTES),
        (&STACKS, STACKS_BYTES),
        (&HOT.sampled_blocks, SAMPLED_BLOCKS_BYTES),
    ];
    fork_tables::map_together(tables);
}
