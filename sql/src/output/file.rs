//! The file of `-o`, which gets its name only when it is complete.

use std::io::{IsTerminal, stdout};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use tempfile::TempPath;
use tprof_ui::args::ResultFormat as Format;
use tprof_ui::errors::{Failure, reason};

use super::{Output, Sink};
use crate::query_failure::QueryFailure;
use crate::status::{MISUSE, QUERY};

/// Destination of the results of a command line: a file or stdout.
pub struct Destination {
    /// The file under its temporary name, and its final name.
    file: Option<(TempPath, PathBuf)>,
}

impl Destination {
    /// Creates the file, or uses stdout if none is named.
    pub fn open(format: Format, path: Option<&Path>) -> Result<(Destination, Output), Failure> {
        let Some(path) = path else {
            let is_terminal = stdout().is_terminal();
            if is_terminal && matches!(format, Format::Parquet | Format::Arrow) {
                return Err(Failure::new(format!("{} is not for a terminal", format.name()))
                    .cause("it is a binary format")
                    .hint("-o FILE")
                    .code(MISUSE));
            }
            let output = Output::new(format, Sink::new(stdout()), terminal_width(), false);
            return Ok((Destination { file: None }, output));
        };
        let failed = |error: std::io::Error| {
            Failure::new(format!("cannot write `{}`", path.display()))
                .cause(reason(&error))
                .hint("-o FILE, in a directory that exists")
                .code(QUERY)
        };
        if path.is_dir() {
            return Err(failed(std::io::Error::from(std::io::ErrorKind::IsADirectory)));
        }
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let file = tempfile::Builder::new()
            .prefix(&format!(".{name}."))
            // These are the usual permissions of a new file, before the umask.
            .permissions(std::fs::Permissions::from_mode(0o666))
            .tempfile_in(parent.unwrap_or(Path::new(".")))
            .map_err(failed)?;
        let (file, temporary) = file.into_parts();
        let output = Output::new(format, Sink::new(file), None, true);
        Ok((Destination { file: Some((temporary, path.to_owned())) }, output))
    }

    /// Renames the file to its final name.
    pub fn keep(self) -> Result<(), QueryFailure> {
        let Some((temporary, path)) = self.file else { return Ok(()) };
        Ok(temporary.persist(path).map_err(|error| error.error)?)
    }
}

/// Width in columns of the terminal on stdout.
pub fn terminal_width() -> Option<usize> {
    let stdout = stdout();
    let size = terminal_size::terminal_size_of(&stdout).filter(|_| stdout.is_terminal());
    size.map(|(width, _)| usize::from(width.0).max(LEAST))
}

/// Width in columns below which a terminal wraps lines.
const LEAST: usize = 40;
