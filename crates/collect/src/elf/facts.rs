//! Properties of an ELF file, and which processes cannot be recorded because of them.

use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::file::{EM_NATIVE, ET_DYN, ET_EXEC, Elf, ElfError, PT_INTERP, PT_LOAD, Segment, open};

/// Symbols that limit what can be recorded if an executable defines them.
const SIGNIFICANT: [&str; 6] =
    ["malloc", "__asan_init", "__hwasan_init", "__lsan_init", "__msan_init", "__tsan_init"];

/// Properties of an ELF file.
#[derive(Clone, Debug)]
pub struct ElfFacts {
    /// Whether it is 64-bit and little-endian.
    pub is_64: bool,
    /// The header's `e_machine`.
    pub machine: u16,
    /// Whether it is an executable (position-independent or not), and not an object or a core file.
    pub loadable: bool,
    /// Program interpreter; `None` for static programs and libraries.
    pub interpreter: Option<PathBuf>,
    /// Names of the libraries that it needs.
    pub needed: Vec<String>,
    /// Its own name as a library (`DT_SONAME`).
    pub soname: Option<String>,
    /// Build id in hex; empty if it has none.
    pub build_id: String,
    /// Whether the set-user-id bit is set, with another owner than the user who runs tprof.
    pub setuid: bool,
    /// Whether the set-group-id bit is set, with another group than that of the user who runs
    /// tprof.
    pub setgid: bool,
    /// The load segments.
    pub segments: Vec<Segment>,
    exports: Vec<&'static str>,
}

impl ElfFacts {
    /// Whether the file exports `name`. This only works for `malloc` and the entry points of the
    /// sanitizers; for other names use [`Elf::exports`].
    pub fn exports(&self, name: &str) -> bool {
        self.exports.contains(&name)
    }
}

/// Reads the properties of a file. Does not follow scripts, libraries or debug links.
pub fn inspect(path: &Path) -> Result<ElfFacts, ElfError> {
    Ok(Elf::open(path)?.facts())
}

/// Returns what cannot be recorded of a program that is started from `path`, and why; `None` if
/// everything can. For a script, its interpreter is examined.
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
    // The loader has no interpreter either, but it preloads libraries when it is run by hand.
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

/// Returns why the allocations of a program or library with its own allocator cannot be recorded.
pub fn own_allocator(shown: &str, allocator: &str) -> String {
    format!("{shown} has its own allocator ({allocator}, linked statically)")
}

/// Follows `#!` lines as the kernel does; `None` if the chain is too long or unreadable.
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
    /// Returns the properties of the file. Those that cannot be read are left out.
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
        // Without the group's execute bit, set-group-id would mean mandatory locking.
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
