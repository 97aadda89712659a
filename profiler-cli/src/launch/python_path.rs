//! Sets the `PYTHONPATH` of a job. If modules are recorded, the directory of the start-up hook
//! comes first.

use crate::launch::libraries::{self, START_UP_HOOK};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use tprof_collect::{Config, PYTHON_PATH, holds_hook};
use tprof_ui::errors::Failure;

/// Returns the new `PYTHONPATH` of a job; `None` if it doesn't change.
pub fn change(config: &Config, command: &[OsString]) -> Result<Option<OsString>, Failure> {
    let hook = match config.modules {
        true => Some(libraries::path_for(&START_UP_HOOK, command, &config.output)?),
        false => None,
    };
    let directory = hook.as_deref().and_then(Path::parent);
    Ok(changed(directory, std::env::var_os(PYTHON_PATH).as_deref()))
}

/// Returns the new value: `directory`, then the given entries without those of an outer recording;
/// `None` if that is the given value.
fn changed(directory: Option<&Path>, given: Option<&OsStr>) -> Option<OsString> {
    let given = given.unwrap_or_default();
    let entries = given.as_bytes().split(|byte| *byte == b':');
    let is_owned_by_user =
        |entry: &&[u8]| !entry.is_empty() && holds_hook(Path::new(OsStr::from_bytes(entry)));
    let (ours, kept): (Vec<&[u8]>, Vec<&[u8]>) = entries.partition(is_owned_by_user);
    if directory.is_none() && ours.is_empty() {
        return None;
    }
    let mut all: Vec<&[u8]> =
        directory.map(|path| path.as_os_str().as_bytes()).into_iter().collect();
    // An empty entry means the current directory. But an empty value has no entries.
    if kept.len() > 1 || kept.first().is_some_and(|entry| !entry.is_empty()) {
        all.extend(kept);
    }
    Some(OsStr::from_bytes(&all.join(&b':')).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use tprof_collect::{HOOK_FILE, HOOK_TITLE};

    #[test]
    fn the_hook_comes_first_and_once_and_other_entries_stay() {
        let outer = tempfile::tempdir().unwrap();
        std::fs::write(outer.path().join(HOOK_FILE), format!("{HOOK_TITLE}: …")).unwrap();
        let outer = outer.path().to_str().unwrap();
        let value = |given: &str| {
            changed(Some(Path::new("/h")), Some(OsStr::new(given))).unwrap().into_string().unwrap()
        };
        assert_eq!(value(""), "/h");
        assert_eq!(value("/a:/b"), "/h:/a:/b");
        assert_eq!(value("/a::"), "/h:/a::");
        assert_eq!(value(&format!("{outer}:/a")), "/h:/a");
        assert_eq!(value(outer), "/h");
        let without = |given: &str| changed(None, Some(OsStr::new(given)));
        assert_eq!(without("/a:/b"), None);
        assert_eq!(changed(None, None), None);
        assert_eq!(without(&format!("{outer}:/a")), Some("/a".into()));
    }
}
