//! Interns texts and lists of sizes: records refer to names of kernels, calls, ranges and operators
//! by an id. Bytes that occurred before cost only a hash; new bytes cost a record that defines
//! them. As for stacks, the ids are in a lock-free open-addressing table with 64-bit hashes as
//! keys. The kernel zeroes the table in a forked child.
//!
//! ```text
//! let name = interned::id(thread, ExtKind::Name, b"forward"); // 0: not defined, see `id`
//! ring::quick(thread, kind, name, thread.clock(), payload);
//! ```
//!
//! The thread that first meets the bytes writes the definition into its ring. The collector may
//! meet the id earlier, in another thread's ring, and then waits for the definition. Interning
//! neither allocates nor locks, so it may run in a signal handler. The bytes need not outlive the
//! call.

use crate::block::Thread;
use crate::ring;
use crate::sys::{self, flags};
use tprof_wire::gpu::{pack_text, trouble};
use tprof_wire::hash::{GOLDEN, spread};
use tprof_wire::interned::{self, MAX_KEPT_BYTES, WORDS};
use tprof_wire::record::ExtKind;
use tprof_wire::sync::{AtomicPtr, AtomicU32, AtomicU64, Ordering::*};

/// Number of entries in the table. It takes 4 MiB of address space, of which only touched pages use
/// memory.
const PLACES: usize = 1 << 18;
/// Number of entries that are tried for a hash before the table counts as full.
const PROBES: usize = 32;

#[repr(C)]
struct InternedText {
    hash: AtomicU64,
    id: AtomicU64,
}

static TABLE: AtomicPtr<InternedText> = AtomicPtr::new(core::ptr::null_mut());
static NEXT: AtomicU32 = AtomicU32::new(1);

/// Maps the table, if it isn't mapped yet. [`id`] calls this at its first use. Kernels before 4.14
/// can't zero the table in a forked child, so a child there refers to ids that only its parent
/// defined.
#[cold]
pub fn prepare() {
    if !TABLE.load(Relaxed).is_null() {
        return;
    }
    let bytes = PLACES * size_of::<InternedText>();
    let Some(at) = sys::map_anonymous(bytes) else { return };
    // SAFETY: the memory was just mapped, and its users expect it to be zero in a forked child.
    unsafe { sys::advise(at, bytes, flags::MADV_WIPEONFORK) };
    if TABLE.compare_exchange(core::ptr::null_mut(), at.cast(), AcqRel, Relaxed).is_err() {
        // SAFETY: the memory was just mapped, and its address was not published.
        unsafe { sys::unmap(at, bytes) };
    }
}

/// The id of bytes of a kind: [`ExtKind::Name`], [`ExtKind::Sizes`], or the agent's
/// [`ExtKind::Text`]. All kinds in this library share one sequence of ids per process image. Bytes
/// beyond [`interned::MAX_KEPT_BYTES`] are cut off, and the definition says so.
///
/// Returns 0 if there are no bytes, or if the ring had no room for the definition; then the next
/// occurrence defines the bytes. Bytes for which the table is full are defined again each time.
pub fn id(thread: &Thread, kind: ExtKind, bytes: &[u8]) -> u32 {
    if bytes.is_empty() {
        return 0;
    }
    id_of(thread, kind, bytes, key(kind, bytes))
}

/// The key of bytes of a kind in the table: a hash, never 0.
#[inline]
pub fn key(kind: ExtKind, bytes: &[u8]) -> u64 {
    let salt = if kind == ExtKind::Sizes { spread(kind as u64) } else { 0 };
    (hash(bytes) ^ salt).max(1)
}

/// Like [`id`], for bytes with this [`key`]. The bytes must not be empty.
pub fn id_of(thread: &Thread, kind: ExtKind, bytes: &[u8], hash: u64) -> u32 {
    if TABLE.load(Relaxed).is_null() && !thread.is_quiet() {
        prepare();
    }
    let table = TABLE.load(Acquire);
    if table.is_null() {
        return define(thread, kind, bytes);
    }
    for probe in 0..PROBES {
        let at = (hash as usize).wrapping_add(probe) & (PLACES - 1);
        // SAFETY: `at` is below `PLACES`, the number of entries in the table.
        let entry = unsafe { &*table.add(at) };
        let mut seen = entry.hash.load(Acquire);
        if seen == 0 {
            seen = match entry.hash.compare_exchange(0, hash, AcqRel, Acquire) {
                Ok(_) => hash,
                Err(other) => other,
            };
        }
        if seen == hash {
            let known = entry.id.load(Acquire);
            if known != 0 {
                return known as u32;
            }
            // The bytes are new, or another thread is defining them, or a ring had no room for the
            // definition. If both threads define them, both ids are good, and the first one stays.
            let id = define(thread, kind, bytes);
            let _ = entry.id.compare_exchange(0, u64::from(id), AcqRel, Relaxed);
            return id;
        }
    }
    define(thread, kind, bytes)
}

#[cold]
#[inline(never)]
fn define(thread: &Thread, kind: ExtKind, bytes: &[u8]) -> u32 {
    let id = NEXT.fetch_add(1, Relaxed);
    let mut words = [0u64; WORDS];
    let used = match kind {
        ExtKind::Text => pack_text(bytes, &mut words),
        _ => interned::pack(bytes, &mut words),
    };
    let clock = thread.clock();
    if !ring::ext(thread, kind, id, clock, words.get(..used).unwrap_or(&words)) {
        return 0;
    }
    if kind == ExtKind::Text && bytes.len() > MAX_KEPT_BYTES {
        ring::ext(thread, ExtKind::AgentNote, trouble::NAMES_CUT, clock, &[1, u64::from(id)]);
    }
    id
}

/// A 64-bit hash of a text, never 0. Each 16 bytes cost one multiplication, and the two halves of
/// the product are combined (as in wyhash). So a name of hundreds of letters costs tens of
/// nanoseconds. The last 16 bytes are always hashed as a whole, even if some of them were hashed
/// before. A loop over a shorter rest would cost more than everything else, and its end is
/// mispredicted whenever the length changes.
#[inline]
pub fn hash(text: &[u8]) -> u64 {
    const A: u64 = GOLDEN;
    const B: u64 = 0xc2b2_ae3d_27d4_eb4f;
    const C: u64 = 0x1656_67b1_9e37_79f9;
    let mut state = B;
    let mut mix = |one: u64, two: u64| state = folded(one ^ A, two ^ state);
    if let Some(last) = text.last_chunk::<16>() {
        let (chunks, rest) = text.as_chunks::<16>();
        chunks.iter().for_each(|chunk| {
            let [one, two] = halves(chunk);
            mix(one, two);
        });
        if !rest.is_empty() {
            let [one, two] = halves(last);
            mix(one, two);
        }
    } else if let (Some(first), Some(last)) = (text.first_chunk(), text.last_chunk()) {
        mix(u64::from_le_bytes(*first), u64::from_le_bytes(*last));
    } else if let (Some(first), Some(last)) = (text.first_chunk(), text.last_chunk()) {
        mix(u32::from_le_bytes(*first).into(), u32::from_le_bytes(*last).into());
    } else if let ([first, ..], Some(middle), [.., last]) = (text, text.get(text.len() / 2), text) {
        mix(u64::from(*first) | u64::from(*middle) << 8, u64::from(*last));
    }
    folded(state ^ C, text.len() as u64 ^ A).max(1)
}

/// Multiplies, and combines both halves of the product into one word.
#[inline(always)]
fn folded(one: u64, two: u64) -> u64 {
    let product = u128::from(one) * u128::from(two);
    (product as u64) ^ (product >> 64) as u64
}

#[inline(always)]
fn halves(chunk: &[u8; 16]) -> [u64; 2] {
    let both = u128::from_le_bytes(*chunk);
    [both as u64, (both >> 64) as u64]
}

/// Forgets all ids, as in a forked child.
#[cfg(any(test, feature = "testing"))]
pub fn forget() {
    let table = TABLE.load(Acquire);
    for at in 0..if table.is_null() { 0 } else { PLACES } {
        // SAFETY: `at` is below `PLACES`, the number of entries in the table.
        let entry = unsafe { &*table.add(at) };
        entry.hash.store(0, Relaxed);
        entry.id.store(0, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn texts_that_differ_in_length_or_one_byte_have_different_hashes() {
        let mut seen = HashSet::new();
        let base = [b'k'; 70];
        for len in 0..base.len() {
            assert!(seen.insert(hash(&base[..len])));
            for at in 0..len {
                for byte in [0, b'a', 255] {
                    let mut other = base;
                    other[at] = byte;
                    assert!(seen.insert(hash(&other[..len])), "{len} {at} {byte}");
                }
            }
        }
    }

    use crate::testing::Attached;

    fn names(process: &Attached) -> usize {
        process.of_kind(process.thread(), ExtKind::Name).len()
    }

    #[test]
    fn a_text_is_defined_once_and_has_its_id_from_then_on() {
        let process = Attached::new();
        let thread = process.thread();
        let first = id(thread, ExtKind::Name, b"interned: one");
        assert!(first > 0);
        assert_eq!(id(thread, ExtKind::Name, b"interned: one"), first);
        assert_ne!(id(thread, ExtKind::Name, b"interned: other"), first);
        assert_eq!(names(&process), 2);
    }

    #[test]
    fn the_same_bytes_as_a_name_and_as_sizes_are_two_things() {
        let process = Attached::new();
        let thread = process.thread();
        let name = id(thread, ExtKind::Name, b"interned: both");
        assert_ne!(id(thread, ExtKind::Sizes, b"interned: both"), name);
        assert_eq!(process.of_kind(thread, ExtKind::Sizes).len(), 1);
    }

    #[test]
    fn no_bytes_have_no_id_and_no_definition() {
        let process = Attached::new();
        assert_eq!(id(process.thread(), ExtKind::Name, b""), 0);
        assert_eq!(names(&process), 0);
    }

    #[test]
    fn a_text_without_room_for_its_definition_is_defined_when_it_occurs_again() {
        let process = Attached::new();
        let thread = process.thread();
        process.set_free(0, 0);
        while ring::ext(thread, ExtKind::Map, 0, 0, &[0; 64]) {}
        let text = [b'q'; 400];
        assert_eq!(id(thread, ExtKind::Name, &text), 0);
        process.set_free(0, 1);
        let later = id(thread, ExtKind::Name, &text);
        assert!(later > 0);
        assert_eq!(id(thread, ExtKind::Name, &text), later);
        assert_eq!(names(&process), 1);
    }

    #[test]
    fn threads_that_meet_a_text_at_once_use_ids_that_are_all_defined() {
        let process = Attached::new();
        for round in 0..50 {
            let text = format!("interned: at once {round}");
            let meet = || {
                let thread = crate::gate::recording().unwrap();
                let id = id(thread, ExtKind::Name, text.as_bytes());
                let all = process.of_kind(thread, ExtKind::Name);
                (id, all.into_iter().map(|name| name.argument()).collect::<Vec<_>>())
            };
            let all: Vec<_> = std::thread::scope(|scope| {
                [(); 3].map(|()| scope.spawn(meet)).map(|thread| thread.join().unwrap()).into()
            });
            let is_defined = |id: &u32| all.iter().any(|(_, names)| names.contains(id));
            assert!(all.iter().all(|(id, _)| is_defined(id)), "{all:?}");
        }
    }
}
