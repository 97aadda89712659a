//! Memory of the tables that the first stack and the first kept block need: many short processes
//! have neither. The kernel empties it in a forked child, since it refers to what its parent has
//! defined: the child's ids begin anew in its own region.

use crate::state::HOT;
use crate::wiped;
use core::sync::atomic::AtomicPtr;

/// Of `recent`: a page, and 256 KiB. Each is null, or mapped for good, zeroed, at a page.
pub static RECENT: AtomicPtr<u8> = AtomicPtr::new(core::ptr::null_mut());
/// Its bytes.
pub const RECENT_BYTES: usize = (4 << 10) + (256 << 10);
/// Of `stacks`: the first of its tables.
pub static STACKS: AtomicPtr<u8> = AtomicPtr::new(core::ptr::null_mut());
/// Its bytes.
pub const STACKS_BYTES: usize = 8 << 10;
/// Bytes of `kept`: a filter, a page, and 512 KiB.
pub const KEPT_BYTES: usize = (16 << 10) + (4 << 10) + (512 << 10);

/// Maps those that are not mapped yet.
pub fn map() {
    let tables = [(&RECENT, RECENT_BYTES), (&STACKS, STACKS_BYTES), (&HOT.kept, KEPT_BYTES)];
    wiped::map_together(tables);
}
