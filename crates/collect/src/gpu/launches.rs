//! Counts lost kernels, by comparing the launches that CUPTI recorded with the kernels that it
//! recorded. A launch that has no kernel when the process ends is a lost kernel.
//!
//! The records of a launch and of its kernel are in different buffers and come in either order.
//! Work that is captured into a graph runs later, and its kernels belong to other calls. Therefore
//! launches during any capture of the process don't count.

use super::call_classes::Class;
use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasherDefault, Hasher};
use tprof_trace::model::ThreadIndex;
use tprof_wire::hash::spread;

/// Number of launches that may wait for their kernels. If there are more, the number of lost
/// kernels is unknown.
const MAX_WAITING: usize = 1 << 20;
/// Number of kernels in each of two sets that may wait for their launches. A kernel that no runtime
/// call launched waits until two sets of newer kernels have come.
const MAX_EARLY: usize = 1 << 18;
/// Number of captures that are remembered. If there are more, the number of lost kernels is
/// unknown.
const MAX_CAPTURES: usize = 1 << 16;

/// Hashes correlations by a multiplication, which is enough because they are consecutive numbers.
#[derive(Default)]
struct Spread(u64);

impl Hasher for Spread {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u32(u32::from(*byte));
        }
    }

    fn write_u32(&mut self, number: u32) {
        let mixed = spread(self.0 ^ u64::from(number));
        self.0 = mixed ^ mixed >> 32;
    }
}

type Build = BuildHasherDefault<Spread>;

/// What counting needs to know of a call.
#[derive(Clone, Copy, Debug)]
pub struct RuntimeCall {
    /// The class of the call: whether it launches a kernel, or begins or ends a capture.
    pub class: Class,
    /// CUPTI's number of the call.
    pub correlation: u32,
    /// Thread that made the call.
    pub thread: ThreadIndex,
    /// Time when the call began, ns.
    pub start_ns: u64,
    /// Time when the call returned, ns.
    pub end_ns: u64,
    /// Whether the call succeeded.
    pub succeeded: bool,
}

/// The launches and kernels of a process that wait for each other.
#[derive(Default)]
pub struct Launches {
    waiting: HashMap<u32, u64, Build>,
    early: [HashSet<u32, Build>; 2],
    /// Captures that have ended, each with the times when it began and ended.
    captures: Vec<(u64, u64)>,
    open: HashMap<ThreadIndex, u64>,
    /// Whether the number of lost kernels is unknown, because kernels aren't recorded or too many
    /// records waited.
    unknown: bool,
    /// Number of lost kernels that another loss already includes.
    pub counted: u64,
}

impl Launches {
    /// Adds a call that CUPTI recorded.
    pub fn called(&mut self, call: &RuntimeCall) {
        if self.unknown || !call.succeeded {
            return;
        }
        match call.class {
            Class::Memory | Class::Other => {}
            Class::Launch => {
                let correlation = call.correlation;
                if self.early.iter_mut().any(|early| early.remove(&correlation)) {
                    return;
                }
                if self.waiting.len() >= MAX_WAITING {
                    return self.cannot_know();
                }
                self.waiting.insert(correlation, call.start_ns);
            }
            Class::CaptureBegins => {
                self.open.insert(call.thread, call.start_ns);
            }
            Class::CaptureEnds => {
                // Another thread may have begun this capture, at a time that isn't known here. Then
                // all earlier launches count as captured.
                let from_ns = self.open.remove(&call.thread).unwrap_or(0);
                if self.captures.len() >= MAX_CAPTURES {
                    return self.cannot_know();
                }
                self.captures.push((from_ns, call.end_ns));
            }
        }
    }

    /// Adds a kernel that CUPTI recorded. The kernel must not belong to a graph.
    pub fn ran(&mut self, correlation: u32) {
        if self.unknown || self.waiting.remove(&correlation).is_some() {
            return;
        }
        if self.early[0].len() >= MAX_EARLY {
            self.early.swap(0, 1);
            self.early[0].clear();
        }
        self.early[0].insert(correlation);
    }

    /// Stops counting, because the number of lost kernels can't be known.
    pub fn cannot_know(&mut self) {
        *self = Launches { unknown: true, counted: self.counted, ..Launches::default() };
    }

    /// Returns the number of launches without a record of their kernel, minus those that another
    /// loss already includes.
    pub fn without_kernels(&self) -> u64 {
        (self.uncaptured().count() as u64).saturating_sub(self.counted)
    }

    /// Returns when the launches from before a time began that have no record of their kernel, ns;
    /// `None` if that is unknown.
    pub fn waiting_since(&self, before_ns: u64) -> Option<Vec<u64>> {
        let old = self.uncaptured().filter(|start_ns| *start_ns < before_ns);
        (!self.unknown).then(|| old.collect())
    }

    /// Returns when the launches began that wait for their kernels, ns.
    fn uncaptured(&self) -> impl Iterator<Item = u64> {
        let captured = |start_ns: u64| {
            self.captures.iter().any(|(from_ns, to_ns)| (*from_ns..=*to_ns).contains(&start_ns))
                || self.open.values().any(|from_ns| *from_ns <= start_ns)
        };
        self.waiting.values().copied().filter(move |start_ns| !captured(*start_ns))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(class: Class, correlation: u32, start_ns: u64) -> RuntimeCall {
        let end_ns = start_ns + 5;
        RuntimeCall { class, correlation, thread: 0, start_ns, end_ns, succeeded: true }
    }

    impl Launches {
        fn add(&mut self, class: Class, correlation: u32, start_ns: u64) {
            self.called(&call(class, correlation, start_ns));
        }
    }

    #[test]
    fn launches_without_a_kernel_are_counted_in_either_order() {
        let mut launches = Launches::default();
        for correlation in 0..1000 {
            if correlation % 2 == 0 {
                launches.add(Class::Launch, correlation, 0);
                launches.ran(correlation);
            } else {
                launches.ran(correlation);
                launches.add(Class::Launch, correlation, 0);
            }
        }
        assert_eq!(launches.without_kernels(), 0);
        for correlation in 1000..1010 {
            launches.add(Class::Launch, correlation, 5000);
        }
        launches.called(&RuntimeCall { succeeded: false, ..call(Class::Launch, 2000, 5000) });
        launches.add(Class::Memory, 3000, 5000);
        assert_eq!(launches.without_kernels(), 10);
        assert_eq!(launches.waiting_since(5001), Some(vec![5000; 10]));
        assert_eq!(launches.waiting_since(5000), Some(Vec::new()));
        launches.counted = 4;
        assert_eq!(launches.without_kernels(), 6);
    }

    #[test]
    fn captured_launches_are_not_counted() {
        let mut launches = Launches::default();
        launches.add(Class::CaptureBegins, 1, 100);
        // Another thread's launch becomes part of the same graph.
        launches.called(&RuntimeCall { thread: 1, ..call(Class::Launch, 2, 120) });
        launches.add(Class::CaptureEnds, 3, 200);
        launches.add(Class::Launch, 4, 300);
        assert_eq!(launches.without_kernels(), 1);
        launches.add(Class::CaptureBegins, 5, 400);
        launches.add(Class::Launch, 6, 500);
        assert_eq!(launches.without_kernels(), 1);
    }

    #[test]
    fn the_number_of_waiting_launches_and_kernels_is_limited() {
        let mut launches = Launches::default();
        for correlation in 0..=MAX_WAITING as u32 {
            launches.add(Class::Launch, correlation, 0);
        }
        assert_eq!((launches.without_kernels(), launches.waiting.len()), (0, 0));
        assert_eq!(launches.waiting_since(u64::MAX), None, "too many have waited");
        let mut launches = Launches::default();
        for correlation in 0..3 * MAX_EARLY as u32 {
            launches.ran(correlation);
        }
        assert!(launches.early.iter().map(HashSet::len).sum::<usize>() <= 2 * MAX_EARLY);
    }
}
