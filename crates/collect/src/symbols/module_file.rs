//! A module whose addresses are symbolized.

use crate::elf::FileId;
use std::path::PathBuf;

/// A module whose addresses are resolved.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct ModuleFile {
    /// Path as the process saw it; `[vdso]` for the vDSO.
    pub path: PathBuf,
    /// Build id in hex; empty if it has none. A file with another build id is not used.
    pub build_id: String,
    /// A path by which the collector has reached the file, such as one through `/proc/PID/root`.
    pub reached: Option<PathBuf>,
    /// Identity of the file at that time, if it could be read.
    pub identity: Option<FileId>,
}

impl ModuleFile {
    /// Whether both are the same file, by whatever path each was reached.
    pub fn is_same_file(&self, other: &ModuleFile) -> bool {
        let alike = self.path == other.path && self.build_id == other.build_id;
        let known = self.identity.is_some() || self.reached == other.reached;
        alike && known && self.identity == other.identity
    }
}
