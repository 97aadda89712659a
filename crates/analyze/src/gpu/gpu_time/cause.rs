//! Why a device had nothing to do.

/// What a device waited for while it was idle. The causes are exclusive, so that they add up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Cause {
    /// The host was launching, operator by operator, and was slower than the device.
    Launch,
    /// The host had waited for the device before it could launch more.
    Sync,
    /// The driver took or gave back device memory.
    Allocation,
    /// A copy of pageable memory held up the launching thread.
    PageableCopy,
    /// The launching thread ran other code between launches.
    Python,
    /// The launching thread loaded data or waited for it.
    Data,
    /// Python's garbage collector ran.
    Gc,
    /// The launching thread waited for a lock that another thread held.
    Lock,
    /// The launching thread waited for Python's global lock.
    Gil,
    /// Code was being compiled, or loaded onto the device for the first time.
    Compile,
    /// The launching thread saved a checkpoint.
    Checkpoint,
    /// The launching thread waited for other ranks.
    Collective,
    /// The next work was launched already, and waited on the device.
    Stream,
    /// The device had not been used yet.
    Start,
    /// The device was not used any more.
    End,
    /// The recording does not show it.
    Unknown,
}

/// All of them, in the order of tables for equal times.
pub const CAUSES: [Cause; 16] = [
    Cause::Launch,
    Cause::Sync,
    Cause::Allocation,
    Cause::PageableCopy,
    Cause::Python,
    Cause::Data,
    Cause::Gc,
    Cause::Lock,
    Cause::Gil,
    Cause::Compile,
    Cause::Checkpoint,
    Cause::Collective,
    Cause::Stream,
    Cause::Start,
    Cause::End,
    Cause::Unknown,
];

impl Cause {
    /// As JSON has it.
    pub fn key(self) -> &'static str {
        match self {
            Cause::Launch => "launch",
            Cause::Sync => "sync",
            Cause::Allocation => "allocation",
            Cause::PageableCopy => "pageable_copy",
            Cause::Python => "python",
            Cause::Data => "data",
            Cause::Gc => "gc",
            Cause::Lock => "lock",
            Cause::Gil => "gil",
            Cause::Compile => "compile",
            Cause::Checkpoint => "checkpoint",
            Cause::Collective => "collective",
            Cause::Stream => "stream",
            Cause::Start => "start",
            Cause::End => "end",
            Cause::Unknown => "unknown",
        }
    }

    /// In a table, after "idle: ".
    pub fn short(self) -> &'static str {
        match self {
            Cause::Launch => "slow launches",
            Cause::Sync => "waits for the device",
            Cause::Allocation => "device memory",
            Cause::PageableCopy => "pageable copies",
            Cause::Python => "other host code",
            Cause::Data => "loading data",
            Cause::Gc => "garbage collection",
            Cause::Lock => "a lock",
            Cause::Gil => "the GIL",
            Cause::Compile => "compilation",
            Cause::Checkpoint => "checkpoint",
            Cause::Collective => "other ranks",
            Cause::Stream => "held on the device",
            Cause::Start => "before first work",
            Cause::End => "after last work",
            Cause::Unknown => "unknown",
        }
    }

    /// Whether it names something that can be changed: the others say only when it was idle, or
    /// that nothing is known.
    pub fn explains(self) -> bool {
        !matches!(self, Cause::Stream | Cause::Start | Cause::End | Cause::Unknown)
    }

    /// Whether it is code or a wait of the host that only CPU samples show in full.
    pub fn is_host_code(self) -> bool {
        matches!(
            self,
            Cause::Python
                | Cause::Gc
                | Cause::Lock
                | Cause::Gil
                | Cause::Checkpoint
                | Cause::Collective
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_cause_has_a_key_of_its_own_and_a_place_in_the_list() {
        let mut keys = CAUSES.map(Cause::key);
        keys.sort_unstable();
        assert!(keys.windows(2).all(|pair| pair[0] != pair[1]));
        assert!(CAUSES.iter().enumerate().all(|(at, cause)| *cause as usize == at));
    }
}
