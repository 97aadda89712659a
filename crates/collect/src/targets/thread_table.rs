//! Knows which row each thread of an image has.

use std::collections::{HashMap, HashSet};
use tprof_trace::model::ThreadIndex;

/// The rows of an image's threads, by tid. A process in a pid namespace of its own calls a thread
/// by another tid than the collector does. Which thread is meant is then unknown, so a thread that
/// is sampled and also records events has two rows.
#[derive(Default)]
pub struct ThreadTable {
    /// By the collector's tids, which samples contain.
    pub sampled: HashMap<u32, ThreadIndex>,
    /// By the process's own tids; `None` if both use the same.
    own: Option<HashMap<u32, ThreadIndex>>,
    /// Tids of threads that have ended. A sample with such a tid is a late sample of the ended
    /// thread, until another thread with this tid records events.
    ended: HashSet<u32>,
}

impl ThreadTable {
    /// Returns the table of a process that is, or isn't, in the collector's pid namespace.
    pub fn new(same_namespace: bool) -> ThreadTable {
        ThreadTable { own: (!same_namespace).then(HashMap::new), ..ThreadTable::default() }
    }

    /// Whether the collector can ask the kernel about a thread by the tid that its process uses.
    pub fn has_kernel_tids(&self) -> bool {
        self.own.is_none()
    }

    /// Returns the rows by the tids that the process's records contain.
    pub fn recorded(&mut self) -> &mut HashMap<u32, ThreadIndex> {
        self.own.as_mut().unwrap_or(&mut self.sampled)
    }

    /// Returns the row of a thread that begins to record events: the row that samples have created
    /// for it, else `next`.
    pub fn begins(&mut self, tid: u32, next: ThreadIndex) -> ThreadIndex {
        if let Some(own) = &mut self.own {
            own.insert(tid, next);
            return next;
        }
        if self.ended.remove(&tid) {
            self.sampled.remove(&tid);
        }
        *self.sampled.entry(tid).or_insert(next)
    }

    /// Notes that the thread of this row has ended.
    pub fn ended(&mut self, index: ThreadIndex) {
        self.ended.extend(self.sampled.iter().filter(|(_, at)| **at == index).map(|(tid, _)| *tid));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reused_tid_names_a_new_thread_once_that_records() {
        let mut table = ThreadTable::new(true);
        table.sampled.insert(7, 0);
        assert_eq!(table.begins(7, 1), 0);
        table.ended(0);
        assert_eq!(table.recorded().get(&7), Some(&0));
        assert_eq!(table.begins(7, 1), 1);
        assert_eq!(table.sampled.get(&7), Some(&1));
    }

    #[test]
    fn tids_of_another_namespace_are_not_those_of_samples() {
        let mut table = ThreadTable::new(false);
        table.sampled.insert(7, 0);
        assert_eq!(table.begins(7, 1), 1);
        assert_eq!(table.begins(7, 2), 2);
        assert_eq!((table.sampled[&7], table.recorded()[&7]), (0, 2));
    }
}
