//! Interns what records refer to by an id: names of kernels, calls, ranges and operators, lists
//! of sizes. One that occurred before costs its hash; a new one is a record. As stacks are: by
//! 64 bits of hash, in an open table without locks, which the kernel empties in a forked child.
//!
//! ```text
//! let name = interned::id(thread, ExtKind::Name, b"forward"); // 0: not defined, see `id`
//! ring::quick(thread, kind, name, thread.clock(), payload);
//! ```
//!
//! The definition is a record of the thread that met the bytes first; the reader of another
//! thread's ring may meet the id earlier, and waits for it. It neither allocates nor locks, may
//! run in a signal handler, and the bytes need not outlive the call.

use crate::block::Thread;
use crate::ring;
use crate::sys::{self, flags};
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering::*};
use tprof_wire::gpu::{pack_text, trouble};
use tprof_wire::hash::{GOLDEN, spread};
use tprof_wire::interned::{self, MAX_KEPT_BYTES, WORDS};
use tprof_wire::record::ExtKind;

/// Places of the table: 4 MiB of address space, touched as needed.
const PLACES: usize = 1 << 18;
/// Places tried before the table counts as full for a hash.
const PROBES: usize = 32;

#[repr(C)]
struct InternedText {
    hash: AtomicU64,
    id: AtomicU64,
}

static TABLE: AtomicPtr<InternedText> = AtomicPtr::new(core::ptr::null_mut());
static NEXT: AtomicU32 = AtomicU32::new(1);

/// Maps the table, if it is not yet. [`id`] does so where nothing did before; on kernels before
/// 4.14, which cannot empty it in a forked child, a child refers to ids of its parent's.
#[cold]
pub fn prepare() {
    if !TABLE.load(Relaxed).is_null() {
        return;
    }
    let bytes = PLACES * size_of::<InternedText>();
    let Some(at) = sys::map_anonymous(bytes) else { return };
    // SAFETY: just mapped; to be empty in a forked child is what its users expect.
    unsafe { sys::advise(at, bytes, flags::MADV_WIPEONFORK) };
    if TABLE.compare_exchange(core::ptr::null_mut(), at.cast(), AcqRel, Relaxed).is_err() {
        // SAFETY: just mapped, not published.
        unsafe { sys::unmap(at, bytes) };
    }
}

/// The id of some bytes of a kind: [`ExtKind::Name`], [`ExtKind::Sizes`], or the agent's
/// [`ExtKind::Text`]. Ids count through all kinds of this library's in this process image. Of
/// more than [`interned::MAX_KEPT_BYTES`] bytes the rest is cut, which the definition states.
///
/// 0 for no bytes, and where the full ring refused the definition: it is defined at its next
/// occurrence. What finds no place in the table is defined again each time.
pub fn id(thread: &Thread, kind: ExtKind, bytes: &[u8]) -> u32 {
    if bytes.is_empty() {
        return 0;
    }
    id_of(thread, kind, bytes, key(kind, bytes))
}

/// A hash that stands for some bytes of a kind, never 0.
#[inline]
pub fn key(kind: ExtKind, bytes: &[u8]) -> u64 {
    let salt = if kind == ExtKind::Sizes { spread(kind as u64) } else { 0 };
    (hash(bytes) ^ salt).max(1)
}

/// As [`id`], for bytes with this [`key`]; the bytes are not empty.
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
        // SAFETY: `at` is below PLACES.
        let entry = unsafe { &*table.add(at) };
        let mut seen = entry.hash.load(Acquire);
        if seen == 0 {
            match entry.hash.compare_exchange(0, hash, AcqRel, Acquire) {
                Ok(_) => {
                    let id = define(thread, kind, bytes);
                    entry.id.store(u64::from(id), Release);
                    return id;
                }
                Err(other) => seen = other,
            }
        }
        if seen == hash {
            let known = entry.id.load(Acquire);
            if known != 0 {
                return known as u32;
            }
            // Another thread defines it at this moment, or the ring had no room for it.
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

/// 64 bits of a text, never 0: a multiplication for each 16 bytes, both halves of its product
/// folded (as wyhash does), so that a name of hundreds of letters costs tens of nanoseconds. The
/// last 16 bytes are taken whole, also where some of them were taken before: a loop over what is
/// left costs more than the rest, and its end is mispredicted for each other length.
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

/// Both halves of a product, as one.
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn texts_that_differ_anywhere_have_other_hashes() {
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
}
