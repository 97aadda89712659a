//! The words for what a descriptor stands for, and for what calls did with it.

use tprof_trace::model::{FileKind, FileOperation};

/// Returns the word for an operation.
pub fn operation(operation: FileOperation) -> &'static str {
    match operation {
        FileOperation::Open => "open",
        FileOperation::Read => "read",
        FileOperation::Write => "write",
        FileOperation::Sync => "sync",
        FileOperation::Map => "map",
        FileOperation::Connect => "connect",
        FileOperation::Close => "close",
        FileOperation::Accept => "accept",
        FileOperation::Fault => "page faults",
    }
}

/// Returns the word for a kind of file; `None` if the kind is unknown.
pub fn kind(kind: FileKind) -> Option<&'static str> {
    Some(match kind {
        FileKind::Unknown => return None,
        FileKind::File => "file",
        FileKind::Socket => "socket",
        FileKind::Pipe => "pipe",
        FileKind::Device => "device",
    })
}
