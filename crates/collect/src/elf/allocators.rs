//! Allocators that are linked into a file under names of their own, as a Rust program's
//! `#[global_allocator]` is: what goes through them never calls `malloc`.
//!
//! A file that was not stripped is judged by the functions that it defines, any other by
//! messages that the allocator carries.

use super::{Elf, Section, u16_at, u32_at};
use crate::modules::FileId;
use memchr::memmem;
use std::collections::HashMap;
use std::path::Path;

/// An allocator, and what shows that a file holds it.
struct Known {
    name: &'static str,
    /// Functions that it defines.
    functions: &'static [&'static str],
    /// Ends of names of such, where it may be built with any prefix.
    endings: &'static [&'static str],
    /// Beginning of a message of its own, in two halves: tprof holds no allocator.
    message: Option<[&'static str; 2]>,
}

/// From each project's header, and from the prefixes that others build it with:
/// `mimalloc.h`; `jemalloc.h` (`_rjem_` in tikv-jemalloc-sys, `je_` in Redis, `je_arrow_`
/// in Arrow); `gperftools/tcmalloc.h` and google/tcmalloc's `internal`; snmalloc's
/// `rust.cc`; `rpmalloc.h`.
const KNOWN: [Known; 5] = [
    Known {
        name: MIMALLOC,
        functions: &["mi_malloc", "mi_malloc_aligned", "_mi_malloc_generic"],
        endings: &[],
        message: Some(["mimalloc: ", "warning: "]),
    },
    Known {
        name: "jemalloc",
        functions: &["_rjem_malloc", "je_malloc"],
        endings: &["rallocx", "sdallocx"],
        message: Some(["<jemal", "loc>: "]),
    },
    Known {
        name: "tcmalloc",
        functions: &["tc_malloc", "TCMallocInternalMalloc"],
        endings: &[],
        message: Some(["tcmalloc: ", "large alloc "]),
    },
    Known {
        name: "snmalloc",
        functions: &["sn_rust_alloc", "sn_malloc"],
        endings: &[],
        message: None,
    },
    Known {
        name: "rpmalloc",
        functions: &["rpmalloc", "rpaligned_alloc"],
        endings: &[],
        message: None,
    },
];

impl Known {
    fn names(&self) -> impl Iterator<Item = &'static str> {
        self.functions.iter().chain(self.endings).copied()
    }

    fn defines(&self, name: &[u8]) -> bool {
        self.functions.iter().any(|function| name == function.as_bytes())
            || self.endings.iter().any(|ending| name.ends_with(ending.as_bytes()))
    }
}

const MIMALLOC: &str = "mimalloc";
/// CPython carries mimalloc from 3.13 on, and builds that keep the GIL don't use it.
const PYTHON: &str = "Py_BytesMain";
const PYTHON_WITHOUT_GIL: &str = "_Py_MergeZeroLocalRefcount";

const SHT_SYMTAB: u32 = 2;
const SHT_DYNSYM: u32 = 11;
const STT_FUNC: u8 = 2;
/// Longest table or text that is searched, which the collector has to hold.
const MOST_BYTES: u64 = 64 << 20;

impl Elf {
    /// The allocator that is linked into the file under names of its own; `None` if there is
    /// none that is known, or it stands in for `malloc`, which is another matter.
    pub fn linked_allocator(&self) -> Option<&'static str> {
        if self.exports("malloc") {
            return None;
        }
        let sections = self.sections();
        let tables = [SHT_SYMTAB, SHT_DYNSYM];
        let tables = tables.map(|kind| sections.iter().find(|section| section.kind == kind));
        let named = tables
            .into_iter()
            .flatten()
            .find_map(|table| self.defines_allocator(table, sections.get(table.link as usize)?));
        let stripped = tables[0].is_none();
        let found =
            named.or_else(|| stripped.then(|| self.carries_message(&sections)).flatten())?;
        let idle = found == MIMALLOC && self.exports(PYTHON) && !self.exports(PYTHON_WITHOUT_GIL);
        (!idle).then_some(found)
    }

    fn defines_allocator(&self, table: &Section, names: &Section) -> Option<&'static str> {
        let symbols = self.contents(table, MOST_BYTES).ok()?;
        let names = self.contents(names, MOST_BYTES).ok()?;
        // Most files hold none of the names, and need no look at each symbol.
        let held = |known: &&Known| {
            known.names().any(|name| memmem::find(&names, name.as_bytes()).is_some())
        };
        let known: Vec<&Known> = KNOWN.iter().filter(held).collect();
        if known.is_empty() {
            return None;
        }
        symbols.chunks_exact(24).find_map(|symbol| {
            if symbol[4] & 0xf != STT_FUNC || u16_at(symbol, 6) == 0 {
                return None;
            }
            let name = names.get(u32_at(symbol, 0) as usize..)?;
            let name = &name[..memchr::memchr(0, name)?];
            known.iter().find(|known| known.defines(name)).map(|known| known.name)
        })
    }

    fn carries_message(&self, sections: &[Section]) -> Option<&'static str> {
        let text = sections.iter().find(|section| section.name == ".rodata")?;
        let text = self.contents(text, MOST_BYTES).ok()?;
        let carries = |known: &&Known| {
            known
                .message
                .is_some_and(|halves| memmem::find(&text, halves.concat().as_bytes()).is_some())
        };
        KNOWN.iter().find(carries).map(|known| known.name)
    }
}

/// The allocators of files that were looked at.
#[derive(Debug, Default)]
pub struct Allocators {
    known: HashMap<FileId, Option<&'static str>>,
}

impl Allocators {
    /// The allocator that is linked into a file under names of its own.
    pub fn of(&mut self, path: &Path) -> Option<&'static str> {
        let identity = FileId::of(&std::fs::metadata(path).ok()?);
        let read = || Elf::open(path).ok()?.linked_allocator();
        *self.known.entry(identity).or_insert_with(read)
    }
}
