//! Spans that a program names itself by the table `tprof_abi`: their records.

/// Between the name of a span and its arguments, a JSON object: the unit separator.
pub const ARGUMENTS: u8 = 0x1f;

/// Which span a record is about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// Of FLOPs how many spans lie around their span on its thread; else the span's number in its
    /// process.
    pub number: u64,
}

impl Place {
    /// As a payload.
    #[inline(always)]
    pub const fn pack(&self) -> [u64; 2] {
        [self.number, 0]
    }

    /// From a payload.
    pub fn unpack(words: &[u64]) -> Option<Place> {
        words.first().map(|number| Place { number: *number })
    }
}

/// Beginning or end of a span on a thread's stack of them, and what the thread had counted then.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OnStack {
    /// How many spans lie around it on its thread.
    pub depth: u16,
    /// Allocations that the thread has counted, modulo 2^48: none where all are recorded.
    pub allocations: u64,
    /// Bytes asked for by those.
    pub allocated_bytes: u64,
}

impl OnStack {
    /// As a payload.
    #[inline(always)]
    pub const fn pack(&self) -> [u64; 2] {
        [self.depth as u64 | self.allocations << 16, self.allocated_bytes]
    }

    /// From a payload.
    pub fn unpack(words: [u64; 2]) -> OnStack {
        let [first, allocated_bytes] = words;
        OnStack { depth: first as u16, allocations: first >> 16, allocated_bytes }
    }

    /// Allocations since another record of the same thread, and their bytes.
    pub fn since(&self, before: &OnStack) -> (u64, u64) {
        let allocations = self.allocations.wrapping_sub(before.allocations) & (u64::MAX >> 16);
        (allocations, self.allocated_bytes.wrapping_sub(before.allocated_bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_allocated_between_two_records_is_their_difference() {
        let before = OnStack { depth: 3, allocations: (1 << 48) - 2, allocated_bytes: u64::MAX };
        let after = OnStack { depth: u16::MAX, allocations: 5, allocated_bytes: 99 };
        for one in [before, after] {
            assert_eq!(OnStack::unpack(one.pack()), one);
        }
        assert_eq!(after.since(&before), (7, 100));
    }

    #[test]
    fn places_round_trip() {
        let place = Place { number: u64::MAX };
        assert_eq!(Place::unpack(&place.pack()), Some(place));
        assert_eq!(Place::unpack(&[]), None);
    }
}
