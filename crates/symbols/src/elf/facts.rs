//! Reads the properties of an ELF file, and tells what can't be recorded of a process that runs it.

use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::file::{EM_NATIVE, ET_DYN, ET_EXEC, Elf, ElfError, PT_INTERP, PT_LOAD, Segment, open};

/// Symbols that limit what can be recorded of an executable that defines them.
const SIGNIFICANT: [&str; 6] =
    ["malloc", "__asan_init", "__hwasan_init", "__lsan_init", "__msan_init", "__tsan_init"];

/// Properties of an ELF file.
#[derive(Clone, Debug)]
pub struct ElfFacts {
    /// Whether it is 64-bit and little-endian.
    pub is_64: bool,
    /// The header's `e_machine`.
    pub machine: u16,
    /// Whether the file is an executable or a library, and not an object file or a core file.
    pub loadable: bool,
    /// Path of the loader; `None` for static programs and for libraries.
    pub interpreter: Option<PathBuf>,
    /// Names of the libraries that the file needs.
    pub needed: Vec<String>,
    /// The file's own name as a library (`DT_SONAME`), if it has one.
    pub soname: Option<String>,
    /// Build id in hex; empty if the file has none.
    pub build_id: String,
    /// Whether the set-user-id bit is set and the owner isn't the user who runs tprof.
    pub setuid: bool,
    /// Whether the set-group-id bit is set and the group isn't that of the user who runs tprof.
    pub setgid: bool,
    /// The load segments.
    pub segments: Vec<Segment>,
    exports: Vec<&'static str>,
}

impl ElfFacts {
    /// Whether the file exports one of the `SIGNIFICANT` symbols: `malloc` or the entry point of
    /// a sanitizer. For other names use [`Elf::exports`].
    pub fn exports(&self, name: &str) -> bool {
        self.exports.contains(&name)
    }
}

/// Reads the properties of a file. Scripts are not followed to their interpreter.
pub fn inspect(path: &Path) -> Result<ElfFacts, ElfError> {
    Ok(Elf::open(path)?.facts())
}

/// Returns what can't be recorded of a program at `path`, and why; `None` if everything can. For a
/// script, the script's interpreter is examined.
pub fn blind_reason(path: &Path) -> Option<(&'static str, String)> {
    let program = resolve_script(path.to_path_buf())?;
    let shown = program.display();
    let facts = match inspect(&program) {
        Ok(facts) => facts,
        Err(ElfError::NotElf) | Err(ElfError::Io(_)) => return None,
        Err(e) => return Some(("everything", format!("{shown} {e}"))),
    };
    let all = |why: String| Some(("everything", why));
    if !facts.is_64 {
        return all(format!("{shown} is a 32-bit program"));
    }
    if facts.machine != EM_NATIVE {
        return all(format!("{shown} is built for another kind of processor"));
    }
    // A library that is run by hand, such as the loader, has no interpreter either, but preloading
    // works in it.
    if facts.interpreter.is_none() && facts.soname.is_none() {
        return all(format!("{shown} is statically linked"));
    }
    if facts.setuid || facts.setgid {
        return all(format!("{shown} is setuid or setgid, and such programs preload nothing"));
    }
    let sanitizers = ["libasan.", "libtsan.", "liblsan.", "libhwasan.", "libmsan."];
    if let Some(library) = facts.needed.iter().find(|n| sanitizers.iter().any(|s| n.starts_with(s)))
    {
        return all(format!(
            "{shown} is a sanitizer build ({library}), which insists on being first"
        ));
    }
    if let Some(symbol) = facts.exports.iter().find(|s| s.ends_with("_init")) {
        return all(format!(
            "{shown} is a sanitizer build ({symbol}), which insists on being first"
        ));
    }
    if facts.exports("malloc") {
        return Some(("allocations", format!("{shown} has its own malloc")));
    }
    let allocator = Elf::open(&program).ok()?.linked_allocators()?;
    Some(("allocations", own_allocator(&shown.to_string(), &allocator)))
}

/// Returns the reason why allocations of a program or library with its own allocator can't be
/// recorded.
pub fn own_allocator(shown: &str, allocator: &str) -> String {
    format!("{shown} has its own allocator ({allocator}, linked statically)")
}

/// Follows `#!` lines to the program that the kernel runs; `None` if there are too many or one
/// can't be read.
fn resolve_script(mut path: PathBuf) -> Option<PathBuf> {
    for _ in 0..5 {
        let mut head = [0u8; 256];
        let mut read = 0;
        let mut file = open(&path).ok()?;
        while read < head.len() {
            match file.read(&mut head[read..]).ok()? {
                0 => break,
                n => read += n,
            }
        }
        let Some(line) = head[..read].strip_prefix(b"#!") else {
            return Some(path);
        };
        let line = line.split(|b| *b == b'\n').next()?;
        let word = line.split(|b| matches!(b, b' ' | b'\t' | b'\r' | 0)).find(|w| !w.is_empty())?;
        path = PathBuf::from(std::ffi::OsStr::from_bytes(word));
    }
    None
}

impl Elf {
    /// Returns the properties of the file. A property that can't be read is left empty.
    pub fn facts(&self) -> ElfFacts {
        let dynamic = self.dynamic();
        let value = |tag: u64| dynamic.iter().find(|e| e.0 == tag).map(|e| e.1);
        let names = value(5).and_then(|address| self.offset_of(address));
        let name = |offset: u64| {
            let name = self.string(names?.checked_add(offset)?)?;
            Some(String::from_utf8_lossy(&name).into_owned())
        };
        let (setuid, setgid) = self.set_id_bits();
        ElfFacts {
            is_64: self.is_64,
            machine: self.machine,
            loadable: matches!(self.kind, ET_EXEC | ET_DYN),
            interpreter: self.interpreter(),
            needed: dynamic.iter().filter(|e| e.0 == 1).filter_map(|e| name(e.1)).collect(),
            soname: value(14).and_then(name),
            build_id: self.build_id(),
            setuid,
            setgid,
            segments: self.segments.iter().filter(|s| s.kind == PT_LOAD).copied().collect(),
            exports: SIGNIFICANT.into_iter().filter(|s| self.exports_among(s, &dynamic)).collect(),
        }
    }

    fn set_id_bits(&self) -> (bool, bool) {
        let Some(meta) = self.file().and_then(|f| f.metadata().ok()) else {
            return (false, false);
        };
        let me = std::fs::metadata("/proc/self").map(|m| (m.uid(), m.gid())).unwrap_or_default();
        let setuid = meta.mode() & 0o4000 != 0 && meta.uid() != me.0;
        // Without the execute permission of the group, the set-group-id bit means mandatory
        // locking.
        let setgid = meta.mode() & 0o2010 == 0o2010 && meta.gid() != me.1;
        (setuid, setgid)
    }

    fn interpreter(&self) -> Option<PathBuf> {
        let segment = self.segments.iter().find(|s| s.kind == PT_INTERP)?;
        let mut path = self.read_some(segment.offset, segment.file_bytes.min(4096));
        path.truncate(path.iter().position(|b| *b == 0).unwrap_or(path.len()));
        Some(PathBuf::from(std::ffi::OsStr::from_bytes(&path)))
    }
}
