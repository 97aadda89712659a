//! Reads a process's memory word by word, from blocks that are read at once and cached.

use std::cell::RefCell;
use tprof_os::sys;
use tprof_wire::python;

/// Bytes of a block. Blocks are useful because the frames of an interpreter are close together.
const BLOCK: usize = 2048;
/// Largest number of blocks that are read ahead.
const MAX_AHEAD: usize = 8;

/// A block of a process's memory.
struct MemoryBlock {
    start: u64,
    bytes: Vec<u8>,
    /// Whether any of its bytes was used.
    used: bool,
}

/// Addresses and lengths of the blocks that a reading used. The next reading of the same thread
/// will use most of them again, so it reads all of them with one system call. A system call costs
/// several times as much as copying its bytes.
#[derive(Clone, Debug, Default)]
pub struct Places(Vec<(u64, usize)>);

/// The memory of a process at one moment. Each block is read only once, so values don't change
/// during a reading.
pub struct ProcessMemory {
    pid: u32,
    blocks: RefCell<Vec<MemoryBlock>>,
}

impl ProcessMemory {
    /// Returns a memory without blocks.
    pub fn new(pid: u32) -> ProcessMemory {
        ProcessMemory { pid, blocks: RefCell::new(Vec::new()) }
    }

    /// Returns a memory that has read the blocks at these places.
    pub fn with(pid: u32, places: &Places) -> ProcessMemory {
        let memory = ProcessMemory::new(pid);
        memory.read_ahead(places.0.iter().take(MAX_AHEAD).copied());
        memory
    }

    /// Reads several blocks with one system call. They are given by address and length.
    pub fn read_ahead(&self, places: impl Iterator<Item = (u64, usize)>) {
        let blank = |(start, len)| MemoryBlock { start, bytes: vec![0; len], used: false };
        let mut ahead: Vec<MemoryBlock> = places.map(blank).collect();
        let pieces = ahead.iter_mut().map(|block| (block.start, block.bytes.as_mut_slice()));
        let mut got = sys::read_pieces(self.pid, pieces);
        // The kernel stops at the first block that it can't read.
        ahead.retain_mut(|block| {
            block.bytes.truncate(got);
            got -= block.bytes.len();
            !block.bytes.is_empty()
        });
        self.blocks.borrow_mut().extend(ahead);
    }

    /// Returns the places of the blocks that were used, for the next reading.
    pub fn places(&self) -> Places {
        let blocks = self.blocks.borrow();
        let used = blocks.iter().filter(|block| block.used && !block.bytes.is_empty());
        Places(used.map(|block| (block.start, block.bytes.len())).collect())
    }

    /// Returns the bytes at an address; `None` if they can't be read.
    pub fn bytes(&self, address: u64, len: usize) -> Option<Vec<u8>> {
        let mut bytes = vec![0; len];
        self.copy(address, &mut bytes).then_some(bytes)
    }

    /// Copies the bytes at an address. Returns false if they can't be read.
    fn copy(&self, address: u64, into: &mut [u8]) -> bool {
        if address < 4096 || address >> 56 != 0 {
            return false;
        }
        let len = into.len();
        if len > BLOCK / 2 {
            return sys::read_memory(self.pid, address, into) == len;
        }
        let mut blocks = self.blocks.borrow_mut();
        let known = blocks.iter_mut().rev().find(|block| {
            let at = address.wrapping_sub(block.start);
            at.saturating_add(len as u64) <= block.bytes.len() as u64
        });
        let block = match known {
            Some(block) => block,
            None => {
                blocks.push(self.block_with(address, len));
                match blocks.last_mut() {
                    Some(block) => block,
                    None => return false,
                }
            }
        };
        block.used = true;
        let found = address.checked_sub(block.start).and_then(|at| {
            let at = at as usize;
            block.bytes.get(at..at.checked_add(len)?)
        });
        found.inspect(|found| into.copy_from_slice(found)).is_some()
    }

    /// Reads a block that includes an address.
    fn block_with(&self, address: u64, len: usize) -> MemoryBlock {
        // More bytes below the address are read than above it, because the frames of callers are
        // below.
        let below = (BLOCK * 3 / 4) as u64 & !7;
        let page = address & !4095;
        let mut start = address.saturating_sub(below).max(page.saturating_sub(4096)).max(4096);
        let mut bytes = vec![0; BLOCK.max((address - start) as usize + len)];
        let mut got = sys::read_memory(self.pid, start, &mut bytes);
        if start + got as u64 <= address {
            // The page below the address isn't mapped.
            start = address;
            bytes.truncate(len.max(256));
            got = sys::read_memory(self.pid, start, &mut bytes);
        }
        bytes.truncate(got);
        MemoryBlock { start, bytes, used: false }
    }

    fn word<const N: usize>(&self, at: u64) -> Option<[u8; N]> {
        let mut word = [0; N];
        self.copy(at, &mut word).then_some(word)
    }
}

impl python::Memory for &ProcessMemory {
    fn u64(&mut self, at: u64) -> Option<u64> {
        Some(u64::from_le_bytes(self.word(at)?))
    }

    fn u32(&mut self, at: u64) -> Option<u32> {
        Some(u32::from_le_bytes(self.word(at)?))
    }

    fn u8(&mut self, at: u64) -> Option<u8> {
        self.word(at).map(|[byte]| byte)
    }
}
