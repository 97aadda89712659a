//! The word in which a thread says that it is in a call.

use super::FUNCTIONS;

/// Bits of the function's number.
const NUMBER_BITS: u32 = 9;
const _: () = assert!(FUNCTIONS.len() < 1 << NUMBER_BITS);

/// A call that has begun and not returned. Calls are recorded when they return, so this is all that
/// tells of a call that waits for ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenCall {
    /// Number of the function.
    pub number: u32,
    /// Clock at the beginning of the call, without its lowest bits.
    pub clock: u64,
}

impl OpenCall {
    /// Returns the call as one word, which isn't 0.
    #[inline(always)]
    pub fn word(number: u32, clock: u64) -> u64 {
        (clock & !((1 << NUMBER_BITS) - 1)) | (u64::from(number) + 1)
    }

    /// Returns the call of a word; `None` if there is none, or if no function has such a number.
    pub fn of(word: u64) -> Option<OpenCall> {
        let low = word & ((1 << NUMBER_BITS) - 1);
        let number = u32::try_from(low.checked_sub(1)?).ok()?;
        let is_known = FUNCTIONS.get(number as usize).is_some();
        is_known.then_some(OpenCall { number, clock: word - low })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_has_the_function_and_nearly_the_clock() {
        let last = FUNCTIONS.len() as u32 - 1;
        for (number, clock) in [(0, 0), (7, 123_456_789), (last, u64::MAX)] {
            let open = OpenCall::of(OpenCall::word(number, clock)).unwrap();
            assert_eq!(open.number, number);
            assert!(clock - open.clock < 1 << NUMBER_BITS);
        }
        assert_eq!(OpenCall::of(0), None);
        assert_eq!(OpenCall::of(last as u64 + 2), None);
    }
}
