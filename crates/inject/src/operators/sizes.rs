//! Reads the sizes and types of an operator's inputs in place, and lists of numbers among the
//! inputs.
//!
//! Only what is certain is read: plain tensors (nested, sparse, and undefined ones have other
//! vtables) without extra metadata (symbolic sizes), and with sizes whose product is the number of
//! elements.

use super::layout::{LAYOUT, word};
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use tprof_wire::operators::{Input, MAX_LISTED, MAX_NUMBERS, NO_TYPE, SIZES_WORDS};

/// Number of words of an `IValue`: the value that it holds, and its tag.
const VALUE_WORDS: usize = 2;
/// Number of `IValue::Tag::Tensor`.
const TENSOR: u32 = 1;
/// Last tag of plain numbers, that of integers (`IValue::Tag::Int`). All versions have the same
/// tags up to here.
const LAST_NUMBER: u32 = 5;
/// Tensors with more dimensions are not plain: PyTorch has at most 64.
const DIMS_MOST: u64 = 64;

/// The id of the sizes of a `RecordFunction`'s inputs, which `id` returns; 0 if there are none.
///
/// # Safety
/// `function` is the address of a `RecordFunction`, in its start callback, and the offset of its
/// inputs is known.
#[inline]
pub unsafe fn of(function: usize, id: impl FnOnce(&[u8]) -> u32) -> u32 {
    let at = LAYOUT.inputs.load(Relaxed);
    // SAFETY: the caller guarantees that a `RecordFunction` with inputs at this offset lies there:
    // the address of the values, then their number.
    let (values, count) = unsafe { (word(function + at), word(function + at + 8)) };
    if LAYOUT.sizes.load(Relaxed) == 0 || count == 0 || values == 0 {
        return 0;
    }
    // The array is `const`: copying one value so often would be a `memset` of 3.5 KB for each
    // operator.
    let mut list = List { words: [const { MaybeUninit::uninit() }; SIZES_WORDS], len: 0 };
    for value in 0..count as usize {
        let value = values as usize + value * VALUE_WORDS * 8;
        // SAFETY: `values` is the address of `count` values.
        let (held, tag) = unsafe { (word(value), word(value + 8) as u32) };
        let fits = match tag {
            // SAFETY: a value with this tag holds a tensor, which outlives the callback.
            TENSOR => unsafe { list.tensor(held as usize) },
            // SAFETY: this is a value of PyTorch's own with this tag; if it is a list, it holds
            // one.
            tag if tag > LAST_NUMBER => unsafe { list.other(value, held, tag) },
            tag => list.push(Input::Other { tag }, 0),
        };
        if !fits {
            list.more();
            break;
        }
    }
    let words = list.words.get(..list.len).unwrap_or_default();
    // SAFETY: `push` has written all words up to `len`, and words can be read as bytes.
    let bytes = unsafe { core::slice::from_raw_parts(words.as_ptr().cast(), words.len() * 8) };
    id(bytes)
}

/// Asks one of PyTorch's own functions about a value. Returns false if that function was not found.
///
/// # Safety
/// `value` is the address of an `IValue`; `function` is 0 or the address of a member function of
/// `IValue` that returns a `bool`.
#[inline(always)]
unsafe fn ask(function: &AtomicUsize, value: usize) -> bool {
    let function = function.load(Relaxed);
    if function == 0 {
        return false;
    }
    // SAFETY: the caller guarantees `IValue::isTensorList() const` or one like it, which throws
    // nothing.
    unsafe { core::mem::transmute::<usize, unsafe extern "C" fn(usize) -> bool>(function)(value) }
}

struct List {
    /// The packed inputs and sizes. Most words are never used, and are not cleared for each
    /// operator.
    words: [MaybeUninit<u64>; SIZES_WORDS],
    /// Number of words that are written.
    len: usize,
}

impl List {
    /// Adds an input for which so many sizes will follow. Returns false if there is no room for
    /// these and one more word.
    #[inline]
    fn push(&mut self, input: Input, sizes: usize) -> bool {
        if self.len + 1 + sizes >= SIZES_WORDS {
            return false;
        }
        if let Some(word) = self.words.get_mut(self.len) {
            word.write(input.pack());
        }
        self.len += 1;
        true
    }

    fn more(&mut self) {
        if let Some(word) = self.words.get_mut(self.len) {
            word.write(Input::More.pack());
            self.len += 1;
        }
    }

    /// Adds a value that is neither a tensor nor a number. Returns false if there is no room.
    ///
    /// # Safety
    /// `value` is the address of an `IValue` that holds `held` with this tag.
    #[inline]
    unsafe fn other(&mut self, value: usize, held: u64, tag: u32) -> bool {
        if tag == LAYOUT.truth.load(Relaxed) {
            // Only the first byte belongs to a truth value.
            return self.push(Input::Truth { value: held as u8 != 0 }, 0);
        }
        let known = LAYOUT.list.load(Relaxed);
        if known != 0 && known != tag {
            return self.push(Input::Other { tag }, 0);
        }
        // SAFETY: the caller guarantees an `IValue`; if it is one of these lists, `held` is the
        // address of one.
        let fits = unsafe {
            if ask(&LAYOUT.is_list, value) {
                self.tensors(held as usize)
            } else if ask(&LAYOUT.is_whole_list, value) {
                self.numbers(held as usize, tag, false)
            } else if ask(&LAYOUT.is_truth_list, value) {
                self.numbers(held as usize, tag, true)
            } else {
                return self.push(Input::Other { tag }, 0);
            }
        };
        LAYOUT.list.store(tag, Relaxed);
        fits
    }

    /// Adds a list of numbers or truth values. Returns false if there is no room.
    ///
    /// # Safety
    /// `object` is the address of a `ListImpl` of numbers or truth values.
    unsafe fn numbers(&mut self, object: usize, tag: u32, truths: bool) -> bool {
        // SAFETY: the caller guarantees a `ListImpl`.
        let (first, count) = match unsafe { values(object) } {
            Some((first, count)) if count <= MAX_NUMBERS => (first, count),
            _ => return self.push(Input::Other { tag }, 0),
        };
        let begin = self.len;
        if !self.push(Input::Numbers { count: count as u32, truths }, count) {
            return false;
        }
        let wanted = if truths { LAYOUT.truth.load(Relaxed) } else { LAST_NUMBER };
        let places = self.words.get_mut(self.len..self.len + count).unwrap_or_default();
        let mut is_plain = true;
        for (at, place) in places.iter_mut().enumerate() {
            let value = first + at * VALUE_WORDS * 8;
            // SAFETY: `first` is the address of `count` values.
            let (held, of) = unsafe { (word(value), word(value + 8) as u32) };
            is_plain &= of == wanted;
            place.write(if truths { u64::from(held as u8 != 0) } else { held });
        }
        self.len += count;
        if !is_plain {
            self.len = begin;
            return self.push(Input::Other { tag }, 0);
        }
        true
    }

    /// Adds a list of tensors. Returns false if there is no room.
    ///
    /// # Safety
    /// `object` is the address of a `ListImpl` of tensors.
    unsafe fn tensors(&mut self, object: usize) -> bool {
        // SAFETY: the caller guarantees a `ListImpl`.
        let Some((first, count)) = (unsafe { values(object) }) else {
            return self.push(Input::Unread, 0);
        };
        if !self.push(Input::Tensors { count: u32::try_from(count).unwrap_or(u32::MAX) }, 0) {
            return false;
        }
        if count > MAX_LISTED {
            return true;
        }
        (0..count).all(|value| {
            let value = first + value * VALUE_WORDS * 8;
            // SAFETY: `first` is the address of `count` values.
            match unsafe { (word(value), word(value + 8) as u32) } {
                // SAFETY: a value with this tag holds a tensor.
                (held, TENSOR) => unsafe { self.tensor(held as usize) },
                _ => self.push(Input::Unread, 0),
            }
        })
    }

    /// Adds a tensor. Returns false if there is no room.
    ///
    /// # Safety
    /// `object` is the address of a `TensorImpl`.
    #[inline]
    unsafe fn tensor(&mut self, object: usize) -> bool {
        let at = LAYOUT.sizes.load(Relaxed);
        // SAFETY: the caller guarantees a `TensorImpl`, whose sizes are at the known offset; the
        // vtable, the extra metadata and the number of sizes lie before them.
        let (vtable, extra, dims) =
            unsafe { (word(object), word(object + extra_at(at)), word(object + at - 8)) };
        if vtable as usize != LAYOUT.tensor.load(Relaxed) || extra != 0 || dims > DIMS_MOST {
            return self.push(Input::Unread, 0);
        }
        let dims = dims as usize;
        // Tensors with more dimensions have their sizes elsewhere.
        const INSIDE: usize = 5;
        let sizes = match dims <= INSIDE {
            true => object + at,
            // SAFETY: a plain tensor with more dimensions has the address of its sizes here.
            false => unsafe { word(object + at) as usize },
        };
        let type_at = LAYOUT.of_type.load(Relaxed);
        let of = match type_at {
            0 => NO_TYPE,
            // SAFETY: a plain tensor has its type at this known offset.
            at => unsafe { word(object + at) as u8 },
        };
        let begin = self.len;
        if !self.push(Input::Tensor { dims: dims as u16, of }, dims) {
            return false;
        }
        // SAFETY: in a plain tensor, ten words of sizes and the storage's offset are followed by
        // the number of elements.
        let elements = unsafe { word(object + at + ELEMENTS_BEHIND) };
        let mut product = 1u64;
        let places = self.words.get_mut(self.len..self.len + dims).unwrap_or_default();
        for (dim, place) in places.iter_mut().enumerate() {
            // SAFETY: a plain tensor has `dims` sizes.
            let size = unsafe { word(sizes + dim * 8) };
            product = product.wrapping_mul(size);
            place.write(size);
        }
        self.len += dims;
        if product != elements {
            self.len = begin;
            return self.push(Input::Unread, 0);
        }
        true
    }
}

/// Returns the address of a list's values and their number; `None` if the two are implausible.
///
/// # Safety
/// `object` is the address of a `ListImpl`.
#[inline]
unsafe fn values(object: usize) -> Option<(usize, usize)> {
    let at = object + values_at(LAYOUT.sizes.load(Relaxed));
    // SAFETY: the caller guarantees a `ListImpl`, in which a vector follows the vtable and the
    // counts.
    let (first, end) = unsafe { (word(at) as usize, word(at + 8) as usize) };
    let makes_sense = first <= end && (first | end).is_multiple_of(8);
    makes_sense.then(|| (first, (end - first) / (VALUE_WORDS * 8)))
}

/// Bytes from the first size to the number of elements: ten words of sizes, then the storage's
/// offset.
const ELEMENTS_BEHIND: usize = 11 * 8;

/// Offset of the extra metadata in a `TensorImpl` with its sizes at this offset. Before the number
/// of sizes, a `TensorImpl` has its vtable, counts of references (8 or 16 bytes), storage,
/// autograd's metadata, extra metadata, version, and one or two words of Python's.
#[inline]
fn extra_at(sizes: usize) -> usize {
    if sizes < WITH_LONG_COUNTS { 32 } else { 40 }
}

/// Offset of a list's values, behind its vtable and counts, in a version with sizes at this offset.
#[inline]
fn values_at(sizes: usize) -> usize {
    if sizes < WITH_LONG_COUNTS { 16 } else { 24 }
}

/// In versions whose counts of references have 16 bytes, sizes are at this offset or a higher one.
const WITH_LONG_COUNTS: usize = 80;
