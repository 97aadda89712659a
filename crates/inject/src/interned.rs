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
use tprof_wire::interned::{self, KEPT_MOST, WORDS};
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
/// more than [`interned::KEPT_MOST`] bytes the rest is cut, which the definition states.
///
/// 0 for no bytes, and where the full ring refused the definition: it is defined at its next
/// occurrence. What finds no place in the table is defined again each time.
pub fn id(thread: &Thread, kind: ExtKind, bytes: &[u8]) -> u32 {
    if bytes.is_empty() {
        return 0;
    }
    if TABLE.load(Relaxed).is_null() && !thread.is_quiet() {
        prepare();
    }
    let table = TABLE.load(Acquire);
    if table.is_null() {
        return define(thread, kind, bytes);
    }
    let salt = if kind == ExtKind::Sizes { spread(kind as u64) } else { 0 };
    let hash = (hash(bytes) ^ salt).max(1);
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
    if kind == ExtKind::Text && bytes.len() > KEPT_MOST {
        ring::ext(thread, ExtKind::AgentNote, trouble::NAMES_CUT, clock, &[1, u64::from(id)]);
    }
    id
}

/// 64 bits of a text, never 0: two lanes of multiplications, so that a name of
/// hundreds of letters costs tens of nanoseconds.
pub fn hash(text: &[u8]) -> u64 {
    const A: u64 = GOLDEN;
    const B: u64 = 0xc2b2_ae3d_27d4_eb4f;
    let (mut a, mut b) = (A ^ text.len() as u64, B);
    let (chunks, rest) = text.as_chunks::<16>();
    for chunk in chunks {
        let (words, _) = chunk.as_chunks::<8>();
        if let [one, two] = words {
            a = (a ^ u64::from_le_bytes(*one)).wrapping_mul(A);
            a ^= a >> 32;
            b = (b ^ u64::from_le_bytes(*two)).wrapping_mul(B);
            b ^= b >> 32;
        }
    }
    for byte in rest {
        a = (a ^ u64::from(*byte)).wrapping_mul(B);
        a ^= a >> 29;
    }
    let mixed = (a ^ b.rotate_left(31)).wrapping_mul(A);
    (mixed ^ mixed >> 32).max(1)
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
