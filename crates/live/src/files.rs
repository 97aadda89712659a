//! Lists and opens the files of a run for a follower. Every file is inside the run's directory.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::DirEntryExt;
use std::path::{Path, PathBuf};

/// An entry in the directory of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileEntry {
    /// Name without a directory.
    pub name: String,
    /// Inode number, by which a follower recognizes a renamed file; 0 if it is unknown.
    pub inode: u64,
}

/// Lists and opens the files of one run.
pub trait RunFiles {
    /// Returns the path of the run's directory.
    fn directory(&self) -> &Path;
    /// Lists the entries of the run's directory.
    fn list(&self) -> io::Result<Vec<FileEntry>>;
    /// Opens a file for reading.
    fn open(&self, name: &str) -> io::Result<File>;
}

impl<F: RunFiles + ?Sized> RunFiles for Box<F> {
    fn directory(&self) -> &Path {
        (**self).directory()
    }

    fn list(&self) -> io::Result<Vec<FileEntry>> {
        (**self).list()
    }

    fn open(&self, name: &str) -> io::Result<File> {
        (**self).open(name)
    }
}

/// The files of a run's directory, or one trace file as a run of its own.
#[derive(Clone, Debug)]
pub struct PlainFiles {
    directory: PathBuf,
    only: Option<String>,
}

impl PlainFiles {
    /// Opens the run at `path`, which must exist.
    pub fn of(path: &Path) -> io::Result<PlainFiles> {
        if fs::metadata(path)?.is_dir() {
            return Ok(PlainFiles { directory: path.to_owned(), only: None });
        }
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let directory = match path.parent() {
            Some(parent) if parent.as_os_str().is_empty() => Path::new("."),
            Some(parent) => parent,
            None => Path::new("/"),
        };
        Ok(PlainFiles { directory: directory.to_owned(), only: Some(name) })
    }
}

impl RunFiles for PlainFiles {
    fn directory(&self) -> &Path {
        &self.directory
    }

    fn list(&self) -> io::Result<Vec<FileEntry>> {
        let mut found = Vec::new();
        for entry in fs::read_dir(&self.directory)? {
            let entry = entry?;
            let Ok(name) = entry.file_name().into_string() else { continue };
            let of_run = |only: &String| name == *only || name == "run.json";
            if self.only.as_ref().is_none_or(of_run) {
                found.push(FileEntry { name, inode: entry.ino() });
            }
        }
        Ok(found)
    }

    fn open(&self, name: &str) -> io::Result<File> {
        tprof_trace::open_plain(&self.directory.join(name))
    }
}
