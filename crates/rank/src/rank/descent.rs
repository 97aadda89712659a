//! Tells whether one process descends from another.

use rustc_hash::{FxHashMap, FxHashSet};
use tprof_trace::model::Process;

/// Whether a process of `among` is an ancestor of this one.
pub fn descends(
    of: &Process,
    by_pid: &FxHashMap<u32, &Process>,
    among: &FxHashSet<u32>,
    most: usize,
) -> bool {
    let mut at = of;
    // Pids are reused, so ancestors may form a cycle. The loop is bounded for that reason.
    for _ in 0..most {
        match by_pid.get(&at.parent) {
            Some(parent) if parent.process == of.process => return false,
            Some(parent) if among.contains(&parent.process) => return true,
            Some(parent) => at = parent,
            None => return false,
        }
    }
    false
}
