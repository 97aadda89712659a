//! Stores the names of domains, categories and texts that a program registers through NVTX or ITT.
//! A handle is the address of a name. Names are never freed, and equal texts share one name. A
//! forked child inherits their memory, but each process assigns its own ids to them in its records.

use crate::block::Thread;
use crate::interned;
use crate::state::WIPED;
use crate::sys;
use core::ffi::c_char;
use tprof_wire::gpu::MAX_TEXT_BYTES;
use tprof_wire::hash::spread;
use tprof_wire::record::ExtKind;
use tprof_wire::sync::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering::*};

/// Longest text that is stored, in bytes.
pub const MESSAGE_MOST: usize = MAX_TEXT_BYTES;

/// Bytes for all names together. This is address space, of which only touched pages use memory.
const BYTES: usize = 16 << 20;
/// Number of entries in the table that finds the name of a text.
const PLACES: usize = 1 << 14;
/// Number of entries that are tried. If all are used for other texts, the text counts as new.
const PROBES: usize = 16;
/// Maximum number of categories that can be named.
const CATEGORIES: usize = 1 << 12;

static ARENA: AtomicPtr<u8> = AtomicPtr::new(core::ptr::null_mut());
/// Offset of the next name. The first bytes stay free, so that no name has offset 0.
static USED: AtomicUsize = AtomicUsize::new(64);
static DOMAINS: AtomicU32 = AtomicU32::new(1);

struct NameSlot {
    hash: AtomicU64,
    at: AtomicUsize,
}
static KNOWN: [NameSlot; PLACES] =
    [const { NameSlot { hash: AtomicU64::new(0), at: AtomicUsize::new(0) } }; PLACES];
/// For each named category, a key made of its domain and number, and the name.
static CATEGORY: [NameSlot; CATEGORIES] =
    [const { NameSlot { hash: AtomicU64::new(0), at: AtomicUsize::new(0) } }; CATEGORIES];

/// What a name belongs to. A domain and a text with the same name have different names here.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum NameKind {
    /// A domain. Domains of the same name are the same domain.
    Domain,
    /// Anything other than a domain.
    Text,
}

/// A name. The bytes of its text and a zero follow in memory.
#[repr(C, align(8))]
pub struct Name {
    /// The id in the low half, and in the high half the low bits of the process's generation when
    /// the name got the id. In a forked child, the generation differs, so the id is not valid
    /// there.
    known: AtomicU64,
    /// Number of the domain, from 1, if this is the name of one; otherwise 0.
    domain: AtomicU32,
    len: u32,
}

/// Reserves the memory for names. Returns false if the kernel refuses it.
pub fn prepare() -> bool {
    if !ARENA.load(Acquire).is_null() {
        return true;
    }
    let Some(at) = sys::map_anonymous(BYTES) else { return false };
    // SAFETY: the memory was just mapped, and the advice doesn't change its contents.
    unsafe { sys::advise(at, BYTES, sys::flags::MADV_DONTDUMP) };
    if ARENA.compare_exchange(core::ptr::null_mut(), at, AcqRel, Acquire).is_err() {
        // SAFETY: the memory was just mapped, and its address was not published.
        unsafe { sys::unmap(at, BYTES) };
    }
    true
}

/// The name with this handle; `None` for null, and for an address where there can't be a name.
#[expect(clippy::not_unsafe_ptr_arg_deref, reason = "only addresses in the arena are read")]
pub fn of_handle(handle: *const Name) -> Option<&'static Name> {
    let arena = ARENA.load(Acquire);
    let at = (handle as usize).wrapping_sub(arena as usize);
    if arena.is_null()
        || !(64..USED.load(Acquire).min(BYTES)).contains(&at)
        || !at.is_multiple_of(8)
    {
        return None;
    }
    // SAFETY: the address is in the arena and is aligned. Names there are never moved or freed. All
    // of the arena is readable, so even a wrong handle reads valid memory, and any bytes are valid
    // in all fields.
    Some(unsafe { &*handle })
}

/// The name of a text. Makes a new name if the text has none yet. Returns `None` if there is no
/// room for it.
pub fn name(kind: NameKind, text: &[u8]) -> Option<&'static Name> {
    let text = text.get(..MESSAGE_MOST).unwrap_or(text);
    let salt = if kind == NameKind::Domain { 0x5bd1_e995_0000_0000 } else { 0 };
    let hash = (interned::hash(text) ^ salt).max(1);
    for probe in 0..PROBES {
        let place = KNOWN.get((hash as usize).wrapping_add(probe) & (PLACES - 1))?;
        let mut seen = place.hash.load(Acquire);
        if seen == 0 {
            seen = match place.hash.compare_exchange(0, hash, AcqRel, Acquire) {
                Ok(_) => hash,
                Err(other) => other,
            };
        }
        if seen == hash {
            let known = place.at.load(Acquire);
            if known != 0 {
                return of_handle(known as *const Name);
            }
            // If threads make the name at the same time, the first one stays: a domain has one
            // number in a process.
            let made = make(kind, text)?;
            let at = core::ptr::from_ref(made) as usize;
            return match place.at.compare_exchange(0, at, AcqRel, Acquire) {
                Ok(_) => Some(made),
                Err(first) => of_handle(first as *const Name),
            };
        }
    }
    make(kind, text)
}

/// Reserves zeroed memory, rounded up to a multiple of 8 bytes, which is never freed. Once a
/// request doesn't fit, this returns `None` from then on.
pub fn reserve(bytes: usize) -> Option<*mut u8> {
    let arena = ARENA.load(Acquire);
    if arena.is_null() || USED.load(Relaxed) > BYTES {
        return None;
    }
    let bytes = bytes.next_multiple_of(8);
    let at = USED.fetch_add(bytes, AcqRel);
    // SAFETY: the reserved bytes are in the arena.
    (at + bytes <= BYTES).then(|| unsafe { arena.add(at) })
}

fn make(kind: NameKind, text: &[u8]) -> Option<&'static Name> {
    let at = reserve(size_of::<Name>() + text.len() + 1)?;
    let domain = if kind == NameKind::Domain { DOMAINS.fetch_add(1, Relaxed) } else { 0 };
    let head = Name {
        known: AtomicU64::new(0),
        domain: AtomicU32::new(domain),
        len: u32::try_from(text.len()).ok()?,
    };
    // SAFETY: `reserve` returned this many bytes, aligned to 8, for this caller only.
    unsafe {
        let name = at.cast::<Name>();
        core::ptr::copy_nonoverlapping(text.as_ptr(), name.add(1).cast::<u8>(), text.len());
        name.write(head);
        Some(&*name)
    }
}

impl Name {
    /// The id by which this process's records refer to the name.
    pub fn id(&self, thread: &Thread) -> u32 {
        let generation = WIPED.generation.load(Relaxed);
        let known = self.known.load(Acquire);
        if known >> 32 == generation & 0xffff_ffff && known as u32 != 0 {
            return known as u32;
        }
        let id = interned::id(thread, ExtKind::Text, self.text());
        if id == 0 {
            // There was no room for the definition, so the next record defines the text.
            return 0;
        }
        let fresh = generation << 32 | u64::from(id);
        // If two threads assign an id at the same time, the first stored id is used, since a domain
        // must have one id in a process.
        match self.known.compare_exchange(known, fresh, AcqRel, Acquire) {
            Ok(_) => id,
            Err(other) if other >> 32 == generation & 0xffff_ffff => other as u32,
            Err(_) => id,
        }
    }

    /// Number of the domain, from 1, if this is the name of one; otherwise 0.
    pub fn domain(&self) -> u32 {
        self.domain.load(Relaxed)
    }

    /// Address of the text, which ends with a zero.
    pub fn c_text(&self) -> *const c_char {
        core::ptr::from_ref(self).wrapping_add(1).cast()
    }

    /// The text, without the zero that ends it.
    pub fn text(&self) -> &[u8] {
        let arena = ARENA.load(Acquire) as usize;
        let at = core::ptr::from_ref(self) as usize + size_of::<Name>();
        // If a wrong handle led here, the length may be any number, so it is limited to the rest of
        // the arena.
        let room = (arena + BYTES).saturating_sub(at);
        // SAFETY: the range is in the arena, all of which is mapped.
        unsafe { core::slice::from_raw_parts(at as *const u8, (self.len as usize).min(room)) }
    }
}

fn key(domain: Option<&Name>, category: u32) -> u64 {
    let arena = ARENA.load(Relaxed) as usize;
    let domain = domain.map_or(0, |name| (core::ptr::from_ref(name) as usize).wrapping_sub(arena));
    ((domain as u64) << 32 | u64::from(category)).wrapping_add(1)
}

fn places(key: u64) -> impl Iterator<Item = &'static NameSlot> {
    let first = (spread(key) >> 40) as usize;
    (0..PROBES).filter_map(move |probe| CATEGORY.get((first + probe) & (CATEGORIES - 1)))
}

/// Stores the name of a category of a domain. If there is no room, the category is only known by
/// its number.
pub fn name_category(domain: Option<&Name>, category: u32, text: &[u8]) {
    let Some(name) = name(NameKind::Text, text) else { return };
    let key = key(domain, category);
    for place in places(key) {
        let seen = place.hash.compare_exchange(0, key, AcqRel, Acquire);
        if seen.is_ok() || seen == Err(key) {
            place.at.store(core::ptr::from_ref(name) as usize, Release);
            return;
        }
    }
}

/// The name of a category, if it has one.
pub fn of_category(domain: Option<&Name>, category: u32) -> Option<&'static Name> {
    let key = key(domain, category);
    let place = places(key).find(|place| place.hash.load(Acquire) == key)?;
    of_handle(place.at.load(Acquire) as *const Name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_has_one_name_and_a_domain_of_that_text_another() {
        assert!(prepare());
        let one = name(NameKind::Text, b"forward").unwrap();
        assert!(std::ptr::eq(one, name(NameKind::Text, b"forward").unwrap()));
        let domain = name(NameKind::Domain, b"forward").unwrap();
        assert!(!std::ptr::eq(one, domain));
        assert_eq!((one.domain(), domain.domain() > 0), (0, true));
        assert_eq!((one.text(), domain.text()), (&b"forward"[..], &b"forward"[..]));
        assert!(std::ptr::eq(of_handle(one).unwrap(), one));
    }

    #[test]
    fn handles_that_cannot_be_names_are_refused() {
        assert!(prepare());
        assert!(of_handle(std::ptr::null()).is_none());
        assert!(of_handle(std::ptr::dangling()).is_none());
        let one = name(NameKind::Text, b"handle").unwrap();
        assert!(of_handle((std::ptr::from_ref(one) as usize + 1) as *const Name).is_none());
        assert!(of_handle((std::ptr::from_ref(one) as usize + BYTES) as *const Name).is_none());
    }

    #[test]
    fn a_category_is_named_per_domain_and_can_be_renamed() {
        assert!(prepare());
        let domain = name(NameKind::Domain, b"of categories").unwrap();
        name_category(None, 7, b"seven");
        name_category(Some(domain), 7, b"other seven");
        let text = |domain, number| of_category(domain, number).map(Name::text);
        assert_eq!(text(None, 7), Some(&b"seven"[..]));
        assert_eq!(text(Some(domain), 7), Some(&b"other seven"[..]));
        assert_eq!(text(None, 8), None);
        name_category(None, 7, b"another");
        assert_eq!(text(None, 7), Some(&b"another"[..]));
    }

    #[test]
    fn a_text_that_is_too_long_is_cut_and_ends_with_a_zero() {
        assert!(prepare());
        let long = vec![b'x'; MESSAGE_MOST + 9];
        let one = name(NameKind::Text, &long).unwrap();
        assert_eq!(one.text().len(), MESSAGE_MOST);
        assert!(std::ptr::eq(one, name(NameKind::Text, &long[..MESSAGE_MOST]).unwrap()));
        // SAFETY: the text of a name ends with a zero.
        let c_text = unsafe { std::ffi::CStr::from_ptr(one.c_text()) };
        assert_eq!(c_text.to_bytes(), one.text());
    }

    #[test]
    fn reserved_memory_is_aligned_zeroed_and_nobody_elses() {
        assert!(prepare());
        let [first, second] = [3, 8].map(|bytes| reserve(bytes).unwrap());
        assert!(first.addr().is_multiple_of(8) && second.addr() >= first.addr() + 8);
        // SAFETY: the memory was reserved by this test.
        assert_eq!(unsafe { (first.cast::<u64>().read(), second.cast::<u64>().read()) }, (0, 0));
    }

    #[test]
    fn each_process_defines_a_name_once() {
        let process = crate::testing::Attached::new();
        interned::forget();
        assert!(prepare());
        let one = name(NameKind::Domain, b"of a process").unwrap();
        let id = one.id(process.thread());
        assert_eq!((one.id(process.thread()), id != 0), (id, true));
        let texts = |process: &crate::testing::Attached| {
            process.of_kind(process.thread(), tprof_wire::record::ExtKind::Text).len()
        };
        assert_eq!(texts(&process), 1);
        drop(process);
        let child = crate::testing::Attached::new();
        interned::forget();
        assert_ne!(one.id(child.thread()), 0);
        assert_eq!(texts(&child), 1);
    }

    #[test]
    fn a_name_without_room_for_its_definition_is_defined_later() {
        let process = crate::testing::Attached::new();
        interned::forget();
        assert!(prepare());
        let thread = process.thread();
        process.set_free(0, 0);
        thread.slot().filled_chunks.store(tprof_wire::region::CHUNKS_PER_THREAD, SeqCst);
        let limit = thread.limit.get();
        thread.limit.set(0);
        let one = name(NameKind::Text, b"without room").unwrap();
        assert_eq!(one.id(thread), 0);
        thread.slot().filled_chunks.store(0, SeqCst);
        thread.limit.set(limit);
        assert_ne!(one.id(thread), 0);
    }
}
