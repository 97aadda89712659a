//! Replays inputs that a fuzzer found, as they are and damaged. An import must either refuse the
//! bytes or make a consistent run of them.
//!
//! `cargo +nightly fuzz run import crates/import/tests/corpus` searches for more inputs.

use crate::common::*;
use std::path::{Path, PathBuf};
use tprof_import::Options;

/// Number of mutations of each file of the corpus.
const ROUNDS: u64 = 150;

/// Returns the files of a folder: those written by hand, or those that fuzzing found (`found`).
fn corpus(folder: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(folder);
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<PathBuf> = entries.filter(|path| path.is_file()).collect();
    files.sort();
    files
}

/// Imports bytes and returns the number of rows; 0 if the import refuses them.
fn survives(bytes: &[u8]) -> u64 {
    let options = Options { max_input_bytes: 16 << 20, ..Options::new("test") };
    match import_files_with(&[("trace.json", bytes)], &options) {
        Ok(run) => {
            check(&run);
            run.imported.rows
        }
        Err(_) => 0,
    }
}

/// Returns the next number of the SplitMix64 generator.
fn next(state: &mut u64) -> usize {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mixed = (*state ^ (*state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    (mixed ^ (mixed >> 27)) as usize >> 8
}

/// Damages bytes in one of several ways.
fn mutate(bytes: &mut Vec<u8>, state: &mut u64) {
    const WORDS: [&[u8]; 12] = [
        b"\"",
        b"\\",
        b"{",
        b"}",
        b"[",
        b"]",
        b",",
        b"NaN",
        b"-1",
        b"1e999",
        b"\xff",
        b"\"ph\":\"E\",",
    ];
    if bytes.is_empty() {
        return;
    }
    let at = next(state) % bytes.len();
    match next(state) % 6 {
        0 => bytes[at] ^= 1 << (next(state) % 8),
        1 => bytes.truncate(at),
        2 => drop(bytes.remove(at)),
        3 => {
            let word = WORDS[next(state) % WORDS.len()];
            bytes.splice(at..at, word.iter().copied());
        }
        4 => {
            let end = (at + next(state) % 200).min(bytes.len());
            let part = bytes[at..end].to_vec();
            let to = next(state) % bytes.len();
            bytes.splice(to..to, part);
        }
        _ => {
            let end = (at + next(state) % 60).min(bytes.len());
            bytes.drain(at..end);
        }
    }
}

#[test]
fn the_corpus_is_imported_or_refused() {
    let files = corpus("corpus");
    let rows: u64 = files.iter().map(|path| survives(&std::fs::read(path).unwrap())).sum();
    assert!(files.len() >= 10 && rows >= 40, "{} files, {rows} rows", files.len());
}

#[test]
fn inputs_found_by_fuzzing_are_imported_or_refused() {
    let files = corpus("corpus/found");
    let rows: u64 = files.iter().map(|path| survives(&std::fs::read(path).unwrap())).sum();
    assert!(files.len() >= 100 && rows >= 100, "{} files, {rows} rows", files.len());
}

#[test]
fn damaged_files_are_imported_or_refused() {
    let mut rows = 0;
    for (path, seed) in corpus("corpus").iter().zip(1..) {
        let whole = std::fs::read(path).unwrap();
        let mut state = seed;
        for _ in 0..ROUNDS {
            let mut bytes = whole.clone();
            for _ in 0..1 + next(&mut state) % 3 {
                mutate(&mut bytes, &mut state);
            }
            rows += survives(&bytes);
        }
    }
    // Most damage leaves most events intact.
    assert!(rows > 1000, "{rows}");
}
