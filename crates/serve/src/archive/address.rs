//! Finds out which of the given paths is an archive.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use crate::failure::Failure;
use crate::runs::Registry;

/// A directory is an archive if it contains a directory of this name.
const COMMITS: &str = "_runs";

/// Location of an archive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    /// The location as an argument for `tprof-sql`. A path is absolute, so that the working
    /// directory does not matter.
    pub word: OsString,
    /// Whether the archive is in an object store, so that each query makes requests over the
    /// network.
    pub is_store: bool,
}

impl Address {
    /// Returns the archive among the given paths, or `None` if all of them are runs.
    ///
    /// Fails if an archive is given together with anything else. The error does not repeat the text
    /// after `://`, which could contain a secret.
    pub fn find_archive(paths: &[PathBuf]) -> Result<Option<Address>, Failure> {
        let is_archive = |path: &&PathBuf| is_address(path.as_os_str()) || is_archive(path);
        let archives = paths.iter().filter(is_archive).count();
        let what = match (archives, paths.len()) {
            (0, _) => return Ok(None),
            (1, 1) => return Address::of(&paths[0]).map(Some),
            (count, all) if count == all => "several archives are not shown together",
            _ => "an archive is not shown beside runs",
        };
        Err(Failure::misuse(
            what,
            "an archive has sums of ranks only, and its runs have IDs of their own: a list of \
             both would have columns and pages for some of them",
        )
        .hint("tprof serve ARCHIVE, and a second server for the others"))
    }

    /// Returns the number of runs that are in the archive's directory but not part of the archive.
    pub fn unarchived_runs(&self) -> usize {
        if self.is_store {
            return 0;
        }
        let found = Registry::of(&[PathBuf::from(&self.word)], "tprof serve DIR");
        let runs = found.map(|registry| registry.list().0).unwrap_or_default();
        // The archive's own directory `_runs` does not count, although it may look like a run: the
        // archive's file on a run called `run-1` is named like a `run.json` file.
        let is_own = |path: &Path| path.file_name().is_some_and(|name| name == COMMITS);
        runs.iter().filter(|run| !is_own(&run.entry.path)).count()
    }

    fn of(path: &Path) -> Result<Address, Failure> {
        if is_address(path.as_os_str()) {
            return Ok(Address { word: path.into(), is_store: true });
        }
        let found = path.canonicalize().map_err(|error| {
            Failure::new(format!("cannot read the archive `{}`", path.display()), error)
                .hint("a directory that you may read")
        })?;
        Ok(Address { word: found.into(), is_store: false })
    }
}

/// Whether a word is the address of a store.
fn is_address(word: &OsStr) -> bool {
    word.as_encoded_bytes().windows(3).any(|part| part == b"://")
}

fn is_archive(path: &Path) -> bool {
    path.join(COMMITS).is_dir()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_archive_is_distinguished_from_a_directory_of_runs() {
        let folder = tempfile::tempdir().unwrap();
        let (archive, runs) = (folder.path().join("a"), folder.path().join("r"));
        std::fs::create_dir_all(archive.join(COMMITS)).unwrap();
        std::fs::create_dir(&runs).unwrap();
        let among = |paths: &[&Path]| {
            Address::find_archive(&paths.iter().map(PathBuf::from).collect::<Vec<_>>())
        };
        assert_eq!(among(&[&runs, &runs]).unwrap(), None);
        let found = among(&[&archive]).unwrap().unwrap();
        assert!(!found.is_store && Path::new(&found.word).is_absolute());
        let store = Path::new("s3://jobs/tprof");
        let expected = Address { word: store.into(), is_store: true };
        assert_eq!(among(&[store]).unwrap(), Some(expected));
        assert!(among(&[store, &archive]).unwrap_err().what.contains("several archives"));
        std::fs::write(archive.join(COMMITS).join("run-1-00.json"), "{}").unwrap();
        assert_eq!(found.unarchived_runs(), 0);
        std::fs::create_dir(archive.join("r1")).unwrap();
        std::fs::write(archive.join("r1/run.json"), "{}").unwrap();
        assert_eq!(found.unarchived_runs(), 1);
        let mixed = among(&[Path::new("s3://key:secret@jobs"), &runs]).unwrap_err();
        assert!(mixed.what.contains("beside runs") && !mixed.to_string().contains("secret"));
    }
}
