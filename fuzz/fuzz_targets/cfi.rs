//! Reads arbitrary bytes as a module's frame information, in the three ways that tprof does: entry
//! by entry, through the search table that the loader has mapped, and compiled into a table.
//!
//! ```text
//! cargo +nightly fuzz run cfi
//! ```

#![no_main]

use libfuzzer_sys::fuzz_target;
use std::ops::ControlFlow;
use tprof_cfi::{CfiEntry, LoadedFrames, SharedEntry, code_at, entry_at, run};
use tprof_unwind::fuzzing::compile_frames;

/// Bytes before the header of the search table: its address, the section's, and its length.
const HEAD: usize = 18;

fuzz_target!(|input: &[u8]| {
    let Some((head, rest)) = input.split_at_checked(HEAD) else { return };
    let word = |at: usize| u64::from_le_bytes(head[at..at + 8].try_into().unwrap());
    let (table, address) = (word(0), word(8));
    let length = usize::from(u16::from_le_bytes([head[16], head[17]]));
    let (header, section) = rest.split_at(length.min(rest.len()));
    walk(section, address);
    let loaded = LoadedFrames::new(header, table, address ^ 0x40, |frames| {
        // Frames lie elsewhere if the header says so.
        (frames >= address).then_some((section, address))
    });
    if let Some(frames) = loaded {
        for start in header.get(12..).unwrap_or_default().chunks_exact(8) {
            let start = i32::from_le_bytes(start[..4].try_into().unwrap());
            let start = table.wrapping_add_signed(start.into());
            for pc in [start, start.wrapping_add(1), start.wrapping_sub(1), start.wrapping_add(40)]
            {
                let _ = frames.row_at(pc);
            }
        }
        for pc in [0, table, address, u64::MAX] {
            let _ = frames.row_at(pc);
        }
    }
    if let Some(rows) = compile_frames(section, address) {
        // Every byte may begin a row, and so may the end of its function.
        assert!(rows <= 2 * section.len() + 2, "{rows} rows of {} bytes", section.len());
    }
});

/// Runs all entries of a section.
fn walk(section: &[u8], address: u64) {
    let mut at = 0;
    while let Some((entry, next)) = entry_at(section, at) {
        assert!(next > at && next <= section.len());
        if let CfiEntry::Description(shared) = entry
            && let Some((CfiEntry::Shared, end)) = entry_at(section, shared)
            && let Some(shared) = SharedEntry::read(&section[shared..end])
        {
            let description = &section[at..next];
            let place = address.wrapping_add(at as u64);
            let (mut rows, mut last) = (0, None);
            let code = code_at(description, place);
            let _ = run(description, place, &shared, |from, _| {
                assert!(last.is_none_or(|last| last <= from), "rows are in order");
                assert!(code.is_some_and(|(start, _)| start <= from));
                last = Some(from);
                rows += 1;
                ControlFlow::Continue(())
            });
            assert!(rows <= description.len());
        }
        at = next;
    }
}
