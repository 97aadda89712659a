//! Writes what a collector has noticed into the run's directory, in numbered files.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;
use tprof_os::sys;

/// Largest number of files of one kind in a run.
const MAX_FILES: u32 = 100;

/// Writes a report as `KIND-N.json` with the next free number, and returns the name. Collectors of
/// several hosts may do so at once. A run directory that can't be written has none.
pub fn write(run: &Path, kind: &str, report: &serde_json::Value) -> Option<String> {
    let text = serde_json::to_string_pretty(report).ok()? + "\n";
    // Under another name first, so that nobody reads a part of it. A link to it fails if the name
    // is taken, while a rename would replace the file.
    let part = run.join(format!("{kind}-{}-{}.part", sys::host_name(), std::process::id()));
    fs::write(&part, text).ok()?;
    let mut names = (1..=MAX_FILES).map(|number| format!("{kind}-{number}.json"));
    let name = names.find_map(|name| match fs::hard_link(&part, run.join(&name)) {
        Ok(()) => Some(Some(name)),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => None,
        // A file system without links.
        Err(_) if run.join(&name).exists() => None,
        Err(_) => Some(fs::rename(&part, run.join(&name)).is_ok().then_some(name)),
    });
    let _ = fs::remove_file(part);
    name.flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_get_the_next_free_number_and_leave_no_parts() {
        let run = tempfile::tempdir().unwrap();
        let report = serde_json::json!({"kind": "hang"});
        for name in ["hang-1.json", "hang-2.json"] {
            assert_eq!(write(run.path(), "hang", &report).as_deref(), Some(name));
        }
        assert_eq!(fs::read_dir(run.path()).unwrap().count(), 2);
        assert_eq!(write(&run.path().join("absent"), "hang", &report), None);
    }
}
