//! The shapes of this process's stacks, and which of them a stack is guessed to have: by its first
//! return address and its depth. A wrong guess costs time only.

use super::frames::outermost;
use super::rows::Rows;
use super::shape::{Draft, Shape};
use super::stack_bounds::own_top;
use crate::block::Thread;
use crate::fork_tables;
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering::*};
use tprof_wire::hash::spread;

/// Sets of guesses, of two entries each.
const GUESS_BITS: u32 = 14;
/// cc1 has 5,800 shapes.
const SHAPE_BITS: u32 = 15;
/// Units of memory for shapes: 2 MiB, for about 25,000 of 22 frames.
const ARENA: usize = 1 << PLACE_BITS;
const PLACE_BITS: u32 = 16;
const PLACE_MASK: u32 = ARENA as u32 - 1;
/// Bit of a guess: stacks with this first return address and depth had other shapes as well, so
/// that the shape of the thread's stack before is asked, too.
const AMBIGUOUS: u32 = 1 << PLACE_BITS;
const TAG_SHIFT: u32 = PLACE_BITS + 1;
/// Entries tried for a shape.
const PROBES: usize = 8;
/// Wrong guesses beyond the right ones that a thread may make before it goes without for so many
/// stacks: a wrong guess, with what is learnt from it, costs about what a right one saves.
const CREDIT: i16 = 256;
const MOST_CREDIT: i16 = 1024;
const PAUSE: i16 = 4096;

/// Words of a unit.
const UNIT: usize = 4;

/// Address space of 2.4 MiB, touched as needed, that the kernel empties in a forked child.
#[repr(C)]
struct Shapes {
    /// Guesses by (first return address, depth), and by these and the shape of the stack before:
    /// the place of a shape beside further bits of the hash.
    guesses: [[AtomicU32; 2]; 1 << GUESS_BITS],
    /// Known shapes, by a shape's hash: upper bits of that, beside its place, or none if it was met
    /// once.
    known: [AtomicU64; 1 << SHAPE_BITS],
    /// Units in use.
    used: AtomicU64,
    arena: [[AtomicU64; UNIT]; ARENA],
}

static SHAPES: AtomicPtr<Shapes> = AtomicPtr::new(core::ptr::null_mut());

/// Maps them, if they are not yet.
pub fn map() {
    fork_tables::map(&SHAPES, size_of::<Shapes>());
}

fn shapes() -> Option<&'static Shapes> {
    // SAFETY: null, or mapped for the process's life; zeros are valid for every field.
    unsafe { SHAPES.load(Relaxed).as_ref() }
}

/// The stack at a hook's entry, as far as guessed.
#[derive(Clone, Copy)]
pub struct Guess {
    /// Hash of the stack, if it has the shape that was guessed.
    pub hash: Option<u64>,
    place: u16,
    /// Hash of what the guess went by, except the shape before.
    key: u64,
}

/// Guesses the stack at a hook's entry: `sp` points at the return address. `None` where nothing
/// is learnt either.
#[inline(always)]
pub fn guess(thread: &Thread, sp: usize, fp: usize) -> Option<Guess> {
    if thread.credit.get() <= 0 && !is_due(thread) {
        return None;
    }
    let (shapes, rows) = (shapes()?, Rows::now()?);
    // Only there is all readable from here to its end, not only what a walk reads.
    let high = own_top(thread);
    if sp < thread.stack_low.get() || sp.wrapping_add(8) > high || sp & 7 != 0 {
        return None;
    }
    // SAFETY: aligned and within the readable stack.
    let ra = unsafe { *(sp as *const u64) };
    let key = spread(ra ^ spread(high.wrapping_sub(sp) as u64));
    let Some(place) = shapes.guessed(key, thread.shape.get()) else {
        return Some(Guess { hash: None, place: 0, key });
    };
    // SAFETY: published with the shape at this place, which never changes; the stack is readable
    // up to `high`.
    let hash = unsafe {
        let at = shapes.arena.as_ptr().add(place as usize);
        (*at.cast::<Shape>()).of_stack((sp, fp), high)
    };
    Some(Guess { hash: hash.map(|hash| hash.wrapping_add(outermost(rows.code))), place, key })
}

impl Guess {
    /// Called when the guess was right.
    #[inline(always)]
    pub fn is_right(&self, thread: &Thread) {
        thread.shape.set(self.place);
        let credit = thread.credit.get();
        if credit < MOST_CREDIT {
            thread.credit.set(credit + 1);
        }
    }
}

/// Whether a pause is over.
#[cold]
fn is_due(thread: &Thread) -> bool {
    let credit = thread.credit.get() + 1;
    thread.credit.set(if credit > 0 { CREDIT } else { credit });
    credit > 0
}

/// The place of a shape in a guess.
#[inline(always)]
fn place_in(guess: u32) -> u16 {
    (guess & PLACE_MASK) as u16
}

/// Key of a guess where one by `key` is ambiguous.
#[inline(always)]
fn with_shape(key: u64, before: u16) -> u64 {
    spread(key ^ u64::from(before))
}

impl Shapes {
    /// The place of the shape to expect.
    #[inline(always)]
    fn guessed(&self, key: u64, before: u16) -> Option<u16> {
        let mut guess = self.guess(key)?;
        if guess & AMBIGUOUS != 0 {
            guess = self.guess(with_shape(key, before))?;
        }
        Some(place_in(guess))
    }

    #[inline(always)]
    fn set(&self, key: u64) -> (&[AtomicU32; 2], u32) {
        let tag = key << GUESS_BITS >> (32 + TAG_SHIFT);
        // SAFETY: the index has GUESS_BITS bits.
        let set = unsafe { self.guesses.get_unchecked((key >> (64 - GUESS_BITS)) as usize) };
        (set, tag as u32)
    }

    #[inline(always)]
    fn guess(&self, key: u64) -> Option<u32> {
        let ([first, second], tag) = self.set(key);
        let mut guess = first.load(Acquire);
        if guess >> TAG_SHIFT != tag {
            guess = second.load(Acquire);
        }
        (guess >> TAG_SHIFT == tag && guess & PLACE_MASK != 0).then_some(guess)
    }

    /// Makes this the guess for `key` from now on.
    fn expect(&self, key: u64, guess: u32) {
        let ([first, second], tag) = self.set(key);
        let before = first.load(Relaxed);
        let guess = guess | tag << TAG_SHIFT;
        if before >> TAG_SHIFT != tag && second.load(Relaxed) >> TAG_SHIFT == tag {
            return second.store(guess, Release);
        }
        if before >> TAG_SHIFT != tag {
            second.store(before, Release);
        }
        first.store(guess, Release);
    }

    /// A stack that was to be guessed by `key` had the shape at this place.
    fn learn(&self, key: u64, before: u16, place: u16) {
        match self.guess(key) {
            None => self.expect(key, u32::from(place)),
            Some(guess) if guess & AMBIGUOUS == 0 && place_in(guess) == place => {}
            Some(guess) => {
                if guess & AMBIGUOUS == 0 {
                    self.expect(key, guess & PLACE_MASK | AMBIGUOUS);
                }
                self.expect(with_shape(key, before), u32::from(place));
            }
        }
    }

    /// The place of a shape. `None` if it was not met before, or there is no room for it.
    fn place(&self, draft: &Draft, hash: u64) -> Option<u16> {
        let upper = hash & !u64::from(PLACE_MASK);
        for probe in 0..PROBES {
            let at = (spread(hash) >> (64 - SHAPE_BITS)) as usize + probe;
            let entry = self.known.get(at & ((1 << SHAPE_BITS) - 1))?;
            let known = entry.load(Acquire);
            if known == 0 {
                entry.store(upper, Relaxed);
                return None;
            }
            if known & !u64::from(PLACE_MASK) == upper {
                let place = match known as u16 {
                    0 => self.add(draft, hash)?,
                    place => return Some(place),
                };
                entry.store(upper | u64::from(place), Release);
                return Some(place);
            }
        }
        None
    }

    #[cold]
    fn add(&self, draft: &Draft, hash: u64) -> Option<u16> {
        let units = draft.words().div_ceil(UNIT);
        if self.used.load(Relaxed) as usize + units >= ARENA {
            return None;
        }
        // The first unit stays unused: 0 is no place.
        let place = self.used.fetch_add(units as u64, Relaxed) as usize + 1;
        if place + units > ARENA {
            return None;
        }
        // SAFETY: these words are this call's only.
        unsafe { draft.write(hash, self.arena.as_ptr().add(place).cast_mut().cast()) };
        Some(place as u16)
    }
}

impl Guess {
    /// Called when the guess was wrong, or there was none.
    #[inline(always)]
    pub fn is_wrong(&self, thread: &Thread) {
        let credit = thread.credit.get() - 1;
        thread.credit.set(if credit <= 0 { -PAUSE } else { credit });
    }

    /// The stack had this shape and these return addresses: its hash, if it may be guessed from
    /// now on.
    pub fn learn(
        &self,
        thread: &Thread,
        draft: &Draft,
        addresses: impl Iterator<Item = u64>,
        code: u64,
    ) -> Option<u64> {
        let shapes = shapes()?;
        let hash = draft.hash();
        let place = shapes.place(draft, hash)?;
        shapes.learn(self.key, thread.shape.get(), place);
        thread.shape.set(place);
        Some(Draft::of_addresses(hash, addresses).wrapping_add(outermost(code)))
    }
}
