//! Finds allocators that are linked into a file under their own names, such as the
//! `#[global_allocator]` of a Rust program. tprof can't record their blocks, because they never
//! call `malloc`.
//!
//! In a file that was not stripped, an allocator is recognized by the functions that it defines. In
//! other files it is recognized by its messages.
//!
//! mimalloc, jemalloc, tcmalloc, snmalloc, rpmalloc and any global allocator of Rust that never
//! calls libc's are recognized. In a stripped file only the first three are. A library is examined
//! when its code has mapped 16 MiB, which is known only if stacks are taken. A preloaded or
//! dynamically linked `libjemalloc` or `libtcmalloc` isn't reported, because tprof interposes its
//! `malloc`.

use crate::ModuleFile;
use crate::elf::FileId;
use crate::elf::{Elf, Section, u16_at, u32_at};
use memchr::memmem;
use std::collections::HashMap;
use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;

/// An allocator, and how to recognize a file that contains it.
struct KnownAllocator {
    name: &'static str,
    /// Names of functions that the allocator defines.
    functions: &'static [&'static str],
    /// Ends of such names, if others build the allocator with a prefix of their own.
    endings: &'static [&'static str],
    /// The beginning of one of the allocator's messages. It is split into two halves, so that
    /// tprof's own file doesn't contain it.
    message: Option<[&'static str; 2]>,
}

/// The names come from each project's header, and from the prefixes with which others build it:
/// `mimalloc.h`; `jemalloc.h` (`_rjem_` in tikv-jemalloc-sys, `je_` in Redis, `je_arrow_` in
/// Arrow); `gperftools/tcmalloc.h` and google/tcmalloc's `internal`; snmalloc's `rust.cc`;
/// `rpmalloc.h`.
const KNOWN: [KnownAllocator; 5] = [
    KnownAllocator {
        name: MIMALLOC,
        functions: &["mi_malloc", "mi_malloc_aligned", "_mi_malloc_generic"],
        endings: &[],
        message: Some(["mimalloc: ", "warning: "]),
    },
    KnownAllocator {
        name: "jemalloc",
        functions: &["_rjem_malloc", "je_malloc"],
        endings: &["rallocx", "sdallocx"],
        message: Some(["<jemal", "loc>: "]),
    },
    KnownAllocator {
        name: "tcmalloc",
        functions: &["tc_malloc", "TCMallocInternalMalloc"],
        endings: &[],
        message: Some(["tcmalloc: ", "large alloc "]),
    },
    KnownAllocator {
        name: "snmalloc",
        functions: &["sn_rust_alloc", "sn_malloc"],
        endings: &[],
        message: None,
    },
    KnownAllocator {
        name: "rpmalloc",
        functions: &["rpmalloc", "rpaligned_alloc"],
        endings: &[],
        message: None,
    },
];

impl KnownAllocator {
    fn names(&self) -> impl Iterator<Item = &'static str> {
        self.functions.iter().chain(self.endings).copied()
    }

    fn defines(&self, name: &[u8]) -> bool {
        self.functions.iter().any(|function| name == function.as_bytes())
            || self.endings.iter().any(|ending| name.ends_with(ending.as_bytes()))
    }
}

const MIMALLOC: &str = "mimalloc";
/// CPython contains mimalloc from 3.13 on, but builds with the GIL don't allocate with it.
const PYTHON: &str = "Py_BytesMain";
const PYTHON_WITHOUT_GIL: &str = "_Py_MergeZeroLocalRefcount";

/// A section in files whose global allocator the crate `tprof` wraps (`crates/sdk/src/alloc.rs`).
/// That crate reports the allocator's calls, so they are recorded.
const REPORTS: &str = ".note.tprof.alloc";

/// What the report calls an unknown allocator of a Rust program.
const RUST: &str = "Rust's #[global_allocator]";
/// Rust's function that allocates, its default implementation, and the functions of libc that the
/// default implementation calls.
const RUST_ALLOC: &str = "__rust_alloc";
const RUST_DEFAULT: &str = "__rdl_alloc";
const RUST_TO_LIBC: [&str; 3] = ["posix_memalign", "aligned_alloc", "memalign"];

const SHT_SYMTAB: u32 = 2;
const SHT_DYNSYM: u32 = 11;
const STT_FUNC: u8 = 2;
/// Largest table or text that is searched, bytes. The collector has to hold it in memory.
const MAX_BYTES: u64 = 64 << 20;

impl Elf {
    /// Returns the names of the allocators that are linked into the file under their own names;
    /// `None` if none is recognized. Also `None` if the file replaces `malloc`, which is handled
    /// elsewhere, or if the calls to the allocator are reported by the crate `tprof`.
    pub fn linked_allocators(&self) -> Option<String> {
        if self.exports("malloc") {
            return None;
        }
        let sections = self.sections();
        if sections.iter().any(|section| section.name == REPORTS) {
            return None;
        }
        let [all, dynamic] =
            [SHT_SYMTAB, SHT_DYNSYM].map(|kind| Symbols::read(self, &sections, kind));
        let mut found: Vec<&str> = match all.as_ref().or(dynamic.as_ref()) {
            Some(symbols) => symbols.known_allocators(),
            None => Vec::new(),
        };
        match &all {
            Some(all) if found.is_empty() && all.has_rust_allocator(dynamic.as_ref()) => {
                found.push(RUST);
            }
            None if found.is_empty() => found = self.allocators_with_messages(&sections),
            _ => {}
        }
        if self.exports(PYTHON) && !self.exports(PYTHON_WITHOUT_GIL) {
            found.retain(|name| *name != MIMALLOC);
        }
        (!found.is_empty()).then(|| found.join(" and "))
    }

    fn allocators_with_messages(&self, sections: &[Section]) -> Vec<&'static str> {
        let text = sections.iter().find(|section| section.name == ".rodata");
        let text = text.and_then(|text| self.contents(text, MAX_BYTES).ok()).unwrap_or_default();
        let carries = |halves: [&str; 2]| memmem::find(&text, halves.concat().as_bytes()).is_some();
        let known = KNOWN.iter().filter(|known| known.message.is_some_and(carries));
        known.map(|known| known.name).collect()
    }
}

/// A symbol table of a file.
struct Symbols {
    symbols: Vec<u8>,
    names: Vec<u8>,
}

impl Symbols {
    fn read(elf: &Elf, sections: &[Section], kind: u32) -> Option<Symbols> {
        let table = sections.iter().find(|section| section.kind == kind)?;
        let names = sections.get(table.link as usize)?;
        let read = |section| elf.contents(section, MAX_BYTES).ok();
        Some(Symbols { symbols: read(table)?, names: read(names)? })
    }

    /// Whether any name in the table contains `part`. The symbol may be defined or only referred
    /// to.
    fn names_hold(&self, part: &str) -> bool {
        memmem::find(&self.names, part.as_bytes()).is_some()
    }

    /// Returns the names of the functions that the file defines.
    fn functions(&self) -> impl Iterator<Item = &[u8]> {
        self.symbols.chunks_exact(24).filter_map(|symbol| {
            if symbol[4] & 0xf != STT_FUNC || u16_at(symbol, 6) == 0 {
                return None;
            }
            let name = self.names.get(u32_at(symbol, 0) as usize..)?;
            name.get(..memchr::memchr(0, name)?)
        })
    }

    fn known_allocators(&self) -> Vec<&'static str> {
        // Most files contain none of the names, so looking for the names first saves examining each
        // symbol.
        let held = |known: &&KnownAllocator| known.names().any(|name| self.names_hold(name));
        let defined = |known: &&KnownAllocator| self.functions().any(|name| known.defines(name));
        KNOWN.iter().filter(held).filter(defined).map(|known| known.name).collect()
    }

    /// Whether Rust allocates from an allocator that never calls libc's. That is so if Rust's
    /// default implementation is absent and libc's functions for aligned allocation aren't
    /// imported. Every allocator that uses libc's needs these functions.
    fn has_rust_allocator(&self, dynamic: Option<&Symbols>) -> bool {
        let leads_to_libc =
            |names: &Symbols| RUST_TO_LIBC.iter().any(|name| names.names_hold(name));
        self.names_hold(RUST_ALLOC)
            && !self.names_hold(RUST_DEFAULT)
            && !dynamic.is_some_and(leads_to_libc)
            && self.functions().any(|name| name.ends_with(RUST_ALLOC.as_bytes()))
    }
}

/// Caches which allocators files contain.
#[derive(Debug, Default)]
pub struct Allocators {
    known: HashMap<FileId, Option<Arc<str>>>,
}

impl Allocators {
    /// Returns the allocators that are linked into a file under their own names.
    pub fn of(&mut self, file: File) -> Option<Arc<str>> {
        let identity = FileId::of(&file.metadata().ok()?);
        self.read(identity, || Elf::from_file(Arc::new(file)).ok())
    }

    /// The same for a module whose process may have ended.
    pub fn of_module(&mut self, module: &ModuleFile) -> Option<Arc<str>> {
        let paths = module.reached.iter().chain([&module.path]);
        let is_it = |path: &&PathBuf| {
            let about = std::fs::metadata(path.as_path());
            about.is_ok_and(|about| Some(FileId::of(&about)) == module.identity)
        };
        let path = paths.into_iter().find(is_it)?;
        self.read(module.identity?, || Elf::open(path).ok())
    }

    fn read(&mut self, identity: FileId, open: impl FnOnce() -> Option<Elf>) -> Option<Arc<str>> {
        let read = || open()?.linked_allocators().map(Arc::from);
        self.known.entry(identity).or_insert_with(read).clone()
    }
}
