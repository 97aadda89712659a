//! Makes the folder of one test, and removes it at the end.

use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// A folder that is removed when the test ends. Each run finds the working directory inside it
/// empty and under the same name.
pub struct Scratch {
    root: TempDir,
}

impl Scratch {
    /// Makes a new folder, which other users may enter.
    #[allow(clippy::new_without_default, reason = "it makes a folder")]
    pub fn new() -> Scratch {
        let root = tempfile::Builder::new().prefix("tprof-test-").tempdir().unwrap();
        open_to_others(root.path());
        Scratch { root }
    }

    /// Path of the folder.
    pub fn path(&self) -> &Path {
        self.root.path()
    }

    /// Returns a path inside the folder.
    pub fn join(&self, name: impl AsRef<Path>) -> PathBuf {
        self.root.path().join(name)
    }

    /// Writes a file inside it.
    pub fn write(&self, name: &str, content: &str) -> PathBuf {
        let path = self.join(name);
        std::fs::write(&path, content).unwrap();
        path
    }

    /// Empties the working directory and returns its path.
    pub fn cwd(&self) -> PathBuf {
        let cwd = self.join("cwd");
        let _ = std::fs::remove_dir_all(&cwd);
        std::fs::create_dir(&cwd).unwrap();
        cwd
    }

    /// Returns a name for a run directory that does not exist yet.
    pub fn run(&self) -> PathBuf {
        (0..).map(|n| self.join(format!("run-{n}"))).find(|path| !path.exists()).unwrap()
    }
}

/// Lets other users enter a folder and read it.
fn open_to_others(path: &Path) {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
}
