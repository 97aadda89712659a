//! Finds the next definition of a hooked function, like `dlsym(RTLD_NEXT)`. Unlike that, it doesn't
//! allocate, takes no locks, and needs no symbol version. (The version of `dlsym` is 2.34 on new
//! systems, and on old ones another library has it.)
//!
//! Objects are visited in load order through `dl_iterate_phdr`, once, when the library starts.

use crate::{arch, environment};
use core::ffi::{c_char, c_int, c_void};
use tprof_wire::sync::{AtomicU32, AtomicUsize, Ordering::Relaxed};

#[repr(C)]
pub(crate) struct ObjectInfo {
    bias: usize,
    name: *const c_char,
    headers: *const ProgramHeader,
    count: u16,
}

#[repr(C)]
pub(crate) struct ProgramHeader {
    kind: u32,
    flags: u32,
    offset: u64,
    address: u64,
    physical: u64,
    file_size: u64,
    memory_size: u64,
    align: u64,
}

#[repr(C)]
struct ElfSymbol {
    name: u32,
    info: u8,
    other: u8,
    section: u16,
    value: u64,
    size: u64,
}

/// Symbol type `STT_OBJECT`.
const VARIABLE: u8 = 1;
const FUNCTION: u8 = 2;

unsafe extern "C" {
    pub(crate) fn dl_iterate_phdr(
        callback: unsafe extern "C" fn(*mut ObjectInfo, usize, *mut c_void) -> c_int,
        data: *mut c_void,
    ) -> c_int;
}

impl ObjectInfo {
    fn headers(&self) -> &[ProgramHeader] {
        // SAFETY: in the loader's entry for a loaded object, these are the address and number of
        // its program headers.
        unsafe { core::slice::from_raw_parts(self.headers, self.count as usize) }
    }

    /// Whether an address is in one of the object's segments.
    pub(crate) fn holds(&self, address: usize) -> bool {
        self.headers().iter().any(|h| {
            let start = self.bias.wrapping_add(h.address as usize);
            h.kind == 1 && (start..start.wrapping_add(h.memory_size as usize)).contains(&address)
        })
    }

    /// The part of the object's file around an address that is mapped read-only, or that the loader
    /// makes read-only after relocation.
    pub(crate) fn readable(&self, address: usize) -> Option<&'static [u8]> {
        const LOAD: u32 = 1;
        const READ_ONLY_AT_LAST: u32 = 0x6474_e552; // PT_GNU_RELRO
        const READ: u32 = 4;
        const WRITE: u32 = 2;
        let stays = |h: &&ProgramHeader| match h.kind {
            LOAD => h.flags & (READ | WRITE) == READ,
            kind => kind == READ_ONLY_AT_LAST,
        };
        self.headers().iter().filter(stays).find_map(|header| {
            let start = self.bias.wrapping_add(header.address as usize);
            let bytes = header.file_size as usize;
            let holds = (start..start.wrapping_add(bytes)).contains(&address);
            // SAFETY: the loader mapped these bytes. They are read-only, or become so after
            // relocation, which changes no unwind information, since its addresses are relative.
            // The caller makes sure that the object stays loaded while it uses the slice.
            holds.then(|| unsafe { core::slice::from_raw_parts(start as *const u8, bytes) })
        })
    }

    /// Describes the object whose first mapping, which begins with its ELF header, is at `start`.
    /// Its addresses are those in its file plus `bias`. Also returns its entry point.
    ///
    /// # Safety
    /// An object is loaded at `start`.
    pub(crate) unsafe fn at(start: usize, bias: usize) -> Option<(ObjectInfo, usize)> {
        /// Bytes of a page, which must contain the ELF header and the program headers.
        const PAGE: usize = 4096;
        const MAGIC: u32 = u32::from_le_bytes(*b"\x7fELF");
        // SAFETY: the caller guarantees a loaded object, whose first page is mapped. The offsets
        // are those of an ELF64 header.
        let (magic, entry, place, bytes, count) = unsafe {
            (
                *(start as *const u32),
                *((start + 24) as *const u64) as usize,
                *((start + 32) as *const u64) as usize,
                *((start + 54) as *const u16) as usize,
                *((start + 56) as *const u16),
            )
        };
        let end = place.checked_add(usize::from(count) * size_of::<ProgramHeader>())?;
        let is_there = magic == MAGIC && bytes == size_of::<ProgramHeader>() && end <= PAGE;
        let headers = (start + place) as *const ProgramHeader;
        let info = ObjectInfo { bias, name: core::ptr::null(), headers, count };
        (is_there && place % align_of::<ProgramHeader>() == 0)
            .then_some((info, bias.wrapping_add(entry)))
    }

    /// The object's dynamic symbol table, if it has one.
    pub(crate) fn symbols(&self) -> Option<Object> {
        Object::read(self.bias, self.headers().iter().find(|h| h.kind == 2)?)
    }

    /// The object's path, as the loader stores it; empty for the program itself.
    pub(crate) fn path(&self) -> &[u8] {
        // SAFETY: in the loader's entries, names are null or NUL-terminated strings.
        unsafe { text(self.name.cast()) }
    }
}

/// Returns a NUL-terminated string without its NUL; an empty slice for null.
///
/// # Safety
/// `at` is null, or points at such a string that stays valid while the slice is used.
pub(crate) unsafe fn text<'a>(at: *const u8) -> &'a [u8] {
    if at.is_null() {
        return &[];
    }
    const BLOCK: usize = 16;
    let before = at as usize % BLOCK;
    let mut block = at.wrapping_sub(before);
    // SAFETY: the block is aligned, and contains the text's first byte, or its NUL if the text is
    // empty.
    let first = unsafe { arch::zeros(block) } >> before;
    if first != 0 {
        // SAFETY: `zeros` has found this many bytes before the first NUL.
        return unsafe { core::slice::from_raw_parts(at, first.trailing_zeros() as usize) };
    }
    loop {
        block = block.wrapping_add(BLOCK);
        // SAFETY: the blocks before contained no NUL, so the text continues in this aligned block,
        // at least with its NUL.
        let zeros = unsafe { arch::zeros(block) };
        if zeros != 0 {
            let bytes = block as usize - at as usize + zeros.trailing_zeros() as usize;
            // SAFETY: `zeros` has found this many bytes before the first NUL.
            return unsafe { core::slice::from_raw_parts(at, bytes) };
        }
    }
}

/// The last component of a path.
pub(crate) fn base_name(path: &[u8]) -> &[u8] {
    path.rsplit(|byte| *byte == b'/').next().unwrap_or(path)
}

/// A function to look up, and where to store its address.
pub struct Wanted {
    /// The function's name, NUL terminated.
    pub name: &'static [u8],
    /// Address of the next definition; 0 if there is none.
    pub address: &'static AtomicUsize,
    /// What a definition counts for that isn't libc's, nor of a library that stands in for libc.
    pub others: Others,
}

/// What the search does with a definition in a library that only has a function of the same name, as
/// one that calls its own `send` with arguments of its own.
pub enum Others {
    /// It is the next definition.
    Taken,
    /// It is the next definition, and the hook must be told.
    Marked(&'static AtomicU32),
    /// The search goes on.
    Skipped,
}

/// What the search learns about `malloc`, besides the addresses.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub struct MallocFacts {
    /// Set if an object before this library defines `malloc`, so that calls don't reach this
    /// library.
    pub malloc_before: bool,
    /// Set if the next `malloc` is glibc's own.
    pub malloc_is_glibc: bool,
}

struct NextDefinitions<'a> {
    wanted: &'a [Wanted],
    own: usize,
    after: bool,
    malloc: &'a [u8],
    found: MallocFacts,
}

/// Looks up each function in `wanted`: the next definition after the object that contains the
/// address `own`.
pub fn resolve(wanted: &[Wanted], own: usize) -> MallocFacts {
    let mut search = NextDefinitions {
        wanted,
        own,
        after: false,
        malloc: b"malloc\0",
        found: MallocFacts::default(),
    };
    // SAFETY: `visit` runs only during this call, and uses the data as the `NextDefinitions` that
    // it is.
    unsafe { dl_iterate_phdr(visit, (&raw mut search).cast()) };
    search.found
}

unsafe extern "C" fn visit(info: *mut ObjectInfo, _size: usize, data: *mut c_void) -> c_int {
    // SAFETY: `data` is the `NextDefinitions` that `resolve` passed; the loader's `info` is valid
    // during the callback.
    let (search, info) = unsafe { (&mut *data.cast::<NextDefinitions>(), &*info) };
    if info.holds(search.own) {
        search.after = true;
        return 0;
    }
    let Some(object) = info.symbols() else { return 0 };
    if !search.after {
        search.found.malloc_before |= object.find(search.malloc).is_some();
        return 0;
    }
    // Most libraries define none of the functions, and aren't asked this.
    let mut known = None;
    let mut is_libc = || {
        *known.get_or_insert_with(|| {
            object.find(b"__errno_location\0").is_some() || stands_in(info.path())
        })
    };
    for wanted in search.wanted {
        if wanted.address.load(Relaxed) != 0 {
            continue;
        }
        if let Some(address) = object.find(wanted.name) {
            match wanted.others {
                Others::Skipped if !is_libc() => continue,
                Others::Marked(mark) if !is_libc() => mark.store(1, Relaxed),
                _ => {}
            }
            wanted.address.store(address, Relaxed);
            if wanted.name == search.malloc {
                search.found.malloc_is_glibc = is_glibc(info.path());
            }
        }
    }
    0
}

/// Whether a library defines libc's functions to stand in for them, with the same arguments: one
/// that the program's user preloads, or the runtime of a sanitizer.
fn stands_in(path: &[u8]) -> bool {
    const RUNTIMES: [&[u8]; 6] =
        [b"libasan.", b"libtsan.", b"libhwasan.", b"liblsan.", b"libubsan.", b"libclang_rt."];
    let name = base_name(path);
    let preloaded = environment::variable("LD_PRELOAD").unwrap_or_default();
    RUNTIMES.iter().any(|runtime| name.starts_with(runtime))
        || preloaded.split(|byte| b": ".contains(byte)).any(|one| base_name(one) == name)
}

/// Whether a path's base name is that of glibc: `libc.so.6`, or formerly, for example,
/// `libc-2.17.so`.
fn is_glibc(path: &[u8]) -> bool {
    let name = base_name(path);
    name == b"libc.so.6" || name.starts_with(b"libc-2.")
}

/// The dynamic symbol table of a loaded object.
#[derive(Clone)]
pub(crate) struct Object {
    bias: usize,
    dynamic: *const [u64; 2],
    symbols: *const ElfSymbol,
    strings: *const u8,
    gnu_hash: *const u32,
    hash: *const u32,
    versions: *const u16,
}

impl Object {
    fn read(bias: usize, dynamic: &ProgramHeader) -> Option<Object> {
        let mut entry = bias.wrapping_add(dynamic.address as usize) as *const [u64; 2];
        let mut object = Object {
            bias,
            dynamic: entry,
            symbols: core::ptr::null(),
            strings: core::ptr::null(),
            gnu_hash: core::ptr::null(),
            hash: core::ptr::null(),
            versions: core::ptr::null(),
        };
        // glibc relocates these addresses in place; musl and the vDSO do not, so their values are
        // offsets.
        let place = |value: u64| -> usize {
            let value = value as usize;
            if value < bias { bias.wrapping_add(value) } else { value }
        };
        loop {
            // SAFETY: the dynamic section of a loaded object ends with DT_NULL, at which this loop
            // stops.
            let [tag, value] = unsafe { *entry };
            match tag {
                0 => break,
                4 => object.hash = place(value) as *const u32,
                5 => object.strings = place(value) as *const u8,
                6 => object.symbols = place(value) as *const ElfSymbol,
                0x6fff_fef5 => object.gnu_hash = place(value) as *const u32,
                0x6fff_fff0 => object.versions = place(value) as *const u16,
                _ => {}
            }
            // SAFETY: this entry isn't the last one, which has the tag 0.
            entry = unsafe { entry.add(1) };
        }
        (!object.symbols.is_null() && !object.strings.is_null()).then_some(object)
    }

    /// Calls `found` with each name in the dynamic section that has this tag: the libraries that
    /// the object needs (`NEEDED`), or the object's own name (`SONAME`).
    pub(crate) fn each_name(&self, tag: u64, mut found: impl FnMut(&'static [u8])) {
        let mut entry = self.dynamic;
        loop {
            // SAFETY: the dynamic section of a loaded object ends with DT_NULL, at which this loop
            // stops. The values of these two tags are offsets into the object's string table.
            unsafe {
                let [here, value] = *entry;
                if here == 0 {
                    break;
                }
                if here == tag {
                    found(text(self.strings.add(value as usize)));
                }
                entry = entry.add(1);
            }
        }
    }

    /// Address of the default version of the function `name` (NUL terminated), if the object
    /// defines it.
    pub(crate) fn find(&self, name: &[u8]) -> Option<usize> {
        self.find_of(name, FUNCTION)
    }

    /// Address of the variable `name`, with the same rules as [`Object::find`].
    pub(crate) fn find_variable(&self, name: &[u8]) -> Option<usize> {
        self.find_of(name, VARIABLE)
    }

    fn find_of(&self, name: &[u8], kind: u8) -> Option<usize> {
        let plain = &name[..name.len().saturating_sub(1)];
        if !self.gnu_hash.is_null() {
            self.find_gnu(name, plain, kind)
        } else if !self.hash.is_null() {
            self.find_sysv(name, plain, kind)
        } else {
            None
        }
    }

    fn find_gnu(&self, name: &[u8], plain: &[u8], kind: u8) -> Option<usize> {
        let mut hash = 5381u32;
        for byte in plain {
            hash = hash.wrapping_mul(33).wrapping_add(u32::from(*byte));
        }
        // SAFETY: DT_GNU_HASH consists of nbuckets, first symbol, bloom words and shift, then bloom
        // (u64), buckets, and chains that end with an odd value. The code below follows this
        // layout.
        unsafe {
            let buckets = *self.gnu_hash;
            let first = *self.gnu_hash.add(1);
            let bloom = *self.gnu_hash.add(2) as usize;
            if buckets == 0 {
                return None;
            }
            let bucket_table = self.gnu_hash.add(4 + bloom * 2);
            let chain_table = bucket_table.add(buckets as usize);
            let mut index = *bucket_table.add((hash % buckets) as usize);
            if index < first {
                return None;
            }
            loop {
                let value = *chain_table.add((index - first) as usize);
                if (value ^ hash) >> 1 == 0
                    && let Some(address) = self.check(index as usize, name, kind)
                {
                    return Some(address);
                }
                if value & 1 != 0 {
                    return None;
                }
                index += 1;
            }
        }
    }

    fn find_sysv(&self, name: &[u8], plain: &[u8], kind: u8) -> Option<usize> {
        let mut hash = 0u32;
        for byte in plain {
            hash = (hash << 4).wrapping_add(u32::from(*byte));
            let high = hash & 0xf000_0000;
            hash ^= high >> 24;
            hash &= !high;
        }
        // SAFETY: DT_HASH consists of nbuckets, nchains, buckets, and chains that end with 0. The
        // code below follows this layout.
        unsafe {
            let buckets = *self.hash;
            if buckets == 0 {
                return None;
            }
            let mut index = *self.hash.add(2 + (hash % buckets) as usize);
            while index != 0 {
                if let Some(address) = self.check(index as usize, name, kind) {
                    return Some(address);
                }
                index = *self.hash.add(2 + buckets as usize + index as usize);
            }
        }
        None
    }

    fn check(&self, index: usize, name: &[u8], kind: u8) -> Option<usize> {
        // SAFETY: `index` comes from the object's own hash table, so it is the index of a symbol.
        let symbol = unsafe { &*self.symbols.add(index) };
        const NOTYPE: u8 = 0;
        let of = symbol.info & 15;
        if symbol.section == 0 || !(of == NOTYPE || of == kind) || symbol.value == 0 {
            return None;
        }
        if !self.versions.is_null() {
            // SAFETY: the table has one version per symbol. (Bit 15 marks a version that isn't the
            // default.)
            let version = unsafe { *self.versions.add(index) };
            if version & 0x8000 != 0 {
                return None;
            }
        }
        // SAFETY: names in the string table are NUL terminated. The comparison stops at the first
        // difference, at the latest at the NUL.
        let same = unsafe {
            let text = self.strings.add(symbol.name as usize);
            let mut equal = true;
            for (i, byte) in name.iter().enumerate() {
                if *text.add(i) != *byte {
                    equal = false;
                    break;
                }
            }
            equal
        };
        same.then(|| self.bias.wrapping_add(symbol.value as usize))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_are_found_where_the_loader_finds_them() {
        static MALLOC: AtomicUsize = AtomicUsize::new(0);
        static NONE: AtomicUsize = AtomicUsize::new(0);
        let wanted = [
            Wanted { name: b"malloc\0", address: &MALLOC, others: Others::Skipped },
            Wanted { name: b"no_such_function_anywhere\0", address: &NONE, others: Others::Taken },
        ];
        let found =
            resolve(&wanted, functions_are_found_where_the_loader_finds_them as fn() as usize);
        unsafe extern "C" {
            fn malloc(bytes: usize) -> *mut c_void;
        }
        assert_eq!(MALLOC.load(Relaxed), malloc as *const () as usize);
        assert_eq!(NONE.load(Relaxed), 0);
        assert!(found.malloc_is_glibc);
        assert!(!found.malloc_before);
    }

    #[test]
    fn a_text_ends_at_its_nul_at_any_alignment() {
        for before in 0..33 {
            for length in 0..40 {
                let mut bytes = [b'x'; 80];
                bytes[before + length] = 0;
                // SAFETY: the bytes end with a NUL.
                let found = unsafe { text(bytes.as_ptr().add(before)) };
                assert_eq!(found, &bytes[before..before + length], "{before} {length}");
            }
        }
    }

    #[test]
    fn the_page_after_a_text_is_not_read() {
        const PAGE: usize = 4096;
        let pages = crate::sys::map_anonymous(2 * PAGE).unwrap();
        for length in 0..40 {
            // SAFETY: the first page is mapped for writing; the second is only made inaccessible,
            // and nothing uses it.
            let found = unsafe {
                assert!(crate::sys::protect(pages.add(PAGE), PAGE, 0));
                let at = pages.add(PAGE - 1 - length);
                at.write_bytes(b'x', length);
                text(at)
            };
            assert_eq!(found.len(), length);
        }
    }
}
