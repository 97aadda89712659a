//! Finds the file behind a mapping, as the process that maps the file sees it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tprof_os::maps::Mapping;
use tprof_symbols::elf::{self, Elf, FileId, Segment};

/// A path that may lead to the mapped file.
pub(super) struct Candidate {
    pub path: PathBuf,
    /// Whether the path certainly leads to the file, because it is resolved as the process would.
    /// The inode isn't compared then: with overlay file systems it may differ from the one in
    /// `maps`.
    pub trusted: bool,
    /// Whether the path is in `map_files`, which only privileged processes may read.
    pub map_files: bool,
}

/// Returns paths that may lead to the file of a mapping, best first. `map_files` says whether to
/// include `/proc/PID/map_files`.
pub(super) fn candidates(pid: u32, mapping: &Mapping, map_files: bool) -> Vec<Candidate> {
    let candidate = |path: PathBuf, trusted| Candidate { path, trusted, map_files: false };
    let mut all = Vec::with_capacity(3);
    if !mapping.deleted && mapping.path.is_absolute() {
        let mut path = std::ffi::OsString::from(format!("/proc/{pid}/root"));
        path.push(&mapping.path);
        all.push(candidate(path.into(), true));
    }
    if map_files {
        let Mapping { start, end, .. } = mapping;
        let path = PathBuf::from(format!("/proc/{pid}/map_files/{start:x}-{end:x}"));
        all.push(Candidate { path, trusted: true, map_files: true });
    }
    if mapping.deleted {
        all.push(candidate(format!("/proc/{pid}/exe").into(), false));
    } else {
        all.push(candidate(mapping.path.clone(), false));
    }
    all
}

/// Opens a file; `None` if it doesn't have this identity or isn't an ELF file.
pub(super) fn reopen(path: &Path, identity: FileId) -> Option<Elf> {
    let file = elf::open(path).ok()?;
    if FileId::of(&file.metadata().ok()?) != identity {
        return None;
    }
    Elf::from_file(Arc::new(file)).ok()
}

/// Returns the ELF address of the byte at `offset` of a file; `None` if no segment with code
/// contains it.
pub(super) fn address_of(code: &[Segment], offset: u64) -> Option<u64> {
    const PAGE: u64 = 4096;
    code.iter()
        .filter(|s| {
            let first = s.offset / PAGE * PAGE;
            offset >= first && offset < s.offset.saturating_add(s.file_bytes)
        })
        .max_by_key(|s| s.offset)
        .map(|s| s.address.wrapping_sub(s.offset).wrapping_add(offset))
}
