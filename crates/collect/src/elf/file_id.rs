//! What a file is known by, whatever path leads to it.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;

/// What a file is known by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FileId {
    /// Device.
    pub dev: u64,
    /// Inode.
    pub inode: u64,
    /// Time of last change, nanoseconds since 1970.
    pub mtime_ns: i128,
    /// Bytes.
    pub size: u64,
}

impl FileId {
    /// That of a file with facts that were read.
    pub fn of(meta: &Metadata) -> FileId {
        FileId {
            dev: meta.dev(),
            inode: meta.ino(),
            mtime_ns: i128::from(meta.mtime()) * 1_000_000_000 + i128::from(meta.mtime_nsec()),
            size: meta.len(),
        }
    }
}
