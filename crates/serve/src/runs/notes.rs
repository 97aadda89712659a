//! Stores the tags and the note of a run in a file in the run's directory. If the user moves the
//! directory, they stay with the run.

use std::fs::{self, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::beneath;

/// Name of the file that holds the tags and the note.
pub const FILE: &str = "tprof-notes.json";
/// Largest number of bytes that are read from the file.
const MAX_BYTES: u64 = 64 << 10;
/// Largest number of tags.
const MAX_TAGS: usize = 32;
/// Largest length of a tag, bytes.
const MAX_TAG: usize = 64;
/// Largest length of the note, bytes.
const MAX_NOTE: usize = 8 << 10;

/// Tags and a note that a person attached to a run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Notes {
    /// Short words by which the run can be found.
    pub tags: Vec<String>,
    /// Free text of the user.
    pub note: String,
}

impl Notes {
    /// Reads the notes of a run; empty if there are none or they cannot be read.
    pub fn of(run: &Path) -> Notes {
        let read = || -> io::Result<Notes> {
            let mut text = String::new();
            let file = beneath::open(beneath::directory(run)?, Path::new(FILE))?;
            file.take(MAX_BYTES).read_to_string(&mut text)?;
            Ok(serde_json::from_str(&text)?)
        };
        read().unwrap_or_default()
    }

    /// Checks the limits on tags and note. The error says which one is exceeded.
    pub fn check(&self) -> Result<(), String> {
        if self.tags.len() > MAX_TAGS {
            return Err(format!("there are {} tags; {MAX_TAGS} is the most", self.tags.len()));
        }
        if let Some(tag) = self.tags.iter().find(|tag| tag.is_empty() || tag.len() > MAX_TAG) {
            return Err(format!("the tag `{tag}` has {} bytes, not 1 to {MAX_TAG}", tag.len()));
        }
        match self.note.len() {
            0..=MAX_NOTE => Ok(()),
            bytes => Err(format!("the note has {bytes} bytes; {MAX_NOTE} is the most")),
        }
    }

    /// Writes the file completely or not at all. Removes it if there are no tags and no note.
    pub fn save(&self, run: &Path) -> io::Result<()> {
        let path = run.join(FILE);
        if *self == Notes::default() {
            return match fs::remove_file(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
                _ => Ok(()),
            };
        }
        let temporary = run.join(format!(".{FILE}.{}", std::process::id()));
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true).mode(0o600);
        let mut file = options.custom_flags(nix::libc::O_NOFOLLOW).open(&temporary)?;
        file.write_all(serde_json::to_string_pretty(self)?.as_bytes())?;
        fs::rename(&temporary, &path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn saved_notes_are_read_back_and_a_link_out_of_the_run_is_not_followed() {
        let run = tempfile::tempdir().unwrap();
        let notes = Notes { tags: vec!["night".to_owned()], note: "with </script>".to_owned() };
        notes.save(run.path()).unwrap();
        assert_eq!(Notes::of(run.path()), notes);
        Notes::default().save(run.path()).unwrap();
        assert!(!run.path().join(FILE).exists());
        let outside = tempfile::NamedTempFile::new().unwrap();
        fs::write(outside.path(), serde_json::to_string(&notes).unwrap()).unwrap();
        std::os::unix::fs::symlink(outside.path(), run.path().join(FILE)).unwrap();
        assert_eq!(Notes::of(run.path()), Notes::default());
    }

    #[test]
    fn tags_and_notes_beyond_the_limits_are_refused() {
        let tagged = |tag: &str| Notes { tags: vec![tag.to_owned()], ..Notes::default() };
        assert!(tagged("a").check().is_ok());
        assert!(tagged("").check().is_err());
        assert!(tagged(&"a".repeat(MAX_TAG + 1)).check().is_err());
        let many = Notes { tags: vec!["a".to_owned(); MAX_TAGS + 1], ..Notes::default() };
        assert!(many.check().is_err());
        assert!(Notes { note: "a".repeat(MAX_NOTE + 1), ..Notes::default() }.check().is_err());
    }
}
