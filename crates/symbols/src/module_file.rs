//! The file whose symbols name the addresses of a module.

use crate::elf::FileId;
use std::path::PathBuf;

/// The file of a module, and how the collector finds it again.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct ModuleFile {
    /// Path as the process sees it; `[vdso]` for the vDSO.
    pub path: PathBuf,
    /// Build id in hex; empty if the file has none. A file with another build id isn't used.
    pub build_id: String,
    /// A path by which the collector has reached the file, such as one through `/proc/PID/root`.
    pub reached: Option<PathBuf>,
    /// Identity of the file when it was reached; `None` if it could not be reached.
    pub identity: Option<FileId>,
}

impl ModuleFile {
    /// Whether both are the same file, even if they were reached by different paths.
    pub fn is_same_file(&self, other: &ModuleFile) -> bool {
        let alike = self.path == other.path && self.build_id == other.build_id;
        let known = self.identity.is_some() || self.reached == other.reached;
        alike && known && self.identity == other.identity
    }
}
