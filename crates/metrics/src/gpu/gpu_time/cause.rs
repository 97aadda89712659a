//! Lists the causes for which a device can be idle, with their keys and displayed names.

/// The cause of a device's idle time. Causes are exclusive, so that their times add up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum IdleCause {
    /// The host launched one operator after the other, and was slower than the device.
    Launch,
    /// The host had waited for the device before it could launch more.
    Sync,
    /// The driver allocated or freed device memory, or pinned memory of the host.
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
    /// The device ran its first work only later.
    Start,
    /// The device ran its last work earlier.
    End,
    /// The recording doesn't show the cause.
    Unknown,
}

/// All causes, in the order of tables for equal times.
pub const CAUSES: [IdleCause; 16] = [
    IdleCause::Launch,
    IdleCause::Sync,
    IdleCause::Allocation,
    IdleCause::PageableCopy,
    IdleCause::Python,
    IdleCause::Data,
    IdleCause::Gc,
    IdleCause::Lock,
    IdleCause::Gil,
    IdleCause::Compile,
    IdleCause::Checkpoint,
    IdleCause::Collective,
    IdleCause::Stream,
    IdleCause::Start,
    IdleCause::End,
    IdleCause::Unknown,
];

impl IdleCause {
    /// The key in JSON.
    pub fn key(self) -> &'static str {
        match self {
            IdleCause::Launch => "launch",
            IdleCause::Sync => "sync",
            IdleCause::Allocation => "allocation",
            IdleCause::PageableCopy => "pageable_copy",
            IdleCause::Python => "python",
            IdleCause::Data => "data",
            IdleCause::Gc => "gc",
            IdleCause::Lock => "lock",
            IdleCause::Gil => "gil",
            IdleCause::Compile => "compile",
            IdleCause::Checkpoint => "checkpoint",
            IdleCause::Collective => "collective",
            IdleCause::Stream => "stream",
            IdleCause::Start => "start",
            IdleCause::End => "end",
            IdleCause::Unknown => "unknown",
        }
    }

    /// The words in a table of idle time.
    pub fn short(self) -> &'static str {
        match self {
            IdleCause::Launch => "launches",
            IdleCause::Sync => "sync",
            IdleCause::Allocation => "allocation",
            IdleCause::PageableCopy => "pageable",
            IdleCause::Python => "other code",
            IdleCause::Data => "data",
            IdleCause::Gc => "gc",
            IdleCause::Lock => "lock",
            IdleCause::Gil => "GIL",
            IdleCause::Compile => "compilation",
            IdleCause::Checkpoint => "checkpoint",
            IdleCause::Collective => "other ranks",
            IdleCause::Stream => "stream",
            IdleCause::Start => "start",
            IdleCause::End => "end",
            IdleCause::Unknown => "unknown",
        }
    }

    /// Whether the cause names something that can be changed. The others only say when the device
    /// was idle, or that nothing is known.
    pub fn explains(self) -> bool {
        !matches!(self, IdleCause::Stream | IdleCause::Start | IdleCause::End | IdleCause::Unknown)
    }

    /// Whether the cause is code or a wait of the host that only CPU samples show in full.
    pub fn is_host_code(self) -> bool {
        matches!(
            self,
            IdleCause::Python
                | IdleCause::Gc
                | IdleCause::Lock
                | IdleCause::Gil
                | IdleCause::Checkpoint
                | IdleCause::Collective
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_cause_has_a_key_of_its_own_and_a_place_in_the_list() {
        let mut keys = CAUSES.map(IdleCause::key);
        keys.sort_unstable();
        assert!(keys.windows(2).all(|pair| pair[0] != pair[1]));
        assert!(CAUSES.iter().enumerate().all(|(at, cause)| *cause as usize == at));
    }
}
