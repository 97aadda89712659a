//! Identifies a file, so that it is recognized under every path.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;

/// The identity of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FileId {
    /// Number of the device.
    pub dev: u64,
    /// Number of the inode.
    pub inode: u64,
    /// Time of the last modification, ns since 1970.
    pub mtime_ns: i128,
    /// Size in bytes.
    pub size: u64,
}

impl FileId {
    /// Returns the identity from a file's metadata.
    pub fn of(meta: &Metadata) -> FileId {
        FileId {
            dev: meta.dev(),
            inode: meta.ino(),
            mtime_ns: i128::from(meta.mtime()) * 1_000_000_000 + i128::from(meta.mtime_nsec()),
            size: meta.len(),
        }
    }
}
