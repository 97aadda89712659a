//! Code that this thread's stacks met lately, with its hash.
//!
//! To hash a code's name, file and lines is most of what a frame costs; to see that they are what
//! they were is less. Python may free a code and make another one at its address: what is
//! remembered counts only where the code refers to the same objects, the strings have the same
//! hashes (of 64 bits over their contents), and the lines are the same.

use super::bytes::{HASHED, rest};
use tprof_wire::python::{CodeHead, Memory};

/// Codes that are remembered; a power of two.
const CODES: usize = 128;
/// Words of a table of lines that is remembered; longer ones are hashed each time, in part.
const WORDS: usize = (HASHED / 8) as usize;

/// One code. All zero: none, since no code lies at address 0.
#[repr(C)]
struct Code {
    /// Its address.
    at: u64,
    /// What [`super::key`] has for it.
    hash: u64,
    /// What it refers to: its name, its file, its lines.
    refers_to: [u64; 3],
    first_line: u64,
    lines_bytes: u64,
    /// Hashes of the name and the file.
    texts: [u64; 2],
    /// The lines' bytes behind the last whole word.
    rest: u64,
    words: [u64; WORDS],
}

/// A place for each code; the newer one displaces the older one.
#[repr(C)]
pub struct KnownCodes([Code; CODES]);

impl KnownCodes {
    /// The hash of a code at an address, with the hashes of its name and its file, if all that it is made of is as it was.
    #[inline(always)]
    pub fn hash(
        &self,
        memory: &mut impl Memory,
        at: u64,
        head: &CodeHead,
        texts: [u64; 2],
    ) -> Option<u64> {
        let code = self.0.get(place(at))?;
        let is_same = code.at == at
            && code.refers_to == [head.name, head.file, head.lines]
            && code.first_line == u64::from(head.first_line)
            && code.lines_bytes == head.lines_bytes
            && code.texts == texts
            && memory.has(head.lines, code.words.get(..(head.lines_bytes / 8) as usize)?)?
            && code.rest == rest(memory, head.lines, head.lines_bytes)?;
        is_same.then_some(code.hash)
    }

    /// Remembers a code, unless its lines are many.
    pub fn remember(
        &mut self,
        memory: &mut impl Memory,
        at: u64,
        head: &CodeHead,
        texts: [u64; 2],
        hash: u64,
    ) {
        // What is not whole is no code.
        let Some(code) = self.0.get_mut(place(at)) else { return };
        code.at = 0;
        let Some(words) = code.words.get_mut(..(head.lines_bytes / 8) as usize) else { return };
        for (index, word) in words.iter_mut().enumerate() {
            let Some(now) = memory.u64(head.lines.wrapping_add(8 * index as u64)) else { return };
            *word = now;
        }
        let Some(rest) = rest(memory, head.lines, head.lines_bytes) else { return };
        code.hash = hash;
        code.refers_to = [head.name, head.file, head.lines];
        code.first_line = u64::from(head.first_line);
        code.lines_bytes = head.lines_bytes;
        code.texts = texts;
        code.rest = rest;
        code.at = at;
    }
}

/// Where a code belongs.
#[inline(always)]
fn place(at: u64) -> usize {
    (at >> 4 ^ at >> 11) as usize % CODES
}

#[cfg(test)]
mod tests {
    use super::super::memory::Here;
    use super::*;

    fn head(lines: &[u64], lines_bytes: u64) -> CodeHead {
        CodeHead { name: 8, file: 16, first_line: 7, lines: lines.as_ptr() as u64, lines_bytes }
    }

    fn none() -> KnownCodes {
        let none = |_| Code {
            at: 0,
            hash: 0,
            refers_to: [0; 3],
            first_line: 0,
            lines_bytes: 0,
            texts: [0; 2],
            rest: 0,
            words: [0; WORDS],
        };
        KnownCodes(std::array::from_fn(none))
    }

    #[test]
    fn a_code_is_known_while_all_of_it_is_as_it_was() {
        let mut known = none();
        // SAFETY: only `lines` is read, which outlives it.
        let mut here = unsafe { Here::vouched() };
        let mut lines = vec![1, 2, 0xff03];
        // Two words and one byte.
        let same = head(&lines, 17);
        known.remember(&mut here, 4096, &same, [5, 6], 99);
        assert_eq!(known.hash(&mut here, 4096, &same, [5, 6]), Some(99));
        assert_eq!(known.hash(&mut here, 4096, &same, [5, 7]), None);
        assert_eq!(known.hash(&mut here, 4112, &same, [5, 6]), None);
        assert_eq!(known.hash(&mut here, 4096, &CodeHead { first_line: 8, ..same }, [5, 6]), None);
        assert_eq!(known.hash(&mut here, 4096, &CodeHead { name: 24, ..same }, [5, 6]), None);
        assert_eq!(
            known.hash(&mut here, 4096, &CodeHead { lines_bytes: 16, ..same }, [5, 6]),
            None
        );
        // Behind its last byte lies something else's.
        lines[2] = 0xee03;
        assert_eq!(known.hash(&mut here, 4096, &same, [5, 6]), Some(99));
        lines[2] = 0xff04;
        assert_eq!(known.hash(&mut here, 4096, &same, [5, 6]), None);
        lines[2] = 0xff03;
        lines[0] = 9;
        assert_eq!(known.hash(&mut here, 4096, &same, [5, 6]), None);
    }

    #[test]
    fn a_long_table_of_lines_is_not_remembered() {
        let mut known = none();
        // SAFETY: only `lines` is read, which outlives it.
        let mut here = unsafe { Here::vouched() };
        let lines = vec![3; WORDS + 1];
        let longest = head(&lines, 8 * WORDS as u64);
        known.remember(&mut here, 4096, &longest, [5, 6], 99);
        assert_eq!(known.hash(&mut here, 4096, &longest, [5, 6]), Some(99));
        let longer = head(&lines, 8 * WORDS as u64 + 8);
        known.remember(&mut here, 4096, &longer, [5, 6], 99);
        assert_eq!(known.hash(&mut here, 4096, &longer, [5, 6]), None);
    }
}
