//! Describes the shape of a stack: the places of the words that a walk reads, relative to the
//! beginning of the stack.
//!
//! The result of a walk depends only on the rows and on the words that it reads. The places of
//! these words follow from frame sizes and from the frame pointers that the walk uses, and many
//! stacks have the same places.
//!
//! So a walk has the same result as an earlier walk under two conditions. At the places of the
//! earlier walk's shape are the same return addresses, and every frame pointer that the walk would
//! use points to the same place. To check this, no row is needed, and no load of a word depends on
//! another.
//!
//! One sum over all words, each multiplied by its own factor, compares them at once. A frame
//! pointer enters the sum as the distance to the place that it points to in the shape.

use tprof_wire::hash::GOLDEN;

/// Maximum number of return addresses in a shape, including the end of the stack. It is also the
/// maximum number of frame pointers.
pub const MOST_FRAMES: usize = 96;

/// The fixed part of a shape in memory. `count` places follow it: first those of return addresses,
/// then those of saved frame pointers. A place is a number of words above the first return address.
#[repr(C)]
pub struct Shape {
    /// The sum for a stack that begins at address 0 and whose words are all 0.
    seed: u64,
    /// Factor of the address of the first return address.
    base: u64,
    /// Factor of the frame pointer in its register; 0 if the walk doesn't use it.
    register: u64,
    /// Number of words from the first return address to the last word that is read.
    words: u32,
    count: u32,
}

impl Shape {
    /// Computes the hash of the stack that begins with the return address at `sp` and ends below
    /// `high`. If the stack does not have this shape, the result is not the hash of any stack,
    /// except by chance (2^-51). Returns `None` if the shape is larger than the stack.
    ///
    /// # Safety
    /// `this` points at a shape, which is followed by its places. `sp` is aligned, and the memory
    /// from `sp` to `high` is readable.
    #[inline(always)]
    pub unsafe fn of_stack(
        this: *const Shape,
        (sp, fp): (usize, usize),
        high: usize,
    ) -> Option<u64> {
        // SAFETY: the caller guarantees a shape.
        let Shape { seed, base, register, words, count } = unsafe { this.read() };
        if high.wrapping_sub(sp) < words as usize * 8 {
            return None;
        }
        let places = this.wrapping_add(1).cast::<u16>();
        let mut sum = seed.wrapping_sub(base.wrapping_mul(sp as u64));
        sum = sum.wrapping_add(register.wrapping_mul(fp as u64));
        for at in 0..count as usize {
            // SAFETY: the caller guarantees the places and the readable stack. Each place is below
            // `words`, and `DIGITS` has a factor for each.
            sum = sum.wrapping_add(unsafe {
                let word = (sp as *const u64).add(*places.add(at) as usize);
                (*word).wrapping_mul(*DIGITS.get_unchecked(at))
            });
        }
        Some(sum)
    }
}

/// A shape that is being built.
pub struct Draft {
    /// The place in bytes that the frame pointer in its register points to; `None` if the walk
    /// doesn't use it.
    register: Option<u64>,
    /// Number of words from the first return address to the last word that is read.
    read: usize,
    ras: (usize, [u16; MOST_FRAMES]),
    /// Places where frame pointers are saved, and the places that they point to.
    links: (usize, [[u16; 2]; MOST_FRAMES]),
}

impl Draft {
    /// Makes a draft without frames.
    #[inline(always)]
    pub const fn new() -> Draft {
        let (ras, links) = ((0, [0; MOST_FRAMES]), (0, [[0; 2]; MOST_FRAMES]));
        Draft { register: None, read: 0, ras, links }
    }

    /// Adds the return address of the next outer frame, which is `above` bytes above the first one.
    #[inline(always)]
    pub fn ra(&mut self, above: usize) -> Option<()> {
        let (count, places) = &mut self.ras;
        *places.get_mut(*count)? = place(above)?;
        *count += 1;
        self.read = self.read.max(above / 8 + 1);
        Some(())
    }

    /// Adds a frame pointer that is saved at the place `saved` and points to the place `to`.
    #[inline(always)]
    pub fn link(&mut self, saved: usize, to: usize) -> Option<()> {
        let (count, links) = &mut self.links;
        *links.get_mut(*count)? = [place(saved)?, place(to)?];
        *count += 1;
        self.read = self.read.max(saved / 8 + 1);
        Some(())
    }

    /// Notes that the walk uses the frame pointer in its register, which points to this place.
    pub fn register(&mut self, to: usize) {
        self.register = Some(to as u64);
    }

    /// The hash of the shape, by which shapes are compared.
    #[inline(always)]
    pub fn hash(&self) -> u64 {
        let (ras, links) = (self.ras.0, self.links.0);
        let register = self.register.unwrap_or(GOLDEN);
        let mut hash = mixed(register, (ras as u64) << 32 | links as u64);
        for four in self.ras.1.as_chunks::<4>().0.iter().take(ras.div_ceil(4)) {
            hash = mixed(hash, joined(four));
        }
        for [one, two] in self.links.1.as_chunks::<2>().0.iter().take(links.div_ceil(2)) {
            hash = mixed(hash, joined(&[one[0], one[1], two[0], two[1]]));
        }
        hash
    }

    /// Number of words that the shape takes in memory.
    pub fn words(&self) -> usize {
        size_of::<Shape>() / 8 + (self.ras.0 + self.links.0).div_ceil(4)
    }

    /// Writes the shape as words.
    ///
    /// # Safety
    /// `to` is aligned, and has room for [`Draft::words`] words that nothing else uses.
    pub unsafe fn write(&self, hash: u64, to: *mut u64) {
        let (ras, links) = (self.ras.0, self.links.1.iter().take(self.links.0));
        let digits = DIGITS.iter().skip(ras);
        let register = if self.register.is_some() { REGISTER } else { 0 };
        // This becomes the sum of a stack of this shape that begins at address 0.
        let mut sum = register.wrapping_mul(self.register.unwrap_or(0));
        let mut base = register;
        for ([_, to], digit) in links.clone().zip(digits) {
            sum = sum.wrapping_add(digit.wrapping_mul(u64::from(*to) * 8));
            base = base.wrapping_add(*digit);
        }
        let seed = hash.wrapping_sub(sum);
        let (words, count) = (self.read as u32, (ras + self.links.0) as u32);
        let saved = links.map(|[saved, _]| *saved);
        let places = self.ras.1.iter().take(ras).copied().chain(saved);
        // SAFETY: the caller guarantees room for all these words, which nothing else uses.
        unsafe {
            let to = to.cast::<Shape>();
            to.write(Shape { seed, base, register, words, count });
            let to = to.add(1).cast::<u16>();
            places.enumerate().for_each(|(at, place)| to.add(at).write(place));
        }
    }

    /// The hash of a stack of the shape with this `hash` and with these return addresses, as
    /// [`Shape::of_stack`] computes it.
    #[inline(always)]
    pub fn of_addresses(hash: u64, addresses: impl Iterator<Item = u64>) -> u64 {
        let terms = addresses.zip(&DIGITS).map(|(ra, digit)| ra.wrapping_mul(*digit));
        terms.fold(hash, u64::wrapping_add)
    }
}

/// Converts a place from bytes to words. Returns `None` if it is too far away, or not a multiple of
/// 8 bytes.
#[inline(always)]
fn place(above: usize) -> Option<u16> {
    u16::try_from(above >> 3).ok().filter(|_| above & 7 == 0)
}

#[inline(always)]
fn joined(places: &[u16; 4]) -> u64 {
    places.iter().fold(0, |word, place| word << 16 | u64::from(*place))
}

#[inline(always)]
const fn mixed(hash: u64, value: u64) -> u64 {
    let x = (hash ^ value).wrapping_mul(0xd6e8_feb8_6659_fd93);
    x ^ x >> 32
}

/// Factors of the words, by their index. They are odd and random. So two stacks of one shape have
/// the same upper 52 bits of the hash only with a probability of 2^-51.
static DIGITS: [u64; 2 * MOST_FRAMES] = {
    let mut digits = [0; 2 * MOST_FRAMES];
    let mut at = 0;
    while at < digits.len() {
        digits[at] = drawn(at as u64 + 2);
        at += 1;
    }
    digits
};

/// The factor of the frame pointer in its register.
const REGISTER: u64 = drawn(1);

/// The numbers of splitmix64, made odd.
const fn drawn(number: u64) -> u64 {
    let x = number.wrapping_mul(GOLDEN);
    let x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    (x ^ x >> 31) | 1
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A shape with return addresses at words 0, 2 and 5. A frame pointer is saved at word 1 and
    /// points to word 4, and the one in its register points to word 1.
    fn draft() -> Draft {
        let mut draft = Draft::new();
        for at in [0, 2, 5] {
            draft.ra(at * 8).unwrap();
        }
        draft.link(8, 32).unwrap();
        draft.register(8);
        draft
    }

    fn hash_of(stack: &[u64], fp: usize) -> Option<u64> {
        let draft = draft();
        let mut memory = [0; 16];
        assert!(draft.words() <= memory.len());
        let range = stack.as_ptr_range();
        // SAFETY: `memory` has room for the shape, and the stack ends at `range.end`.
        unsafe {
            draft.write(draft.hash(), memory.as_mut_ptr());
            Shape::of_stack(
                memory.as_ptr().cast(),
                (range.start.expose_provenance(), fp),
                range.end.addr(),
            )
        }
    }

    #[test]
    fn the_hash_is_that_of_the_addresses_only_if_all_links_are_right() {
        let mut stack = [11, 0, 22, 77, 77, 0, 77];
        let at = |word: usize| stack.as_ptr_range().start.addr() + word * 8;
        let (one, four, five) = (at(1), at(4), at(5));
        stack[1] = four as u64;
        let expected = Draft::of_addresses(draft().hash(), [11, 22, 0].into_iter());
        assert_eq!(hash_of(&stack, one), Some(expected));
        assert_ne!(hash_of(&stack, four), Some(expected));
        for (word, value) in [(0, 12), (1, five as u64), (2, 21), (5, 1)] {
            let before = core::mem::replace(&mut stack[word], value);
            assert_ne!(hash_of(&stack, one), Some(expected), "word {word}");
            stack[word] = before;
        }
        (stack[3], stack[4], stack[6]) = (1, 2, 3);
        assert_eq!(hash_of(&stack, one), Some(expected));
        assert_eq!(hash_of(&stack[..5], one), None);
    }

    #[test]
    fn places_too_far_away_or_between_words_are_refused() {
        assert_eq!(place(8 * 0xffff), Some(0xffff));
        assert_eq!(place(8 * 0x10000), None);
        assert_eq!(place(12), None);
    }
}
