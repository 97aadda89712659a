//! Reads the memory that the kernel writes a counter's records to.
#![allow(unsafe_code)] // mapped memory

use super::attr::Counter;
use memmap2::{MmapOptions, MmapRaw};
use perf_event_open_sys::bindings::{perf_event_header, perf_event_mmap_page};
use std::io;
use std::mem::offset_of;
use std::sync::atomic::{AtomicU64, Ordering::*};

/// Offsets of the ring's two positions in the first page.
const DATA_HEAD: usize = offset_of!(perf_event_mmap_page, data_head);
const DATA_TAIL: usize = offset_of!(perf_event_mmap_page, data_tail);
const PAGE: usize = 4096;
/// Bytes of a record's header.
const HEADER: usize = size_of::<perf_event_header>();

/// The mapped ring of a counter.
#[derive(Debug)]
pub struct Ring {
    map: MmapRaw,
    /// Number of bytes for records, a power of two.
    bytes: usize,
    /// Memory for a record that wraps around the end, which is copied into one piece.
    joined: Vec<u8>,
}

impl Ring {
    /// Maps the ring of a counter. `bytes` is a power of two, and at least a page.
    pub fn new(counter: &Counter, bytes: usize) -> io::Result<Ring> {
        assert!(bytes.is_power_of_two() && bytes >= PAGE);
        let map = MmapOptions::new().len(PAGE + bytes).map_raw(counter.fd())?;
        Ok(Ring { map, bytes, joined: Vec::new() })
    }

    /// Returns a ring of no counter, which holds these bytes from its position `at` on, for the fuzz
    /// target `perf`.
    #[cfg(feature = "fuzzing")]
    pub fn of_bytes(content: &[u8], at: u64) -> io::Result<Ring> {
        let bytes = content.len().next_power_of_two().max(PAGE);
        let mut map = MmapOptions::new().len(PAGE + bytes).map_anon()?;
        for (index, byte) in content.iter().enumerate() {
            map[PAGE + (at as usize + index) % bytes] = *byte;
        }
        let ring = Ring { map: map.into(), bytes, joined: Vec::new() };
        ring.cursor(DATA_TAIL).store(at, Relaxed);
        ring.cursor(DATA_HEAD).store(at + content.len() as u64, Release);
        Ok(ring)
    }

    fn cursor(&self, offset: usize) -> &AtomicU64 {
        // SAFETY: `offset` is `DATA_HEAD` or `DATA_TAIL`. Both are aligned and in the first page of
        // `map`, which lives as long as `self`. The kernel changes the words too, so they are
        // accessed as atomics.
        unsafe { &*self.map.as_mut_ptr().add(offset).cast::<AtomicU64>() }
    }

    /// Returns `len` bytes of records at `from`. They must not wrap around the end.
    fn data(&self, from: usize, len: usize) -> &[u8] {
        assert!(from + len <= self.bytes);
        // SAFETY: the assertion keeps the range within `map`. `drain` passes only ranges between
        // tail and head, and the kernel doesn't write there until `drain` moves the tail.
        unsafe { std::slice::from_raw_parts(self.map.as_ptr().add(PAGE + from), len) }
    }

    /// Calls `take` with type, misc and body of every record in the ring, and frees its space.
    pub fn drain(&mut self, mut take: impl FnMut(u32, u16, &[u8])) {
        let head = self.cursor(DATA_HEAD).load(Acquire);
        let mut tail = self.cursor(DATA_TAIL).load(Relaxed);
        let mut joined = std::mem::take(&mut self.joined);
        while tail < head {
            let from = (tail as usize) & (self.bytes - 1);
            // Records are multiples of eight bytes, so a header never wraps around the end.
            let header = self.data(from, HEADER);
            let kind = u32::from_ne_bytes([header[0], header[1], header[2], header[3]]);
            let misc = u16::from_ne_bytes([header[4], header[5]]);
            let len = usize::from(u16::from_ne_bytes([header[6], header[7]]));
            if len < HEADER || !len.is_multiple_of(8) || len as u64 > head - tail {
                tail = head; // the kernel never writes this, so the rest is dropped
                break;
            }
            if from + len <= self.bytes {
                take(kind, misc, &self.data(from, len)[HEADER..]);
            } else {
                let first = self.bytes - from;
                joined.clear();
                joined.extend_from_slice(self.data(from, first));
                joined.extend_from_slice(self.data(0, len - first));
                take(kind, misc, &joined[HEADER..]);
            }
            tail += len as u64;
            self.cursor(DATA_TAIL).store(tail, Release);
        }
        self.cursor(DATA_TAIL).store(tail, Release);
        self.joined = joined;
    }
}
