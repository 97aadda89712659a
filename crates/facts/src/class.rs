//! Defines the classes of device work: compute, communication and memory.

/// The purpose of device work.
///
/// A kernel communicates if [`crate::communication::Communication`] lists it, and otherwise
/// computes; copies and memsets are memory work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Class {
    /// A kernel that computes.
    Compute,
    /// A kernel that moves data between ranks.
    Communication,
    /// A copy or a memset.
    Memory,
    /// Any other work, which exists only if a trace is read as Holistic Trace Analysis does.
    Other,
}

impl Class {
    /// Returns the name that reports print.
    pub fn name(self) -> &'static str {
        match self {
            Class::Compute => "compute",
            Class::Communication => "communication",
            Class::Memory => "memory",
            Class::Other => "other",
        }
    }
}
