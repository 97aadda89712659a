//! What a piece of device work is for: compute, communication, or memory.

/// What device work is for.
///
/// A kernel communicates if [`crate::communication::Communication`] lists it and computes
/// otherwise; copies and memsets are memory work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Class {
    /// A kernel that computes.
    Compute,
    /// A kernel that moves data between ranks.
    Communication,
    /// A copy or a memset.
    Memory,
    /// Nothing of these; only Holistic Trace Analysis has such rows.
    Other,
}

impl Class {
    /// As reports write it.
    pub fn name(self) -> &'static str {
        match self {
            Class::Compute => "compute",
            Class::Communication => "communication",
            Class::Memory => "memory",
            Class::Other => "other",
        }
    }
}
