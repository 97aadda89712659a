//! Writes the definition of each Python frame once: a record with its name, file and line.

use super::interpreter::interpreter;
use super::memory::OwnMemory;
use super::scratch::{PAYLOAD, PythonFrames, Scratch};
use crate::block::Thread;
use crate::{fork_tables, ring};
use tprof_wire::python::{self, FILE_BYTES, Layout, Memory, NAME_BYTES, RawFrame, Text, below};
use tprof_wire::record::ExtKind;
use tprof_wire::sync::{AtomicPtr, AtomicU64, Ordering::*};

/// Keys of the frames that are defined, in an open-addressing table. A thread claims an entry by
/// one compare-and-swap, and clears it again if the ring has no room for the record. The table is
/// empty in a forked child.
static DEFINED: AtomicPtr<AtomicU64> = AtomicPtr::new(core::ptr::null_mut());
const ENTRIES: usize = 1 << 17;
/// Number of entries that are tried before the table counts as full for a key.
const PROBES: usize = 16;

/// Maps the table, if it is not mapped yet.
pub fn prepare() {
    fork_tables::map(&DEFINED, ENTRIES * size_of::<AtomicU64>());
}

/// Writes the definitions of those frames of a stack that no thread has defined yet. A frame that
/// can't be read gets no definition, and the collector counts it as unnamed.
#[cold]
#[inline(never)]
pub fn define(thread: &Thread, scratch: &mut Scratch) {
    let Some(interpreter) = interpreter() else { return };
    let layout = &interpreter.layout;
    let Scratch { taken, kernel } = scratch;
    let PythonFrames { frames, keys, len, direct, payload, .. } = taken;
    for (raw, key) in frames.iter().zip(keys).take(*len) {
        let key = *key & !1;
        let Some(claimed) = claim(key) else { continue };
        let words = match direct {
            // SAFETY: the same premises as when the frames were taken, since the thread is still in
            // the same call.
            true => describe(&mut unsafe { OwnMemory::vouched() }, layout, *raw, key, payload),
            false => describe(kernel, layout, *raw, key, payload),
        };
        let clock = thread.clock();
        if let Some(payload) = words.and_then(|words| payload.get(..words))
            && !ring::ext(thread, ExtKind::PythonFrame, 0, clock, payload)
        {
            // Now the entry is free, so a key in one of the next entries may be defined a second
            // time, which is harmless.
            claimed.store(0, Release);
        }
    }
}

/// Claims the entry of a frame. From now on the frame counts as defined, so the caller must define
/// it. Returns `None` if it is defined already.
fn claim(key: u64) -> Option<&'static AtomicU64> {
    let table = DEFINED.load(Acquire);
    if table.is_null() {
        return None;
    }
    for probe in 0..PROBES {
        // SAFETY: the index is masked to the table's size, and the table is never unmapped.
        let entry = unsafe { &*table.add(((key >> 20) as usize + probe) & (ENTRIES - 1)) };
        let now = match entry.load(Relaxed) {
            0 => match entry.compare_exchange(0, key, AcqRel, Acquire) {
                Ok(_) => return Some(entry),
                Err(other) => other,
            },
            now => now,
        };
        if now == key {
            return None;
        }
    }
    None
}

/// Fills the payload of a frame's record. Returns its number of words.
fn describe(
    memory: &mut impl Memory,
    layout: &Layout,
    raw: RawFrame,
    key: u64,
    payload: &mut [u64; PAYLOAD],
) -> Option<usize> {
    let head = python::code(memory, layout, raw.code)?;
    let name = python::text(memory, layout, head.name)?;
    let file = python::text(memory, layout, head.file)?;
    let mut table = LineTable { memory: &mut *memory, at: head.lines, left: head.lines_bytes };
    let line = python::line(layout, raw.code, head.first_line, raw.instruction, &mut table);
    let sent_name = Text { bytes: name.bytes.min(NAME_BYTES as u64), ..name };
    // Of a long file name, only the last bytes are recorded, from an aligned one on.
    let skipped = file.bytes.saturating_sub(FILE_BYTES as u64).next_multiple_of(8);
    let sent_file = Text {
        at: file.at.wrapping_add(skipped),
        bytes: file.bytes - skipped.min(file.bytes),
        ..file
    };
    let [first, second, third, fourth, rest @ ..] = payload;
    *first = key;
    *second = u64::from(line) | (name.chars as u64) << 32 | (file.chars as u64) << 40;
    *third = sent_name.bytes | sent_file.bytes << 32;
    *fourth = name.bytes | file.bytes << 32;
    let name_words = copy(memory, sent_name, rest)?;
    let file_words = copy(memory, sent_file, rest.get_mut(name_words..)?)?;
    Some(4 + name_words + file_words)
}

/// Copies characters, padded with NULs to whole words. Returns the number of words.
fn copy(memory: &mut impl Memory, text: Text, to: &mut [u64]) -> Option<usize> {
    let words = text.bytes.div_ceil(8) as usize;
    for (at, word) in to.get_mut(..words)?.iter_mut().enumerate() {
        let left = text.bytes - 8 * at as u64;
        let whole = memory.u64(text.at.wrapping_add(8 * at as u64))?;
        *word = whole & below(left.min(8));
    }
    Some(words)
}

/// Iterates over the bytes of a line table, up to the first one that can't be read.
struct LineTable<'a, M: Memory> {
    memory: &'a mut M,
    at: u64,
    left: u64,
}

impl<M: Memory> Iterator for LineTable<'_, M> {
    type Item = u8;

    fn next(&mut self) -> Option<u8> {
        self.left = self.left.checked_sub(1)?;
        let byte = self.memory.u8(self.at);
        self.at = self.at.wrapping_add(1);
        byte
    }
}
