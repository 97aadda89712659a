//! Handles, in a few instructions, the calls that need little from their hook: those of which nothing
//! is recorded, and those that only start work or wait for it.

use super::{matters, opens_outer};
use crate::call_args::Frame;
use crate::{agent_link, gate, pytorch_registration};
use tprof_wire::calls::{Effect, FUNCTIONS};

/// When calls of a function need the hook, by its number: the values of `need`.
static NEEDS: [u8; FUNCTIONS.len()] = {
    let mut needs = [need::ON; FUNCTIONS.len()];
    let mut number = 0;
    while number < needs.len() {
        let does = FUNCTIONS[number].does;
        needs[number] = match does {
            // Before the end of a context the agent flushes CUPTI.
            Effect::Profiles { .. } | Effect::Finds | Effect::Resets { .. } | Effect::Ends => {
                need::ALWAYS
            }
            Effect::Registers | Effect::Reports(_) => need::CALLS,
            Effect::Launches { .. } => need::ON_STARTS,
            Effect::Plain { .. } | Effect::Copies { .. } => need::ON_MAY_WAIT,
            does if matters(does) => need::CALLS,
            _ => need::ON,
        };
        number += 1;
    }
    needs
};

mod need {
    /// While recording is on.
    pub const ON: u8 = 0;
    /// While recording is on; nothing is done before such a call, which only starts work.
    pub const ON_STARTS: u8 = 1;
    /// The same for a call that may wait for a device.
    pub const ON_MAY_WAIT: u8 = 2;
    /// While the run records calls, also when recording is off.
    pub const CALLS: u8 = 3;
    /// In any run.
    pub const ALWAYS: u8 = 4;
}

/// What a hook does before it calls the real function.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Before {
    /// Nothing of this call is recorded, so the hook may jump to the real function.
    Nothing,
    /// The beginning was noted in the frame, and [`leave`](super::leave) must be called.
    Noted,
    /// [`enter`](super::enter) must be called, which takes longer.
    Enter,
}

/// Does what a hook does before most calls. The others need [`enter`](super::enter).
#[inline(always)]
pub fn enter_quickly(number: u32, frame: &mut Frame) -> Before {
    let (Some(need), Some(thread)) = (NEEDS.get(number as usize), gate::admitted()) else {
        return Before::Enter;
    };
    if *need == need::ALWAYS {
        return Before::Enter;
    }
    if !thread.calls.get() || *need != need::CALLS && !thread.is_on() {
        return Before::Nothing;
    }
    let is_quick = matches!(*need, need::ON_STARTS | need::ON_MAY_WAIT);
    let is_due = agent_link::is_due_before_work() || pytorch_registration::must_restore();
    let Some(clock) = thread.quick_clock().filter(|_| is_quick && !is_due) else {
        return Before::Enter;
    };
    frame.start = clock;
    if *need == need::ON_MAY_WAIT {
        opens_outer(thread, number, clock);
    }
    Before::Noted
}

#[cfg(test)]
mod tests {
    use super::*;
    use tprof_wire::calls::Number;

    #[test]
    fn calls_that_later_records_refer_to_need_their_hook_while_recording_is_off() {
        let need_of = |number: Number| NEEDS[number as usize];
        for number in [Number::cudaMalloc, Number::cudaFree, Number::ncclCommInitRank] {
            assert_eq!(need_of(number), need::CALLS);
        }
        for number in [Number::cudaDeviceReset, Number::cudaProfilerStart] {
            assert_eq!(need_of(number), need::ALWAYS);
        }
        assert_eq!(need_of(Number::cudaLaunchKernel), need::ON_STARTS);
        assert_eq!(need_of(Number::cudaStreamSynchronize), need::ON_MAY_WAIT);
        assert_eq!(need_of(Number::ncclAllReduce), need::ON);
    }
}
