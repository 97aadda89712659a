//! What a frame is known by: a hash of its name, file, lines and instruction.

use super::bytes::{bytes_hash, mix};
use super::known::KnownCodes;
use tprof_wire::python::{self, Interpreter, Layout, Memory, RawFrame};

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
    known: &mut KnownCodes,
    raw: RawFrame,
) -> Option<u64> {
    let layout = &interpreter.layout;
    let code = hashes.of(raw.code, |hashes| {
        if memory.u64(raw.code.wrapping_add(layout.head() - 8))? != interpreter.code_type {
            return None;
        }
        let head = python::code(memory, layout, raw.code)?;
        if head.name == 0 {
            return Some(0);
        }
        // Python's own hash of a string is nearly always there for names: they are interned.
        let name = python::text_hash(memory, layout, head.name);
        let name = name.or_else(|| text_hash(memory, layout, head.name))?;
        let file = python::text_hash(memory, layout, head.file);
        let file =
            file.or_else(|| hashes.of(head.file, |_| text_hash(memory, layout, head.file)))?;
        let texts = [name, file];
        if let Some(hash) = known.hash(memory, raw.code, &head, texts) {
            return Some(hash);
        }
        let hash = mix(mix(u64::from(head.first_line), file), name);
        let hash = bytes_hash(memory, head.lines, head.lines_bytes, hash)?.max(1);
        known.remember(memory, raw.code, &head, texts, hash);
        Some(hash)
    })?;
    let at = python::offset(layout, raw.code, raw.instruction);
    Some(if code == 0 { 0 } else { mix(code, at) & !1 | 2 })
}

fn text_hash(memory: &mut impl Memory, layout: &Layout, object: u64) -> Option<u64> {
    let text = python::text(memory, layout, object)?;
    bytes_hash(memory, text.at, text.bytes, text.chars as u64)
}
