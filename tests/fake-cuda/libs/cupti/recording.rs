//! Reads a recording of CUPTI (`crates/agent/src/gpu/raw.rs`, `journal.rs`) for a replay.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::ffi::CString;
use tprof_cupti_sys::bindings::*;

/// Lengths of records in each version of CUPTI, from NVIDIA's headers.
const SIZES: &str = include_str!("../../../../scripts/gpu-check/sizes.txt");
const HEAD: usize = 24;
const ENTRY: usize = 40;
/// Kinds of blocks.
const BUFFER: u32 = 1;
const TEXT: u32 = 2;
const JOURNAL: u32 = 3;
/// A client registered its callbacks. Number: the result.
pub const REGISTERED: u32 = 3;
/// A client enabled a kind. Numbers: kind, result.
pub const ENABLED: u32 = 4;
/// CUPTI requested a buffer. Number: that of the loan, or 0 without a buffer.
pub const REQUESTED: u32 = 7;
/// CUPTI returned a buffer. Numbers: number of the loan, bytes, stream.
pub const COMPLETED: u32 = 8;
/// A client flushed. Numbers: flags, result, how long it took.
pub const FLUSHED: u32 = 9;
/// Both clocks were read. Numbers: CUPTI's time, width of the reading, result.
pub const CLOCKS: u32 = 10;
/// A client asked for dropped records. Number: how many were dropped.
pub const DROPPED: u32 = 11;
/// A client read a buffer. Numbers: address, records, result.
const READ: u32 = 12;

/// An entry of the journal.
#[derive(Clone, Copy)]
pub struct Entry {
    /// One of the numbers above.
    pub what: u32,
    /// The thread that made the entry.
    pub thread: u32,
    /// Time of the entry, by the host's clock.
    pub at_ns: u64,
    /// The numbers that belong to the entry, as above.
    pub numbers: [u64; 3],
}

/// The contents of a file, up to the end of its first process.
pub struct Recording {
    /// Version of the recorded CUPTI.
    pub version: u32,
    /// Bytes of each kind's record.
    pub sizes: HashMap<u32, usize>,
    /// The journal's entries, in order.
    pub entries: Vec<Entry>,
    /// The bytes of each buffer, by the number of its loan.
    pub contents: HashMap<u64, Vec<u8>>,
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes(bytes[at..at + 4].try_into().unwrap_or_default())
}

fn wide(bytes: &[u8], at: usize) -> u64 {
    u64::from_ne_bytes(bytes[at..at + 8].try_into().unwrap_or_default())
}

fn sizes_of(version: u32) -> HashMap<u32, usize> {
    let rows = SIZES.lines().filter(|line| !line.starts_with('#')).filter_map(|line| {
        let (of, rest) = line.split_once(' ')?;
        Some((of.parse::<u32>().ok()?, rest))
    });
    let newest = rows.filter(|(of, _)| *of <= version).max_by_key(|(of, _)| *of);
    let pairs = newest.map_or("", |(_, rest)| rest).split(' ');
    pairs
        .filter_map(|pair| pair.split_once(':')?.into())
        .filter_map(|(k, b): (&str, &str)| Some((k.parse().ok()?, b.parse().ok()?)))
        .collect()
}

impl Recording {
    /// Reads a file's bytes; `None` if it contains no recording.
    pub fn of(file: &[u8]) -> Option<Recording> {
        let first = file.get(..HEAD)?;
        let (pid, version) = (word(first, 12), word(first, 16));
        let (mut texts, mut buffers, mut entries, mut at) =
            (BTreeMap::new(), VecDeque::new(), Vec::new(), 0);
        while let Some(head) = file.get(at..at + HEAD) {
            let body = file.get(at + HEAD..at + HEAD + word(head, 20) as usize)?;
            at += HEAD + body.len();
            match word(head, 8) {
                _ if word(head, 12) != pid => {}
                BUFFER => {
                    let mut buffer = body.to_vec();
                    name_texts(&mut buffer, &sizes_of(version), &texts);
                    buffers.push_back(buffer);
                }
                TEXT => {
                    let text = CString::new(&body[8..]).ok()?;
                    // Records point to these names, which must live as long as the process.
                    texts.insert(wide(body, 0), text.into_raw() as u64);
                }
                JOURNAL => entries.extend(body.chunks_exact(ENTRY).map(|e| Entry {
                    what: word(e, 0),
                    thread: word(e, 4),
                    at_ns: wide(e, 8),
                    numbers: [wide(e, 16), wide(e, 24), wide(e, 32)],
                })),
                _ => {}
            }
        }
        // Several threads wrote entries in the order in which they reserved their places, so sort
        // them by time.
        entries.sort_by_key(|entry| entry.at_ns);
        let contents = number_loans(&mut entries, buffers);
        Some(Recording { version, sizes: sizes_of(version), entries, contents })
    }
}

/// Replaces a buffer's address, which is lent again and again, by the loan's number, and returns
/// the contents of each loan when it was read.
fn number_loans(entries: &mut [Entry], mut buffers: VecDeque<Vec<u8>>) -> HashMap<u64, Vec<u8>> {
    let mut loans = 0;
    let (mut lent, mut full) = (HashMap::new(), HashMap::<u64, VecDeque<u64>>::new());
    let mut contents = HashMap::new();
    for entry in entries {
        let address = entry.numbers[0];
        match entry.what {
            REQUESTED if address != 0 => {
                loans += 1;
                lent.insert(address, loans);
                entry.numbers[0] = loans;
            }
            COMPLETED => {
                entry.numbers[0] = lent.remove(&address).unwrap_or(0);
                full.entry(address).or_default().push_back(entry.numbers[0]);
            }
            READ => {
                let loan = full.get_mut(&address).and_then(VecDeque::pop_front);
                if let (Some(loan), Some(buffer)) = (loan, buffers.pop_front()) {
                    contents.insert(loan, buffer);
                }
            }
            _ => {}
        }
    }
    contents
}

/// Replaces the addresses of texts in records, which are addresses in another process.
fn name_texts(buffer: &mut [u8], sizes: &HashMap<u32, usize>, texts: &BTreeMap<u64, u64>) {
    let mut at = 0;
    while at + 4 <= buffer.len() {
        let kind = word(buffer, at);
        let Some(size) = sizes.get(&kind).copied().filter(|size| at + size <= buffer.len()) else {
            return;
        };
        let name = match kind {
            CUPTI_ACTIVITY_KIND_KERNEL | CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL => {
                std::mem::offset_of!(CUpti_ActivityKernel9, name)
            }
            CUPTI_ACTIVITY_KIND_DEVICE => std::mem::offset_of!(CUpti_ActivityDevice4, name),
            CUPTI_ACTIVITY_KIND_MEMORY2 => std::mem::offset_of!(CUpti_ActivityMemory3, name),
            _ => 0,
        };
        if name > 0 {
            let text = texts.get(&wide(buffer, at + name)).copied().unwrap_or(0);
            buffer[at + name..at + name + 8].copy_from_slice(&text.to_ne_bytes());
        }
        at += size;
    }
}
