//! Names copies and memsets.

use std::borrow::Cow;

use tprof_trace::TraceFile;
use tprof_trace::model::{CopyKind, MemoryCopy, MemoryKind, NameId};

/// Returns a copy's direction as Kineto and Holistic Trace Analysis write it: `Memcpy HtoD`, or
/// `Memcpy` if the direction is unknown.
pub fn direction(kind: CopyKind) -> &'static str {
    match kind {
        CopyKind::Unknown => "Memcpy",
        CopyKind::HostToDevice => "Memcpy HtoD",
        CopyKind::DeviceToHost => "Memcpy DtoH",
        CopyKind::DeviceToDevice => "Memcpy DtoD",
        CopyKind::HostToHost => "Memcpy HtoH",
        CopyKind::PeerToPeer => "Memcpy PtoP",
        CopyKind::Memset => "Memset",
    }
}

/// The key of a copy's displayed name: the name in its source, or else the copy's properties.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CopyNameKey {
    /// The name in its source; 0 if it has none.
    pub name: NameId,
    /// The direction of the copy.
    pub kind: CopyKind,
    /// Kind of the memory that was read.
    pub from: MemoryKind,
    /// Kind of the memory that was written.
    pub to: MemoryKind,
}

impl From<&MemoryCopy> for CopyNameKey {
    fn from(row: &MemoryCopy) -> CopyNameKey {
        CopyNameKey { name: row.name, kind: row.kind, from: row.from, to: row.to }
    }
}

/// Returns the name of a copy. If its source has no name for it, the name is the one that Kineto
/// would write: `Memcpy HtoD (Pageable -> Device)`, `Memset (Device)`. The part in parentheses is
/// left out if neither kind of memory is known.
pub fn name<'a>(file: &'a TraceFile, copied: impl Into<CopyNameKey>) -> Cow<'a, str> {
    let CopyNameKey { name, kind, from, to } = copied.into();
    match file.name(name) {
        "" => {}
        name => return Cow::Borrowed(name),
    }
    let direction = direction(kind);
    let is_unknown = |kind| kind == MemoryKind::Unknown;
    match kind {
        CopyKind::Memset if is_unknown(to) => Cow::Borrowed(direction),
        CopyKind::Memset => Cow::Owned(format!("{direction} ({})", memory(to))),
        _ if is_unknown(from) && is_unknown(to) => Cow::Borrowed(direction),
        _ => Cow::Owned(format!("{direction} ({} -> {})", memory(from), memory(to))),
    }
}

/// Returns a kind of memory as Kineto writes it.
pub fn memory(kind: MemoryKind) -> &'static str {
    match kind {
        MemoryKind::Unknown => "Unknown",
        MemoryKind::Pageable => "Pageable",
        MemoryKind::Pinned => "Pinned",
        MemoryKind::Device => "Device",
        MemoryKind::Array => "Array",
        MemoryKind::Managed => "Managed",
        MemoryKind::DeviceStatic => "Device Static",
        MemoryKind::ManagedStatic => "Managed Static",
    }
}
