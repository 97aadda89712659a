//! Records size and time of the source files that stacks name. Reports that show source lines use
//! them to notice that a file has changed.
//!
//! Each rank makes one `stat` call per file. If a file was changed after the running code was made
//! from it, its lines may differ from the code, and the file is marked as newer.

use std::collections::HashSet;
use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use tprof_os::{proc, sys};
use tprof_symbols::ModuleFile;
use tprof_trace::model::{SourceStamp, property};

/// Largest number of files whose size and time a rank records.
const MAX_FILES: usize = 20_000;

/// The source files that were looked up.
#[derive(Debug, Default)]
pub struct SourceFiles {
    seen: HashSet<String>,
}

impl SourceFiles {
    /// Returns key and value of the property for a file whose Python code runs in a process. `None`
    /// if the file was looked up before or can't be read.
    pub fn of_python(&mut self, path: &str, pid: u32) -> Option<(String, String)> {
        self.stamp(path, || {
            // The process may have another root directory, so the path is resolved in that.
            let inside = format!("/proc/{pid}/root{path}");
            let made_ns = started_unix_ns(pid)?;
            Some((fs::metadata(inside).ok()?, made_ns))
        })
    }

    /// Returns the same for a source file that a module was compiled from.
    pub fn of_module(&mut self, path: &str, module: &ModuleFile) -> Option<(String, String)> {
        self.stamp(path, || {
            // If the module is in another root directory, so are its sources.
            let reached = module.reached.as_deref().unwrap_or(&module.path);
            let compiled = fs::metadata(reached).ok()?;
            let source = match root_of(reached) {
                Some(root) => root.join(path.trim_start_matches('/')),
                None => PathBuf::from(path),
            };
            Some((fs::metadata(source).ok()?, changed_unix_ns(&compiled)))
        })
    }

    fn stamp(
        &mut self,
        path: &str,
        find: impl FnOnce() -> Option<(Metadata, i64)>,
    ) -> Option<(String, String)> {
        if !path.starts_with('/') || self.seen.contains(path) || self.seen.len() >= MAX_FILES {
            return None;
        }
        self.seen.insert(path.to_owned());
        let (about, made_ns) = find()?;
        if !about.is_file() {
            return None;
        }
        let changed_unix_ns = changed_unix_ns(&about);
        let is_newer = changed_unix_ns > made_ns;
        let stamp = SourceStamp { bytes: about.len(), changed_unix_ns, is_newer };
        Some((format!("{}{path}", property::SOURCE), stamp.to_json()))
    }
}

/// Returns the first part of a path that begins with `/proc/PID/root`; `None` for other paths.
fn root_of(path: &Path) -> Option<PathBuf> {
    let mut parts = path.components();
    let root: PathBuf = parts.by_ref().take(4).collect();
    (root.starts_with("/proc") && root.ends_with("root")).then_some(root)
}

fn changed_unix_ns(about: &Metadata) -> i64 {
    about.mtime().saturating_mul(1_000_000_000).saturating_add(about.mtime_nsec())
}

/// Returns the time when a process began, ns since 1970, exact to a clock tick.
fn started_unix_ns(pid: u32) -> Option<i64> {
    let age_ns = sys::monotonic_ns().saturating_sub(proc::started_ns(pid)?);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).ok()?;
    Some((now.as_nanos() as i64).saturating_sub(age_ns as i64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_recorded_once_and_marked_if_it_has_changed_since() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.py");
        fs::write(&path, "x = 1\n").unwrap();
        let text = path.to_str().unwrap();
        let mut files = SourceFiles::default();
        let (key, value) = files.of_python(text, std::process::id()).unwrap();
        assert_eq!(key, format!("tprof.source:{text}"));
        let stamp = SourceStamp::from_json(&value).unwrap();
        assert_eq!((stamp.bytes, stamp.is_newer), (6, true));
        assert_eq!(files.of_python(text, std::process::id()), None);
        let module = ModuleFile { path: std::env::current_exe().unwrap(), ..ModuleFile::default() };
        let old = fs::File::options().write(true).open(&path).unwrap();
        old.set_modified(UNIX_EPOCH).unwrap();
        let (_, value) = SourceFiles::default().of_module(text, &module).unwrap();
        let stamp = SourceStamp::from_json(&value).unwrap();
        assert_eq!((stamp.changed_unix_ns, stamp.is_newer), (0, false));
        assert_eq!(files.of_python("relative.py", std::process::id()), None);
    }

    #[test]
    fn only_a_root_directory_in_proc_is_recognized() {
        assert_eq!(root_of(Path::new("/proc/7/root/usr/lib/a.so")), Some("/proc/7/root".into()));
        assert_eq!(root_of(Path::new("/usr/lib/a.so")), None);
    }
}
