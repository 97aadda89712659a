//! Frames and strings of interpreters without the GIL, in fake memory with the same layout.

extern crate std;

use super::*;
use std::collections::BTreeMap;
use std::vec;
use std::vec::Vec;

/// Memory as words by address.
#[derive(Default)]
struct Words(BTreeMap<u64, u64>);

impl Words {
    fn put(&mut self, at: u64, words: &[u64]) {
        for (place, word) in words.iter().enumerate() {
            self.0.insert(at + 8 * place as u64, *word);
        }
    }
}

impl Memory for Words {
    fn u64(&mut self, at: u64) -> Option<u64> {
        self.0.get(&at).copied()
    }

    fn u32(&mut self, at: u64) -> Option<u32> {
        Some((self.u64(at & !7)? >> (at % 8 * 8)) as u32)
    }

    fn u8(&mut self, at: u64) -> Option<u8> {
        Some((self.u64(at & !7)? >> (at % 8 * 8)) as u8)
    }
}

/// The layout that CPython 3.14.6 publishes in a build without the GIL.
fn without_gil() -> Layout {
    Layout {
        interpreters: 0,
        next_interpreter: 0,
        threads: 0,
        next_thread: 0,
        interpreter: 0,
        pthread: 0,
        tid: None,
        frame: (0, None),
        previous: 8,
        code: 0,
        instruction: 56,
        instruction_is: Instruction::Address,
        owner: Some(78),
        is_entry: None,
        file: 128,
        name: 144,
        first_line: 84,
        lines: 152,
        lines_are: Lines::Locations,
        instructions: 232,
        text: (56, 72),
        copies: Some((72, 200)),
    }
}

#[test]
fn an_instruction_in_a_threads_own_copy_has_its_offset_in_the_code() {
    let layout = without_gil();
    let mut memory = Words::default();
    let (state, inner, outer, code, list, copy) =
        (0x100, 0x1000, 0x2000, 0x3000, 0x4000, 0x5000_u64);
    memory.put(state, &[inner]);
    // References have a tag in their low bits.
    memory.put(inner, &[code | 1, outer, 0, 0, 0, 0, 0, copy + 12, 0, 3]);
    memory.put(outer, &[code | 1, 0, 0, 0, 0, 0, 0, code + 232 + 20, 0, 0]);
    memory.put(code + 200, &[list]);
    memory.put(list, &[4, 0, 0, 0, copy]);
    let walk = |memory: &mut Words, most| {
        let mut frames = Frames::of(memory, &layout, state, most).unwrap();
        let mut found = Vec::new();
        while let Some(frame) = frames.next(memory) {
            found.push((frame.code, offset(&layout, frame.code, frame.instruction), frame.entry));
        }
        (frames.ends(), found)
    };
    let both = vec![(code, 12, 0), (code, 20, 1)];
    assert_eq!(walk(&mut memory, 9), (WalkEnd::Whole, both.clone()));
    assert_eq!(walk(&mut memory, 2), (WalkEnd::Whole, both));
    assert_eq!(walk(&mut memory, 1), (WalkEnd::TooDeep, vec![(code, 12, 0)]));
    // If the list of copies can't be read, the instruction's offset is unknown, so the walk ends.
    memory.0.remove(&(list + 32));
    assert_eq!(walk(&mut memory, 9), (WalkEnd::Unreadable, vec![]));
}

#[test]
fn a_frame_of_the_interpreter_ends_a_call_of_the_evaluation_loop() {
    let layout = Layout { copies: None, ..without_gil() };
    let mut memory = Words::default();
    // There are four frames. The owner 3 in byte 6 of the tenth word marks the second one as the
    // interpreter's own.
    for (place, owner) in [0, 3, 0, 1].into_iter().enumerate() {
        let at = 0x1000 * (place as u64 + 1);
        let previous = if place == 3 { 0 } else { at + 0x1000 };
        let code = 0x8000 + at;
        memory.put(at, &[code, previous, 0, 0, 0, 0, 0, code + 232, 0, owner << 48]);
    }
    memory.put(0x100, &[0x1000]);
    let walk = |memory: &mut Words| {
        let mut frames = Frames::of(memory, &layout, 0x100, 9).unwrap();
        let mut found = Vec::new();
        while let Some(frame) = frames.next(memory) {
            found.push((frame.at, frame.entry));
        }
        (frames.ends(), found)
    };
    let frames = vec![(0x1000, 1), (0x3000, 0), (0x4000, 1)];
    assert_eq!(walk(&mut memory), (WalkEnd::Whole, frames));
    // This frame is its own caller. No thread has that many interpreter frames in a row, so the
    // walk ends.
    memory.put(0x2008, &[0x2000]);
    assert_eq!(walk(&mut memory), (WalkEnd::Unreadable, vec![(0x1000, 1)]));
    // Fields of objects are never at such a high offset.
    let far = Layout { previous: OBJECT, ..layout };
    assert!(Frames::of(&mut memory, &far, 0x100, 9).is_none());
}

#[test]
fn the_last_pair_of_a_text_has_zeros_beyond_the_end() {
    let mut memory = Words::default();
    memory.put(0x100, &[0x0807_0605_0403_0201; 4]);
    let mut pairs = |bytes| {
        let mut all = Vec::new();
        memory.pairs(0x100, bytes, |pair| all.push(pair)).unwrap();
        all
    };
    let whole = 0x0807_0605_0403_0201;
    assert_eq!(pairs(0), Vec::<[u64; 2]>::new());
    assert_eq!(pairs(1), vec![[1, 0]]);
    assert_eq!(pairs(8), vec![[whole, 0]]);
    assert_eq!(pairs(10), vec![[whole, 0x201]]);
    assert_eq!(pairs(19), vec![[whole, whole], [0x0003_0201, 0]]);
    assert_eq!(pairs(32), vec![[whole, whole]; 2]);
    assert_eq!(memory.pairs(0x100, 40, |_| {}), None);
}

#[test]
fn strings_have_a_longer_header_without_the_gil() {
    const COMPACT_ASCII: u64 = 1 | 1 << 3 | 1 << 4;
    let mut memory = Words::default();
    // The interning flags take one byte (3.14), or two (3.13).
    for (at, bits) in [(0x100, 8), (0x200, 16)] {
        memory.put(at + 32, &[5, 0, 1 | COMPACT_ASCII << bits]);
        let found = text(&mut memory, &without_gil(), at);
        assert_eq!(found, Some(Text { at: at + 56, bytes: 5, chars: Chars::Ascii }));
    }
    let with_gil = Layout { text: (40, 56), copies: None, ..without_gil() };
    memory.put(0x310, &[7, 0, 2 | COMPACT_ASCII << 2]);
    let found = text(&mut memory, &with_gil, 0x300);
    assert_eq!(found, Some(Text { at: 0x328, bytes: 7, chars: Chars::Ascii }));
}
