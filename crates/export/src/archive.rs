//! Packs a directory of files into one tar archive, so that an export of several files can go to
//! stdout.
//!
//! Entries are sorted by name, and contain neither the time of the export nor the user. So the same
//! files always produce the same bytes.

use std::fs;
use std::io::{self, Write};
use std::path::Path;

use tar::{Builder, HeaderMode};

/// Writes the contents of `directory` as an archive whose top directory is `name`.
pub fn write(directory: &Path, name: &str, to: impl Write) -> io::Result<()> {
    let mut archive = Builder::new(to);
    archive.mode(HeaderMode::Deterministic);
    add(&mut archive, directory, Path::new(name))?;
    archive.into_inner()?.flush()
}

fn add(archive: &mut Builder<impl Write>, directory: &Path, name: &Path) -> io::Result<()> {
    archive.append_dir(name, directory)?;
    let mut entries = fs::read_dir(directory)?.collect::<io::Result<Vec<_>>>()?;
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        let (path, inside) = (entry.path(), name.join(entry.file_name()));
        match entry.file_type()?.is_dir() {
            true => add(archive, &path, &inside)?,
            false => archive.append_path_with_name(&path, &inside)?,
        }
    }
    Ok(())
}
