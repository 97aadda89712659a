//! Places the injected libraries where jobs can load them.
//!
//! tprof's binary contains the libraries, so that one file is installed and versions always match.
//! If a library that is installed next to the binary is identical byte for byte, it is used.
//! Otherwise the embedded library is written into a directory to which others cannot write, and
//! which allows code to run. The file is never deleted, because processes of a job may outlive
//! tprof: if the library is missing when one starts, the loader prints an error to the job's
//! stderr.

use crate::launch::{caches, reach, system};
use nix::sys::resource::{Resource, getrlimit};
use std::ffi::{OsStr, OsString};
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use tprof_collect::HOOK_FILE;
use tprof_ui::errors::{Failure, reason, remedy};
use tprof_wire::env::{AGENT_LIBRARY, PRELOAD_LIBRARY};

/// Variable with the directory that holds the injected libraries.
pub const LIBRARY_DIR: &str = "TPROF_LIB_DIR";

/// A file that is embedded in tprof's binary.
#[derive(Debug)]
pub struct EmbeddedLibrary {
    name: &'static str,
    content: &'static [u8],
}

/// The preloaded library with the hooks.
pub static HOOKS: EmbeddedLibrary = EmbeddedLibrary {
    name: PRELOAD_LIBRARY,
    content: include_bytes!(concat!(env!("OUT_DIR"), "/libtprof_preload.so")),
};

/// The CUPTI agent.
pub static AGENT: EmbeddedLibrary = EmbeddedLibrary {
    name: AGENT_LIBRARY,
    content: include_bytes!(concat!(env!("OUT_DIR"), "/libtprof_cupti.so")),
};

/// The start-up hook of `--modules`, which Python runs.
pub static START_UP_HOOK: EmbeddedLibrary =
    EmbeddedLibrary { name: HOOK_FILE, content: include_bytes!("../../python/sitecustomize.py") };

/// Name of the directory with the libraries of this build. It contains their hash, so that no other
/// build uses it.
const EDITION: &str = concat!(env!("CARGO_PKG_VERSION"), "-", env!("TPROF_CARRIED_HASH"));

/// Name of the directory of libraries next to a run.
const BESIDE: &str = ".tprof";

/// A path that was tried, and the result.
#[derive(Debug)]
pub struct TriedPath {
    /// Path of the library in the tried directory.
    pub path: PathBuf,
    /// Why the library there cannot be used; `None` for the one that is used.
    pub refused: Option<String>,
}

/// Finds or writes a usable copy of a library. Returns its path, and all paths that were tried.
pub fn place(library: &EmbeddedLibrary) -> (Option<PathBuf>, Vec<TriedPath>) {
    let mut tried = Vec::new();
    if library.content.is_empty() {
        let path = PathBuf::from(library.name);
        tried.push(TriedPath {
            path,
            refused: Some("this build of tprof contains no such library".to_owned()),
        });
        return (None, tried);
    }
    let installed = installed_places().into_iter().map(|folder| (folder, false));
    for (folder, may_write) in
        installed.chain(writable_places().into_iter().map(|folder| (folder, true)))
    {
        let path = folder.join(library.name);
        let served = loadable_path(&path).and_then(|()| {
            if may_write { write_library(library, &path) } else { check(library, &path) }
        });
        match served {
            Ok(()) => {
                tried.push(TriedPath { path: path.clone(), refused: None });
                return (Some(path), tried);
            }
            Err(why) => tried.push(TriedPath { path, refused: Some(why) }),
        }
    }
    (None, tried)
}

/// Returns the path of a library for a job that may run on other hosts, which share the run's
/// directory. If those hosts may lack the path that [`path_of`] returns, writes the library next to
/// the run.
pub fn path_for(
    library: &EmbeddedLibrary,
    command: &[OsString],
    run: &Path,
) -> Result<PathBuf, Failure> {
    let usual = path_of(library);
    let is_found = |path: &PathBuf| !reach::may_be_missing(path, run);
    if !reach::reaches_other_hosts(command) || usual.as_ref().is_ok_and(is_found) {
        return usual;
    }
    let beside = run.parent().unwrap_or(run).join(BESIDE).join(EDITION).join(library.name);
    match loadable_path(&beside).and_then(|()| write_library(library, &beside)) {
        Ok(()) => Ok(beside),
        Err(_) => usual,
    }
}

/// Returns the path of a usable library on this host.
pub fn path_of(library: &EmbeddedLibrary) -> Result<PathBuf, Failure> {
    let (found, tried) = place(library);
    found.ok_or_else(|| {
        let line = |place: &TriedPath| {
            let why = place.refused.as_deref().unwrap_or_default();
            format!("{}: {why}", place.path.display())
        };
        let places: Vec<_> = tried.iter().map(line).collect();
        let name = library.name;
        let usual = "set XDG_CACHE_HOME to your own directory on a file system without noexec";
        let failure =
            Failure::new(format!("jobs cannot load {name} from any of the usual directories"))
                .cause(places.join("; "));
        match limit_for(library) {
            Some(limit) => failure.hint(remedy(&limit, usual)).limited_by(&limit),
            None => failure.hint(usual),
        }
    })
}

/// Returns an error if a limit of this process prevents it from writing a library in any directory.
fn limit_for(library: &EmbeddedLibrary) -> Option<io::Error> {
    let most = getrlimit(Resource::RLIMIT_FSIZE).map_or(u64::MAX, |(limit, _)| limit);
    let is_too_large = library.content.len() as u64 > most;
    let too_large = || is_too_large.then(|| io::Error::from_raw_os_error(libc::EFBIG));
    // Writing a library needs two descriptors at a time.
    let open = || File::open("/dev/null");
    open().and_then(|_first| open()).err().or_else(too_large)
}

/// Returns the directories where an installation may have put the libraries.
fn installed_places() -> Vec<PathBuf> {
    let mut places = Vec::new();
    if let Some(directory) = std::env::var_os(LIBRARY_DIR).filter(|text| !text.is_empty()) {
        places.push(std::path::absolute(&directory).unwrap_or_else(|_| directory.into()));
    }
    let binary = std::env::current_exe().ok();
    // The candidates are the binary's own directory, and `../lib/tprof` from there.
    let above = binary.iter().flat_map(|binary| binary.ancestors().skip(1).take(2));
    let below = ["", "lib/tprof"];
    places.extend(above.zip(below).map(|(directory, inside)| directory.join(inside)));
    places
}

/// Returns the directories where tprof may write the libraries. For root, the first is one that
/// every user can read, because a program that root starts may change its user and must still find
/// the library.
fn writable_places() -> Vec<PathBuf> {
    let mut places = Vec::new();
    let user = system::user();
    if user == 0 {
        places.push(PathBuf::from("/var/cache/tprof"));
    }
    places.extend(caches::own());
    if let Some(runtime) = caches::absolute("XDG_RUNTIME_DIR") {
        places.push(runtime.join("tprof-lib"));
    }
    for shared in ["/tmp", "/var/tmp", "/dev/shm"] {
        places.push(PathBuf::from(format!("{shared}/tprof-lib-{user}")));
    }
    places.into_iter().map(|place| place.join(EDITION)).collect()
}

/// Refuses a path with a blank or a colon, because the loader splits LD_PRELOAD there.
fn loadable_path(path: &Path) -> Result<(), String> {
    let bytes = path.as_os_str().as_bytes();
    if bytes.iter().any(|byte| matches!(byte, b':' | b' ' | b'\t' | b'\n')) {
        return Err("LD_PRELOAD cannot contain a path with a space or a colon".to_owned());
    }
    Ok(())
}

/// Checks that the file at `path` is the embedded library and that it can be loaded.
fn check(library: &EmbeddedLibrary, path: &Path) -> Result<(), String> {
    let meta = fs::symlink_metadata(path).map_err(|e| reason(&e))?;
    if !path.metadata().is_ok_and(|meta| meta.is_file()) {
        return Err("not a file".to_owned());
    }
    if meta.is_file() && meta.len() != library.content.len() as u64 {
        return Err("another version of the library".to_owned());
    }
    let file = File::open(path).map_err(|e| reason(&e))?;
    if fs::read(path).map_err(|e| reason(&e))? != library.content {
        return Err("another version of the library".to_owned());
    }
    if !system::allows_exec(&file) {
        return Err("the file system does not allow execution (noexec)".to_owned());
    }
    Ok(())
}

/// Writes the library to `path`, unless it is there already.
fn write_library(library: &EmbeddedLibrary, path: &Path) -> Result<(), String> {
    let edition = path.parent().unwrap_or(Path::new("/"));
    let ours = edition.parent().unwrap_or(Path::new("/"));
    // If the base directory is missing, it is the user's cache and is created with its parents. The
    // two directories in it are tprof's, and must not belong to anybody else.
    let base = ours.parent().unwrap_or(Path::new("/"));
    if !base.exists() {
        DirBuilder::new().recursive(true).mode(0o700).create(base).map_err(|e| reason(&e))?;
    }
    // A program that root starts may change its user, and the new user must be able to read the
    // library.
    let is_beside = ours.file_name() == Some(OsStr::new(BESIDE));
    let shared = path.starts_with("/var/cache") || is_beside && system::user() == 0;
    for directory in [ours, edition] {
        let mode = if shared { 0o755 } else { 0o700 };
        match DirBuilder::new().mode(mode).create(directory) {
            Err(e) if e.kind() != io::ErrorKind::AlreadyExists => return Err(reason(&e)),
            _ => closed_to_others(directory)?,
        }
    }
    if check(library, path).is_ok() {
        return Ok(());
    }
    let mode = if shared { 0o555 } else { 0o500 };
    let fresh = edition.join(format!(".{}.{}", library.name, std::process::id()));
    let _ = fs::remove_file(&fresh);
    let written = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(mode)
        .open(&fresh)
        .and_then(|mut file| file.write_all(library.content))
        .and_then(|()| fs::rename(&fresh, path));
    if let Err(e) = written {
        let _ = fs::remove_file(&fresh);
        return Err(reason(&e));
    }
    check(library, path).inspect_err(|_| {
        let _ = fs::remove_file(path);
    })
}

/// Refuses a directory in which others could replace the library. Each directory on the path must
/// belong to root or this user, and only they may write to it, unless the sticky bit protects the
/// entries of other owners.
fn closed_to_others(directory: &Path) -> Result<(), String> {
    let user = system::user();
    let real = directory.canonicalize().map_err(|e| reason(&e))?;
    for part in real.ancestors() {
        let meta = fs::symlink_metadata(part).map_err(|e| reason(&e))?;
        let part_name = part.display();
        if meta.uid() != user && meta.uid() != 0 {
            return Err(format!("{part_name} belongs to another user"));
        }
        let sticky = meta.mode() & 0o1000 != 0;
        if meta.mode() & 0o022 != 0 && !sticky {
            return Err(format!("other users may write to {part_name}"));
        }
    }
    let last = fs::symlink_metadata(directory).map_err(|e| reason(&e))?;
    if !last.is_dir() || last.uid() != user {
        return Err("a symbolic link, or the directory of another user".to_owned());
    }
    Ok(())
}

/// Removes tprof's libraries from a value of LD_PRELOAD. Inside a recorded job, the value contains
/// the outer recording's library. If it stayed, both libraries would record everything.
pub fn without_tprof_libraries(preload: &std::ffi::OsStr) -> std::ffi::OsString {
    let ours = |entry: &&[u8]| {
        entry.rsplit(|byte| *byte == b'/').next() == Some(PRELOAD_LIBRARY.as_bytes())
    };
    let bytes = preload.as_bytes();
    let entries: Vec<_> = bytes.split(|byte| matches!(byte, b':' | b' ')).collect();
    if !entries.iter().any(ours) {
        return preload.to_owned();
    }
    let kept: Vec<_> =
        entries.into_iter().filter(|entry| !ours(entry) && !entry.is_empty()).collect();
    std::ffi::OsStr::from_bytes(&kept.join(&b':')).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn other_preloads_are_kept() {
        let kept = |text: &str| without_tprof_libraries(OsStr::new(text));
        assert_eq!(kept("/a/libjemalloc.so /b/x.so"), "/a/libjemalloc.so /b/x.so");
        assert_eq!(kept("/q/libtprof_preload.so:/a/libjemalloc.so"), "/a/libjemalloc.so");
        assert_eq!(kept("/q/libtprof_preload.so"), "");
    }

    #[test]
    fn the_start_up_hook_has_its_marker_in_the_first_line() {
        assert!(START_UP_HOOK.content.starts_with(tprof_collect::HOOK_TITLE.as_bytes()));
    }

    fn place_in(directory: &Path) -> PathBuf {
        directory.join("ours").join(EDITION).join(PRELOAD_LIBRARY)
    }

    #[test]
    fn a_written_library_is_closed_to_others_and_written_once() {
        let directory = tempfile::tempdir().unwrap();
        let path = place_in(directory.path());
        write_library(&HOOKS, &path).unwrap();
        let first = path.metadata().unwrap();
        assert_eq!(first.mode() & 0o777, 0o500);
        assert_eq!(path.parent().unwrap().metadata().unwrap().mode() & 0o777, 0o700);
        write_library(&HOOKS, &path).unwrap();
        assert_eq!(path.metadata().unwrap().ino(), first.ino());
    }

    #[test]
    fn a_library_with_other_content_is_replaced() {
        let directory = tempfile::tempdir().unwrap();
        let path = place_in(directory.path());
        DirBuilder::new().recursive(true).mode(0o700).create(path.parent().unwrap()).unwrap();
        fs::write(&path, "stale").unwrap();
        write_library(&HOOKS, &path).unwrap();
        assert_eq!(fs::read(&path).unwrap(), HOOKS.content);
    }

    #[test]
    fn links_and_open_directories_are_refused() {
        let directory = tempfile::tempdir().unwrap();
        let elsewhere = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink(elsewhere.path(), directory.path().join("ours")).unwrap();
        assert!(write_library(&HOOKS, &place_in(directory.path())).is_err());
        assert_eq!(elsewhere.path().read_dir().unwrap().count(), 0);
        let open = directory.path().join("open");
        DirBuilder::new().mode(0o700).create(&open).unwrap();
        fs::set_permissions(&open, fs::Permissions::from_mode(0o777)).unwrap();
        assert!(write_library(&HOOKS, &place_in(&open)).is_err());
    }

    #[test]
    fn paths_that_the_loader_would_split_are_refused() {
        assert!(loadable_path(Path::new("/a b/lib.so")).is_err());
        assert!(loadable_path(Path::new("/a:b/lib.so")).is_err());
        assert!(loadable_path(Path::new("/ab/lib.so")).is_ok());
    }
}
