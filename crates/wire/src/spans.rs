//! Spans that a program names itself by the table `tprof_abi`: their records.

/// Between the name of a span and its arguments, a JSON object: the unit separator.
pub const ARGUMENTS: u8 = 0x1f;

/// The beginning of a mark's arguments if the mark is a histogram of the program's own values: how
/// they are distributed, as `tprof_facts::histograms` reads it.
pub const HISTOGRAM: &str = "{\"histogram\":";

/// Set in the number of a span's place where it is a depth on its thread's stack.
pub const BY_DEPTH: u64 = 1 << 63;
/// Arguments of one record at most.
pub const MAX_ARGUMENTS: usize = 4;
/// Words of [`Arguments`] at most.
pub const ARGUMENTS_WORDS: usize = 2 + MAX_ARGUMENTS;

/// Types of arguments.
pub mod value {
    /// An unsigned integer.
    pub const UNSIGNED: u8 = 0;
    /// Signed, in two's complement.
    pub const SIGNED: u8 = 1;
    /// An `f64`'s bits.
    pub const FLOAT: u8 = 2;
    /// 0 or 1.
    pub const BOOL: u8 = 3;
    /// The id of a name; 0: it could not be kept.
    pub const TEXT: u8 = 4;
}

/// Types that floating-point operations work on.
pub mod dtype {
    /// Names of the types, by number, as reports show them; 0 means not stated.
    pub const NAMES: &[&str] =
        &["", "f64", "f32", "tf32", "bf16", "f16", "fp8", "fp4", "int8", "int4"];
}

/// Values of up to [`MAX_ARGUMENTS`] arguments of a span. Their keys are one name, with
/// [`ARGUMENTS`] between them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Arguments {
    /// The span: its number, or [`BY_DEPTH`] and how many lie around it on this thread.
    pub span: u64,
    /// [`value`] of each.
    pub kinds: [u8; MAX_ARGUMENTS],
    /// Number of values.
    pub count: u8,
    /// Bits of each value, by its kind.
    pub bits: [u64; MAX_ARGUMENTS],
}

impl Arguments {
    /// Packs them into a payload.
    #[inline(always)]
    pub const fn pack(&self) -> [u64; ARGUMENTS_WORDS] {
        let [a, b, c, d] = self.kinds;
        let kinds = u32::from_le_bytes([a, b, c, d]) as u64 | (self.count as u64) << 32;
        let [first, second, third, fourth] = self.bits;
        [self.span, kinds, first, second, third, fourth]
    }

    /// Unpacks a payload, in which unused values at the end may be missing.
    pub fn unpack(words: &[u64]) -> Option<Arguments> {
        let (&[span, kinds], values) = words.split_first_chunk()?;
        let count = usize::from((kinds >> 32) as u8).min(MAX_ARGUMENTS);
        let mut bits = [0; MAX_ARGUMENTS];
        bits.get_mut(..count)?.copy_from_slice(values.get(..count)?);
        let kinds = (kinds as u32).to_le_bytes();
        Some(Arguments { span, kinds, count: count as u8, bits })
    }
}

/// The span that a record is about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// For FLOPs the number of spans around their span on its thread; otherwise the span's number
    /// in its process.
    pub number: u64,
}

impl Place {
    /// Packs it into a payload.
    #[inline(always)]
    pub const fn pack(&self) -> [u64; 2] {
        [self.number, 0]
    }

    /// Unpacks it from a payload.
    pub fn unpack(words: &[u64]) -> Option<Place> {
        words.first().map(|number| Place { number: *number })
    }
}

/// Beginning or end of a span on a thread's stack of them, and what the thread had counted then.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OnStack {
    /// Number of spans around it on its thread.
    pub depth: u16,
    /// Allocations that the thread has counted, modulo 2^48: none where all are recorded.
    pub allocations: u64,
    /// Bytes asked for by those.
    pub allocated_bytes: u64,
}

impl OnStack {
    /// Packs it into a payload.
    #[inline(always)]
    pub const fn pack(&self) -> [u64; 2] {
        [self.depth as u64 | self.allocations << 16, self.allocated_bytes]
    }

    /// Unpacks it from a payload.
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
    fn arguments_round_trip_and_stated_ones_must_be_there() {
        let two = Arguments {
            span: BY_DEPTH | 3,
            kinds: [value::FLOAT, value::TEXT, 0, 0],
            count: 2,
            bits: [1.5_f64.to_bits(), 7, 0, 0],
        };
        assert_eq!(Arguments::unpack(&two.pack()), Some(two));
        assert_eq!(Arguments::unpack(&two.pack()[..4]), Some(two));
        assert_eq!(Arguments::unpack(&two.pack()[..3]), None);
        assert_eq!(Arguments::unpack(&[1]), None);
    }

    #[test]
    fn places_round_trip() {
        let place = Place { number: u64::MAX };
        assert_eq!(Place::unpack(&place.pack()), Some(place));
        assert_eq!(Place::unpack(&[]), None);
    }
}
