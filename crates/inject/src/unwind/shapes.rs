//! Stores the shapes of this process's stacks, and guesses a stack's shape from its first return
//! address and its depth. A wrong guess only costs time.

use super::frames::outermost;
use super::rows::Rows;
use super::shape::{Draft, Shape};
use super::stack_bounds::own_top;
use crate::block::Thread;
use crate::fork_tables;
use tprof_wire::hash::spread;
use tprof_wire::sync::{AtomicPtr, AtomicU32, AtomicU64, Ordering::*};

/// Number of bits that select a set of guesses. A set has two entries.
const GUESS_BITS: u32 = 14;
/// Number of bits that select the entry of a known shape. cc1 has 5,800 shapes.
const SHAPE_BITS: u32 = 15;
/// Number of units of memory for shapes: 2 MiB, which is enough for about 25,000 shapes of 22
/// frames.
const ARENA: usize = 1 << PLACE_BITS;
const PLACE_BITS: u32 = 16;
const PLACE_MASK: u32 = ARENA as u32 - 1;
/// Bit in a guess, set if stacks with this first return address and depth have had several shapes.
/// Then the guess also depends on the shape of the thread's last stack.
const AMBIGUOUS: u32 = 1 << PLACE_BITS;
const TAG_SHIFT: u32 = PLACE_BITS + 1;
/// Number of entries that are tried for a shape before the table counts as full.
const PROBES: usize = 8;
/// If a thread's wrong guesses exceed its right ones by this number, it stops guessing for
/// [`PAUSE`] stacks. A wrong guess, together with learning from it, costs about as much as a right
/// one saves.
const CREDIT: i16 = 256;
const MOST_CREDIT: i16 = 1024;
const PAUSE: i16 = 4096;

/// Number of words in a unit.
const UNIT: usize = 4;

/// The tables. They take 2.4 MiB of address space, of which only touched pages use memory. The
/// kernel zeroes them in a forked child.
#[repr(C)]
struct Shapes {
    /// Guesses by the hash of first return address and depth, and by that hash combined with the
    /// shape of the last stack. An entry consists of the place of a shape and further bits of the
    /// hash.
    guesses: [[AtomicU32; 2]; 1 << GUESS_BITS],
    /// Known shapes, by the shape's hash. An entry consists of upper bits of the hash and the
    /// shape's place. The place is 0 if the shape occurred only once.
    known: [AtomicU64; 1 << SHAPE_BITS],
    /// Number of units in use.
    used: AtomicU64,
    arena: [[AtomicU64; UNIT]; ARENA],
}

static SHAPES: AtomicPtr<Shapes> = AtomicPtr::new(core::ptr::null_mut());

/// Maps the tables, if they are not mapped yet.
pub fn map() {
    fork_tables::map(&SHAPES, size_of::<Shapes>());
}

fn shapes() -> Option<&'static Shapes> {
    // SAFETY: `SHAPES` is null, or `fork_tables` mapped it zeroed and it is never unmapped. Zeros
    // are valid for every field.
    unsafe { SHAPES.load(Relaxed).as_ref() }
}

/// A guess of the stack at a hook's entry.
#[derive(Clone, Copy)]
pub struct Guess {
    /// Hash of the stack, if it has the shape that was guessed.
    pub hash: Option<u64>,
    place: u16,
    /// Hash of the first return address and the depth.
    key: u64,
}

/// Guesses the stack at a hook's entry; `sp` points at the return address. Returns `None` if this
/// stack is neither guessed nor learnt from.
#[inline(always)]
pub fn guess(thread: &Thread, sp: usize, fp: usize) -> Option<Guess> {
    if thread.credit.get() <= 0 && !is_due(thread) {
        return None;
    }
    let (shapes, rows) = (shapes()?, Rows::now()?);
    // A shape may read any word from here to the end of the stack. Only on the thread's own stack
    // are all of them readable.
    let high = own_top(thread);
    if sp < thread.stack_low.get() || sp.wrapping_add(8) > high || sp & 7 != 0 {
        return None;
    }
    // SAFETY: `sp` is aligned and within the readable stack.
    let ra = unsafe { *(sp as *const u64) };
    let key = spread(ra ^ spread(high.wrapping_sub(sp) as u64));
    let Some(place) = shapes.guessed(key, thread.shape.get()) else {
        return Some(Guess { hash: None, place: 0, key });
    };
    // SAFETY: a place is published only after its shape was written, and the shape never changes.
    // The stack is readable up to `high`.
    let hash = unsafe {
        let at = shapes.arena.as_ptr().add(place as usize);
        Shape::of_stack(at.cast(), (sp, fp), high)
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

/// Counts down a pause. Returns whether it is over.
#[cold]
fn is_due(thread: &Thread) -> bool {
    let credit = thread.credit.get() + 1;
    thread.credit.set(if credit > 0 { CREDIT } else { credit });
    credit > 0
}

/// The place of a shape, which is in the low bits of a guess.
#[inline(always)]
fn place_in(guess: u32) -> u16 {
    (guess & PLACE_MASK) as u16
}

/// The key of the guess that applies if the guess for `key` is ambiguous.
#[inline(always)]
fn with_shape(key: u64, before: u16) -> u64 {
    spread(key ^ u64::from(before))
}

impl Shapes {
    /// The place of the shape that is expected; `None` if there is no guess.
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
        // SAFETY: the index has `GUESS_BITS` bits, and there are that many sets (1 <<
        // `GUESS_BITS`).
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

    /// Makes `guess` the guess for `key` from now on.
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

    /// Learns that a stack with this key has the shape at this place.
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

    /// The place of a shape; `None` if the shape occurs for the first time, or if there is no room
    /// for it.
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
        // The first unit stays unused, since place 0 means none.
        let place = self.used.fetch_add(units as u64, Relaxed) as usize + 1;
        if place + units > ARENA {
            return None;
        }
        // SAFETY: this call has reserved these words, and they are in the arena.
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

    /// Learns that a stack has this shape and these return addresses. Returns the stack's hash if
    /// such stacks can be guessed from now on.
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
