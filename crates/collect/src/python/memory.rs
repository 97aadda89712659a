//! Reads a process's memory word by word, through blocks.

use crate::os::sys;
use std::cell::RefCell;
use tprof_wire::python;

/// Bytes read at once: frames of an interpreter lie close together.
const BLOCK: usize = 2048;

/// The memory of a process, as it is at one moment: what was read once is not
/// read again, so that one value is the same throughout a reading.
pub struct ProcessMemory {
    pid: u32,
    blocks: RefCell<Vec<(u64, Vec<u8>)>>,
}

impl ProcessMemory {
    /// Nothing read yet.
    pub fn new(pid: u32) -> ProcessMemory {
        ProcessMemory { pid, blocks: RefCell::new(Vec::new()) }
    }

    /// Bytes at an address; `None` if they cannot be read.
    pub fn bytes(&self, address: u64, len: usize) -> Option<Vec<u8>> {
        if address < 4096 || address >> 56 != 0 {
            return None;
        }
        if len > BLOCK / 2 {
            let mut bytes = vec![0; len];
            return (sys::read_memory(self.pid, address, &mut bytes) == len).then_some(bytes);
        }
        let mut blocks = self.blocks.borrow_mut();
        let holds = |(start, bytes): &&(u64, Vec<u8>)| {
            let at = address.wrapping_sub(*start);
            at.saturating_add(len as u64) <= bytes.len() as u64
        };
        if let Some((start, bytes)) = blocks.iter().rev().find(holds) {
            let at = (address - start) as usize;
            return Some(bytes[at..at + len].to_vec());
        }
        // More of what lies below than above: callers' frames lie below.
        let below = (BLOCK * 3 / 4) as u64 & !7;
        let page = address & !4095;
        let start = address.saturating_sub(below).max(page.saturating_sub(4096)).max(4096);
        let mut bytes = vec![0; BLOCK.max((address - start) as usize + len)];
        let mut got = sys::read_memory(self.pid, start, &mut bytes);
        let mut from = start;
        if from + got as u64 <= address {
            // The page below is not mapped.
            from = address;
            bytes.truncate(len.max(256));
            got = sys::read_memory(self.pid, from, &mut bytes);
        }
        bytes.truncate(got);
        let at = (address - from) as usize;
        let found = bytes.get(at..at + len).map(<[u8]>::to_vec);
        blocks.push((from, bytes));
        found
    }
}

impl python::Memory for &ProcessMemory {
    fn u64(&mut self, at: u64) -> Option<u64> {
        Some(u64::from_le_bytes(self.bytes(at, 8)?.try_into().ok()?))
    }

    fn u32(&mut self, at: u64) -> Option<u32> {
        Some(u32::from_le_bytes(self.bytes(at, 4)?.try_into().ok()?))
    }

    fn u8(&mut self, at: u64) -> Option<u8> {
        self.bytes(at, 1)?.first().copied()
    }
}
