//! What a frame is known by: a hash of its name, file, lines and instruction.

use tprof_wire::hash::spread;
use tprof_wire::python::{self, Interpreter, Layout, Memory, RawFrame};

/// Offset of the type in every object.
const TYPE: u64 = 8;
/// Bytes of a string or table that are hashed whole; of longer ones, half of this at
/// either end.
const HASHED: u64 = 256;

/// Hashes of objects met in one walk, by address: most frames share their file with
/// others, some their code.
#[repr(C)]
pub struct Hashes([(u64, u64); HASHES]);

const HASHES: usize = 16;

impl Hashes {
    /// Forgets all: another walk begins.
    pub fn clear(&mut self) {
        self.0 = [(0, 0); HASHES];
    }

    /// The hash of an object, by `make` where it was not met yet.
    #[inline(always)]
    fn of(&mut self, object: u64, make: impl FnOnce(&mut Hashes) -> Option<u64>) -> Option<u64> {
        let place = (object >> 4 ^ object >> 12) as usize % HASHES;
        if let Some((at, hash)) = self.0.get(place)
            && *at == object
        {
            return Some(*hash);
        }
        let hash = make(self)?;
        if let Some(entry) = self.0.get_mut(place) {
            *entry = (object, hash);
        }
        Some(hash)
    }
}

/// Hash of a frame's content, bit 0 clear; 0 for the interpreter's own code, `None` for
/// what is no code.
pub fn key(
    memory: &mut impl Memory,
    interpreter: &Interpreter,
    hashes: &mut Hashes,
    raw: RawFrame,
) -> Option<u64> {
    let layout = &interpreter.layout;
    let code = hashes.of(raw.code, |hashes| {
        if memory.u64(raw.code.wrapping_add(TYPE))? != interpreter.code_type {
            return None;
        }
        let head = python::code(memory, layout, raw.code)?;
        if head.name == 0 {
            return Some(0);
        }
        let file = hashes.of(head.file, |_| text_hash(memory, layout, head.file))?;
        let name = text_hash(memory, layout, head.name)?;
        let hash = mix(mix(u64::from(head.first_line), file), name);
        Some(bytes_hash(memory, head.lines, head.lines_bytes, hash)?.max(1))
    })?;
    let at = python::offset(layout, raw.code, raw.instruction);
    Some(if code == 0 { 0 } else { mix(code, at) & !1 | 2 })
}

fn text_hash(memory: &mut impl Memory, layout: &Layout, object: u64) -> Option<u64> {
    let text = python::text(memory, layout, object)?;
    bytes_hash(memory, text.at, text.bytes, text.chars as u64)
}

/// Hashes bytes that begin at an aligned address: whole words, the last one without what
/// lies behind.
fn bytes_hash(memory: &mut impl Memory, at: u64, bytes: u64, hash: u64) -> Option<u64> {
    let mut hash = mix(hash, bytes);
    let words = bytes / 8;
    let mut word = 0;
    while word < words {
        if word == HASHED / 16 && words > HASHED / 8 {
            word = words - HASHED / 16;
        }
        hash = mix(hash, memory.u64(at.wrapping_add(word * 8))?);
        word += 1;
    }
    let rest = bytes % 8;
    if rest != 0 {
        let last = memory.u64(at.wrapping_add(words * 8))?;
        hash = mix(hash, last & ((1 << (rest * 8)) - 1));
    }
    Some(hash)
}

/// Mixes a word into a hash.
#[inline(always)]
pub fn mix(hash: u64, word: u64) -> u64 {
    let x = spread(hash ^ word);
    x ^ x >> 32
}
