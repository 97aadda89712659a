//! Launches that CUPTI recorded, beside the kernels that it recorded: at the end of a
//! process those without a kernel are lost, and how many is known.
//!
//! The record of a call and that of its kernel come in different buffers, in either
//! order. Work that is captured into a graph runs under other calls, so a launch during
//! any capture of the process counts as no launch.

use super::classes::Class;
use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasherDefault, Hasher};
use tprof_trace::model::ThreadIndex;
use tprof_wire::hash::spread;

/// Launches that may wait at one time: beyond it how many are lost is not known.
const MAX_WAITING: usize = 1 << 20;
/// Kernels that may come before their calls. Those that no call of the runtime launched
/// wait for none, and go when so many newer ones have come twice.
const MAX_EARLY: usize = 1 << 18;
/// Captures that are kept apart.
const MAX_CAPTURES: usize = 1 << 16;

/// Correlations rise by one: a multiplication spreads them.
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

/// A call, as far as it matters here.
#[derive(Clone, Copy, Debug)]
pub struct RuntimeCall {
    /// What it means.
    pub class: Class,
    /// CUPTI's number of the call.
    pub correlation: u32,
    /// Thread that made the call.
    pub thread: ThreadIndex,
    /// When it began, ns.
    pub start_ns: u64,
    /// When it returned, ns.
    pub end_ns: u64,
    /// Whether it succeeded.
    pub succeeded: bool,
}

/// See the module.
#[derive(Default)]
pub struct Launches {
    waiting: HashMap<u32, u64, Build>,
    early: [HashSet<u32, Build>; 2],
    /// Captures that ended: from when to when.
    captures: Vec<(u64, u64)>,
    open: HashMap<ThreadIndex, u64>,
    /// Kernels do not come, or there were too many of something.
    unknown: bool,
    /// Records that are counted as lost already.
    pub counted: u64,
}

impl Launches {
    /// CUPTI recorded a call.
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
                // Another thread may have begun it: then all that came before lies within.
                let from_ns = self.open.remove(&call.thread).unwrap_or(0);
                if self.captures.len() >= MAX_CAPTURES {
                    return self.cannot_know();
                }
                self.captures.push((from_ns, call.end_ns));
            }
        }
    }

    /// CUPTI recorded a kernel that no graph launched.
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

    /// Kernels do not come.
    pub fn cannot_know(&mut self) {
        *self = Launches { unknown: true, counted: self.counted, ..Launches::default() };
    }

    /// Launches without a CUPTI record of their kernels, so far as they are not counted already.
    pub fn without_kernels(&self) -> u64 {
        let captured = |start_ns: u64| {
            self.captures.iter().any(|(from_ns, to_ns)| (*from_ns..=*to_ns).contains(&start_ns))
                || self.open.values().any(|from_ns| *from_ns <= start_ns)
        };
        let waiting = self.waiting.values().filter(|start_ns| !captured(**start_ns)).count();
        (waiting as u64).saturating_sub(self.counted)
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
    fn launches_without_a_kernel_are_counted_whichever_comes_first() {
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
        launches.counted = 4;
        assert_eq!(launches.without_kernels(), 6);
    }

    #[test]
    fn what_is_captured_is_no_launch() {
        let mut launches = Launches::default();
        launches.add(Class::CaptureBegins, 1, 100);
        // Of another thread, into the same graph.
        launches.called(&RuntimeCall { thread: 1, ..call(Class::Launch, 2, 120) });
        launches.add(Class::CaptureEnds, 3, 200);
        launches.add(Class::Launch, 4, 300);
        assert_eq!(launches.without_kernels(), 1);
        launches.add(Class::CaptureBegins, 5, 400);
        launches.add(Class::Launch, 6, 500);
        assert_eq!(launches.without_kernels(), 1);
    }

    #[test]
    fn where_kernels_do_not_come_nothing_is_held() {
        let mut launches = Launches::default();
        for correlation in 0..=MAX_WAITING as u32 {
            launches.add(Class::Launch, correlation, 0);
        }
        assert_eq!((launches.without_kernels(), launches.waiting.len()), (0, 0));
        let mut launches = Launches::default();
        for correlation in 0..3 * MAX_EARLY as u32 {
            launches.ran(correlation);
        }
        assert!(launches.early.iter().map(HashSet::len).sum::<usize>() <= 2 * MAX_EARLY);
    }
}
