//! Writes outputs that appear completely or not at all.
//!
//! An output is written under a temporary name in its directory and renamed at the end. So a full
//! disk or a kill leaves no partial file under the final name. The name `-` means stdout, where
//! written bytes cannot be taken back.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use crate::ExportError;

/// The output name that means stdout.
pub const STDOUT: &str = "-";

/// Whether a name means stdout.
pub fn is_stdout(path: &Path) -> bool {
    path.as_os_str() == STDOUT
}

/// Returns an error if the output is stdout, for a format with several files.
pub(crate) fn not_stdout(path: Option<&Path>, format: &'static str) -> Result<(), ExportError> {
    match path.is_some_and(is_stdout) {
        true => Err(ExportError::NotToStdout { format }),
        false => Ok(()),
    }
}

/// An output that is being written.
pub struct Output {
    path: PathBuf,
    /// Path of the temporary file; `None` for stdout.
    temporary: Option<PathBuf>,
    file: BufWriter<File>,
    bytes: u64,
    kept: bool,
}

impl Output {
    /// Returns an error if the output already exists, unless `force` is set.
    pub fn check(path: &Path, force: bool) -> Result<(), ExportError> {
        if !force && !is_stdout(path) && path.symlink_metadata().is_ok() {
            return Err(ExportError::Exists { path: path.to_path_buf() });
        }
        Ok(())
    }

    /// Creates an output that only its owner may read, as is the case for the run itself.
    pub fn create(path: &Path) -> Result<Output, ExportError> {
        let failed = |source| ExportError::Write { path: path.to_path_buf(), source };
        if is_stdout(path) {
            let stdout = io::stdout().as_fd().try_clone_to_owned().map_err(failed)?;
            return Ok(Output::of(path, None, stdout.into()));
        }
        let temporary = temporary(path);
        let open = || OpenOptions::new().write(true).create_new(true).mode(0o600).open(&temporary);
        let file = match open() {
            // A killed process with the same pid left this file.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                fs::remove_file(&temporary).map_err(failed)?;
                open()
            }
            opened => opened,
        };
        let file = file.map_err(failed)?;
        Ok(Output::of(path, Some(temporary), file))
    }

    fn of(path: &Path, temporary: Option<PathBuf>, file: File) -> Output {
        let file = BufWriter::with_capacity(1 << 16, file);
        Output { path: path.to_path_buf(), temporary, file, bytes: 0, kept: false }
    }

    /// Returns the number of bytes written so far.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Renames the output to its final name, and returns the path; `None` for stdout.
    pub fn keep(mut self) -> Result<Option<PathBuf>, ExportError> {
        let path = self.path.clone();
        let failed = |source| ExportError::Write { path: path.clone(), source };
        self.file.flush().map_err(failed)?;
        let Some(temporary) = &self.temporary else { return Ok(None) };
        if self.path.is_dir() {
            return Err(failed(io::ErrorKind::IsADirectory.into()));
        }
        fs::rename(temporary, &self.path).map_err(failed)?;
        self.kept = true;
        Ok(Some(path))
    }
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let wrote = self.file.write(bytes)?;
        self.bytes += wrote as u64;
        Ok(wrote)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        if let Some(temporary) = self.temporary.as_ref().filter(|_| !self.kept) {
            // Ignore an error here, because the caller reports the error that led to this cleanup.
            let _ = fs::remove_file(temporary);
        }
    }
}

/// A directory of files that appears completely or not at all.
pub struct OutputDir {
    path: PathBuf,
    temporary: PathBuf,
    kept: bool,
}

impl OutputDir {
    /// Returns an error if the directory exists and is not empty, unless `force` is set. Also
    /// returns an error for stdout, which can take only one file.
    pub fn check(path: &Path, force: bool, format: &'static str) -> Result<(), ExportError> {
        not_stdout(Some(path), format)?;
        let is_empty = || fs::read_dir(path).is_ok_and(|mut entries| entries.next().is_none());
        if is_empty() { Ok(()) } else { Output::check(path, force) }
    }

    /// Creates a directory that only its owner may read.
    pub fn create(path: &Path) -> Result<OutputDir, ExportError> {
        let temporary = temporary(path);
        let failed = |source| ExportError::Write { path: path.to_path_buf(), source };
        if temporary.exists() {
            fs::remove_dir_all(&temporary).map_err(failed)?;
        }
        let mut builder = fs::DirBuilder::new();
        std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
        builder.create(&temporary).map_err(failed)?;
        Ok(OutputDir { path: path.to_path_buf(), temporary, kept: false })
    }

    /// Returns the temporary path, under which files are written until the directory gets its final
    /// name.
    pub fn unfinished(&self) -> &Path {
        &self.temporary
    }

    /// Renames the directory to its final name. This replaces an earlier export.
    pub fn keep(mut self) -> Result<PathBuf, ExportError> {
        let path = self.path.clone();
        let failed = |source| ExportError::Write { path: path.clone(), source };
        if self.path.is_dir() {
            // A rename can replace an empty directory. A directory with content must be moved away
            // first.
            let aside = temporary(&self.path.with_extension("old"));
            fs::rename(&self.path, &aside).map_err(failed)?;
            if let Err(source) = fs::rename(&self.temporary, &self.path) {
                let _ = fs::rename(&aside, &self.path);
                return Err(failed(source));
            }
            self.kept = true;
            fs::remove_dir_all(&aside).map_err(failed)?;
        } else {
            fs::rename(&self.temporary, &self.path).map_err(failed)?;
            self.kept = true;
        }
        Ok(path)
    }
}

impl Drop for OutputDir {
    fn drop(&mut self) {
        if !self.kept {
            let _ = fs::remove_dir_all(&self.temporary);
        }
    }
}

/// Returns an unused name next to `path`.
fn temporary(path: &Path) -> PathBuf {
    let mut name = OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(format!(".{}.part", std::process::id()));
    path.with_file_name(name)
}
