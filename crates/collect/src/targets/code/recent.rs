//! Caches the return addresses of recent stacks, with their frames in the trace.

/// Number of addresses that are cached; a power of two. `import torch` under exact stacks has
/// 337,000 stacks of about 70 frames, nearly all of them at a few thousand addresses.
const ROOM: usize = 4096;

/// One address, and the time since which its code is mapped.
#[derive(Clone, Copy)]
struct Entry {
    address: u64,
    /// Time since which the code is mapped, ns.
    since_ns: u64,
    /// The address's frame in the trace.
    frame: u64,
}

/// A table with one slot per address: a newer address displaces an older one. The table is valid
/// only while the mappings stay the same, and has to be cleared when they change.
#[derive(Default)]
pub struct Recent {
    /// Empty before the first address.
    entries: Vec<Entry>,
}

impl Recent {
    /// Returns the frame of an address, if the address is cached for that time.
    pub fn frame(&self, address: u64, time_ns: u64) -> Option<u64> {
        let entry = self.entries.get(place(address))?;
        (entry.address == address && entry.since_ns <= time_ns).then_some(entry.frame)
    }

    /// Caches an address whose code is mapped since `since_ns`.
    pub fn remember(&mut self, address: u64, since_ns: u64, frame: u64) {
        if self.entries.is_empty() {
            // `u64::MAX` is later than every time, so an unused slot never matches.
            let unused = Entry { address: 0, since_ns: u64::MAX, frame: 0 };
            self.entries.resize(ROOM, unused);
        }
        if let Some(entry) = self.entries.get_mut(place(address)) {
            *entry = Entry { address, since_ns, frame };
        }
    }

    /// Empties the table because the mappings have changed.
    pub fn forget(&mut self) {
        self.entries.clear();
    }
}

/// Returns the slot of an address. The multiplication spreads the addresses, whose low bits repeat.
fn place(address: u64) -> usize {
    let mixed = address.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> (u64::BITS - ROOM.trailing_zeros())) as usize
}
