//! What a piece of device work is for: compute, communication, or memory.

use tprof_trace::model::CopyKind;

/// What device work is for.
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

/// Class of any row on a stream as Holistic Trace Analysis 0.5.0 derives it from
/// the row's name. A kernel whose name contains `Memcpy` or `Sync` has none there.
pub fn hta_class(name: &str) -> Class {
    if name.strip_prefix("nccl").is_some_and(|rest| rest.contains("Kernel")) {
        Class::Communication
    } else if ["Memcpy", "Memset", "dma"].iter().any(|prefix| name.starts_with(prefix)) {
        Class::Memory
    } else if name.contains("Memcpy") || name.contains("Sync") {
        Class::Other
    } else {
        Class::Compute
    }
}

/// A copy's direction as reports write it, like Kineto's and HTA's `Memcpy HtoD`.
pub fn copy_name(kind: CopyKind) -> &'static str {
    match kind {
        CopyKind::Unknown => "Memcpy Unknown",
        CopyKind::HostToDevice => "Memcpy HtoD",
        CopyKind::DeviceToHost => "Memcpy DtoH",
        CopyKind::DeviceToDevice => "Memcpy DtoD",
        CopyKind::HostToHost => "Memcpy HtoH",
        CopyKind::PeerToPeer => "Memcpy PtoP",
        CopyKind::Memset => "Memset",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hta_reads_only_names() {
        let of = [
            ("ncclKernel_AllReduce", Class::Communication),
            ("ncclAllReduce", Class::Compute),
            ("Memcpy DtoH (Device -> Pinned)", Class::Memory),
            ("dma_engine", Class::Memory),
            ("CopyMemcpy", Class::Other),
            ("Stream Sync", Class::Other),
            ("Stream Wait Event", Class::Compute),
            ("aMemset", Class::Compute),
        ];
        for (name, class) in of {
            assert_eq!(hta_class(name), class, "{name}");
        }
    }
}
