//! The layout of the records about spans that a program itself declares, through the table
//! `tprof_abi`.

/// Separates a span's name from its arguments, which are a JSON object: the ASCII unit separator.
pub const ARGUMENTS: u8 = 0x1f;

/// How the arguments of a mark begin if the mark is a histogram of the program's own values.
/// `tprof_facts::histograms` reads such marks.
pub const HISTOGRAM: &str = "{\"histogram\":";

/// Bit in a span's number, set if the number is a depth on its thread's stack of spans.
pub const BY_DEPTH: u64 = 1 << 63;
/// Maximum number of arguments of one record.
pub const MAX_ARGUMENTS: usize = 4;
/// Maximum number of words of [`Arguments`].
pub const ARGUMENTS_WORDS: usize = 2 + MAX_ARGUMENTS;

/// Types of an argument's value.
pub mod value {
    /// An unsigned integer.
    pub const UNSIGNED: u8 = 0;
    /// A signed integer, in two's complement.
    pub const SIGNED: u8 = 1;
    /// The bits of an `f64`.
    pub const FLOAT: u8 = 2;
    /// 0 or 1.
    pub const BOOL: u8 = 3;
    /// The id of a name; 0 if it could not be recorded.
    pub const TEXT: u8 = 4;
}

/// Types that floating-point operations work on.
pub mod dtype {
    /// Names of the types as reports show them, by number; 0 means that the program did not say.
    pub const NAMES: &[&str] =
        &["", "f64", "f32", "tf32", "bf16", "f16", "fp8", "fp4", "int8", "int4"];
}

/// Values of up to [`MAX_ARGUMENTS`] arguments of a span. One recorded name contains all their
/// keys, separated by [`ARGUMENTS`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Arguments {
    /// The span's number; or [`BY_DEPTH`] and the number of spans around the span on this thread.
    pub span: u64,
    /// The type of each value, from [`value`].
    pub kinds: [u8; MAX_ARGUMENTS],
    /// Number of values.
    pub count: u8,
    /// The bits of each value, according to its type.
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

/// Identifies the span that a record is about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// The span's number in its process. In a record of FLOPs it is the number of spans around the
    /// span on its thread.
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

/// Beginning or end of a span on a thread's stack of spans, with the thread's allocation counters
/// at that moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OnStack {
    /// Number of spans around this span on its thread.
    pub depth: u16,
    /// Number of allocations of the thread so far, modulo 2^48; 0 if every allocation has a record.
    pub allocations: u64,
    /// Bytes that the program requested in these allocations.
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

    /// The number of allocations since an earlier record of the same thread, and their bytes.
    pub fn since(&self, before: &OnStack) -> (u64, u64) {
        let allocations = self.allocations.wrapping_sub(before.allocations) & (u64::MAX >> 16);
        (allocations, self.allocated_bytes.wrapping_sub(before.allocated_bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn allocations_between_two_records_are_their_difference() {
        let before = OnStack { depth: 3, allocations: (1 << 48) - 2, allocated_bytes: u64::MAX };
        let after = OnStack { depth: u16::MAX, allocations: 5, allocated_bytes: 99 };
        for one in [before, after] {
            assert_eq!(OnStack::unpack(one.pack()), one);
        }
        assert_eq!(after.since(&before), (7, 100));
    }

    #[test]
    fn arguments_round_trip_and_cut_payloads_are_refused() {
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
