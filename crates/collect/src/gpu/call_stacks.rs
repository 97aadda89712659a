//! Copies stacks and arguments of calls to CUPTI's rows. Hooks record them for some calls that
//! CUPTI records as well, and CUPTI's row of the same call gets them.

use std::collections::{HashMap, VecDeque};
use tprof_trace::model::{NameId, Span, StackId, ThreadIndex};

/// Number of calls per thread that may wait for CUPTI's record. If one more comes, the oldest is
/// dropped.
const MAX_CALLS: usize = 1 << 12;

/// A call for which a hook recorded a stack or arguments.
#[derive(Clone, Copy, Debug)]
pub struct StackOfCall {
    /// The thread that made the call.
    pub thread: ThreadIndex,
    /// The name of the function that was called.
    pub name: &'static str,
    /// Time when the call began, ns.
    pub from_ns: u64,
    /// Time when the call returned, ns.
    pub to_ns: u64,
    /// The stack of the call; 0 if there is none.
    pub stack: StackId,
    /// The arguments of the call, as in [`Span::args`].
    pub args: NameId,
}

/// The calls of each thread that wait for CUPTI's record.
#[derive(Debug, Default)]
pub struct CallStacks {
    of_thread: HashMap<ThreadIndex, VecDeque<StackOfCall>>,
}

impl CallStacks {
    /// Adds a call with a stack or arguments. CUPTI's record of the call arrives later, because
    /// CUPTI writes its records only at a flush.
    pub fn called(&mut self, call: StackOfCall) {
        let waiting = self.of_thread.entry(call.thread).or_default();
        if waiting.len() == MAX_CALLS {
            waiting.pop_front();
        }
        waiting.push_back(call);
    }

    /// Adds the hook's stack and arguments to CUPTI's row of the same call. The joined clocks have
    /// an error, so hook and CUPTI may have different intervals for one call, and CUPTI's may
    /// overlap another call of the function. Therefore the calls count as the same if more than
    /// half of CUPTI's interval is within the hook's.
    pub fn complete<'n>(&mut self, row: &mut Span, name: impl FnOnce() -> &'n str) {
        let Some(waiting) = self.of_thread.get_mut(&row.thread).filter(|all| !all.is_empty())
        else {
            return;
        };
        let (name, end_ns) = (name(), row.start_ns + row.duration_ns);
        let is_the_same = |call: &StackOfCall| {
            let both_ns = end_ns.min(call.to_ns).saturating_sub(row.start_ns.max(call.from_ns));
            call.name == name && 2 * both_ns > row.duration_ns
        };
        let found = waiting.iter().position(is_the_same);
        if let Some(call) = found.and_then(|at| waiting.remove(at)) {
            (row.stack, row.args) = (call.stack, call.args);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAME: &str = "cudaStreamSynchronize";

    fn call(from_ns: u64, to_ns: u64, stack: StackId) -> StackOfCall {
        StackOfCall { thread: 1, name: NAME, from_ns, to_ns, stack, args: NameId(stack + 1) }
    }

    /// Completes a row and returns its stack. Also checks that the row has the arguments of the
    /// same call.
    fn taken<'n>(all: &mut CallStacks, mut row: Span, name: impl FnOnce() -> &'n str) -> StackId {
        all.complete(&mut row, name);
        assert_eq!(row.args.0, if row.stack == 0 { 0 } else { row.stack + 1 });
        row.stack
    }

    fn row(start_ns: u64, duration_ns: u64) -> Span {
        Span { thread: 1, start_ns, duration_ns, ..Span::default() }
    }

    #[test]
    fn a_stack_is_added_only_to_the_row_of_its_own_call() {
        let mut all = CallStacks::default();
        all.called(call(1_000, 2_000, 7));
        all.called(call(5_000, 6_000, 8));
        // Rows of an earlier call, of another thread's call, of an inner call of another function,
        // and of the call itself with a late clock.
        assert_eq!(taken(&mut all, row(300, 600), || NAME), 0);
        assert_eq!(taken(&mut all, Span { thread: 2, ..row(1_010, 900) }, || NAME), 0);
        assert_eq!(taken(&mut all, row(1_100, 100), || "cuStreamSynchronize"), 0);
        assert_eq!(taken(&mut all, row(1_400, 900), || NAME), 7);
        assert_eq!(taken(&mut all, row(1_400, 900), || NAME), 0);
        assert_eq!(taken(&mut all, row(5_010, 980), || NAME), 8);
        assert_eq!(taken(&mut all, row(5_010, 980), || panic!("no call waits")), 0);
    }

    #[test]
    fn the_oldest_calls_are_dropped_if_too_many_wait() {
        let mut all = CallStacks::default();
        for at in 1..=MAX_CALLS as u64 + 3 {
            all.called(call(at * 10, at * 10 + 5, at as StackId));
        }
        assert_eq!(taken(&mut all, row(30, 5), || NAME), 0);
        assert_eq!(taken(&mut all, row(40, 5), || NAME), 4);
    }
}
