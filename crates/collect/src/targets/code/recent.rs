//! Return addresses that stacks met lately, with what the trace calls them.

/// How many addresses are remembered; a power of two. `import torch` under exact stacks
/// meets 337,000 stacks of about 70 frames, nearly all of them at a few thousand addresses.
const ROOM: usize = 4096;

/// One address, and the code that is in force at it.
#[derive(Clone, Copy)]
struct Entry {
    address: u64,
    /// Since when the code is in force, nanoseconds.
    since_ns: u64,
    /// As the trace has the address.
    frame: u64,
}

/// A table with one place per address: the newer one displaces the older one. It is right
/// while the same mappings are in force, and has to be forgotten when they change.
#[derive(Default)]
pub struct Recent {
    /// Empty before the first address.
    entries: Vec<Entry>,
}

impl Recent {
    /// What the trace calls an address, if it is remembered for that time.
    pub fn frame(&self, address: u64, time_ns: u64) -> Option<u64> {
        let entry = self.entries.get(place(address))?;
        (entry.address == address && entry.since_ns <= time_ns).then_some(entry.frame)
    }

    /// Remembers an address whose code is in force since a time.
    pub fn remember(&mut self, address: u64, since_ns: u64, frame: u64) {
        if self.entries.is_empty() {
            // No time is before this one, so that an unused place never answers.
            let unused = Entry { address: 0, since_ns: u64::MAX, frame: 0 };
            self.entries.resize(ROOM, unused);
        }
        if let Some(entry) = self.entries.get_mut(place(address)) {
            *entry = Entry { address, since_ns, frame };
        }
    }

    /// Forgets everything: other code came into force.
    pub fn forget(&mut self) {
        self.entries.clear();
    }
}

/// Where an address belongs. Multiplied, since calls lie at even distances.
fn place(address: u64) -> usize {
    let mixed = address.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> (u64::BITS - ROOM.trailing_zeros())) as usize
}
