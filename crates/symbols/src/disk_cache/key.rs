//! Identifies what the content of a cached file was computed from, and by which program.

use crate::elf::{Elf, FileId, build_id_in};
use nix::unistd::geteuid;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;

/// Lengths of build ids that are accepted, in hex digits. Linkers write 16 to 40.
const BUILD_ID: std::ops::RangeInclusive<usize> = 16..=128;

/// What a cached file contains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileKind {
    /// Unwind tables of a library.
    Rows,
    /// Functions of `.symtab`.
    Symbols,
    /// Functions of `.dynsym`.
    DynamicSymbols,
    /// Functions of the kernel's image.
    KernelSymbols,
    /// Functions, source files and lines of addresses.
    Places,
}

impl FileKind {
    /// Returns the suffix of a cached file's name.
    pub(super) fn suffix(self) -> &'static str {
        match self {
            FileKind::Rows => "rows",
            FileKind::Symbols => "symtab",
            FileKind::DynamicSymbols => "dynsym",
            FileKind::KernelSymbols => "kernel",
            FileKind::Places => "places",
        }
    }
}

/// Identifies a library or program regardless of its path, or the kernel.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LibraryKey {
    build_id: String,
    size: u64,
    mtime_ns: i128,
}

impl LibraryKey {
    /// Returns the key of an open file; `None` if it has no build id, or if other users than root
    /// and this one may change it.
    pub fn of(elf: &Elf) -> Option<LibraryKey> {
        let build_id = elf.build_id();
        let is_plain = build_id.bytes().all(|byte| byte.is_ascii_hexdigit());
        let meta = elf.file()?.metadata().ok()?;
        if !is_plain || !BUILD_ID.contains(&build_id.len()) || !is_safe(&meta) {
            return None;
        }
        let FileId { size, mtime_ns, .. } = FileId::of(&meta);
        Some(LibraryKey { build_id, size, mtime_ns })
    }

    /// Returns the key of the running kernel; `None` if it has no build id.
    pub fn of_kernel() -> Option<LibraryKey> {
        let build_id = build_id_in(&std::fs::read("/sys/kernel/notes").ok()?)?;
        Some(LibraryKey { build_id, size: 0, mtime_ns: 0 })
    }

    /// Returns the key as a cached file contains it.
    pub(super) fn text(&self, kind: FileKind, program: &str) -> String {
        let LibraryKey { build_id, size, mtime_ns } = self;
        let wire = tprof_wire::WIRE_VERSION;
        format!("{} {build_id} {size} {mtime_ns} by {program} wire {wire}", kind.suffix())
    }

    /// Returns the build id, in hex.
    pub(super) fn build_id(&self) -> &str {
        &self.build_id
    }
}

fn is_safe(meta: &Metadata) -> bool {
    let owner = meta.uid();
    meta.is_file() && (owner == 0 || owner == geteuid().as_raw()) && meta.mode() & 0o022 == 0
}

/// Returns what identifies this build of tprof. Another build may compute other content.
pub(super) fn this_program() -> Option<String> {
    let meta = std::fs::metadata("/proc/self/exe").ok()?;
    let FileId { size, mtime_ns, .. } = FileId::of(&meta);
    Some(format!("{} {size} {mtime_ns}", env!("CARGO_PKG_VERSION")))
}
