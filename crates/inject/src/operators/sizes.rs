//! Reads the sizes and types of an operator's inputs, and lists of numbers among the inputs,
//! directly from PyTorch's objects.
//!
//! It reads only tensors whose layout is certain. They must have the vtable of plain tensors
//! (nested, sparse and undefined tensors have others) and no extra metadata (symbolic sizes). Their
//! number of elements must be the product of their sizes.

use super::layout::{LAYOUT, word};
use core::mem::MaybeUninit;
use tprof_wire::operators::{Input, MAX_LISTED, MAX_NUMBERS, NO_TYPE, SIZES_WORDS};
use tprof_wire::sync::{AtomicUsize, Ordering::Relaxed};

/// Number of words of an `IValue`: its contents, and its tag.
const VALUE_WORDS: usize = 2;
/// Number of `IValue::Tag::Tensor`.
const TENSOR: u32 = 1;
/// Last tag of plain numbers, which is that of integers (`IValue::Tag::Int`). Tags up to this one
/// are the same in all versions.
const LAST_NUMBER: u32 = 5;
/// Maximum number of dimensions in PyTorch. A tensor that seems to have more isn't plain.
const DIMS_MOST: u64 = 64;

/// Passes the sizes of a `RecordFunction`'s inputs to `id`, and returns the id that it returns; 0
/// if there are no inputs.
///
/// # Safety
/// `function` is the address of a `RecordFunction`, in its start callback, and the offset of its
/// inputs is known.
#[inline]
pub unsafe fn of(function: usize, id: impl FnOnce(&[u8]) -> u32) -> u32 {
    let at = LAYOUT.inputs.load(Relaxed);
    // SAFETY: the caller guarantees a `RecordFunction` with its inputs at this offset: the address
    // of the values, then their number.
    let (values, count) = unsafe { (word(function + at), word(function + at + 8)) };
    if LAYOUT.sizes.load(Relaxed) == 0 || count == 0 || values == 0 {
        return 0;
    }
    // The array is a `const` expression. An array that copies one value would be a `memset` of 3.5
    // KB for each operator.
    let mut list = List { words: [const { MaybeUninit::uninit() }; SIZES_WORDS], len: 0 };
    for value in 0..count as usize {
        let value = values as usize + value * VALUE_WORDS * 8;
        // SAFETY: `values` is the address of `count` values.
        let (held, tag) = unsafe { (word(value), word(value + 8) as u32) };
        let fits = match tag {
            // SAFETY: a value with this tag contains a tensor, which outlives the callback.
            TENSOR => unsafe { list.tensor(held as usize) },
            // SAFETY: this is a value of PyTorch's own with this tag. If the tag is that of a list,
            // the value contains one.
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

/// Calls one of PyTorch's functions that return a fact about a value. Returns false if the function
/// was not found.
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
    // SAFETY: the caller guarantees `IValue::isTensorList() const` or a similar function. These
    // throw no exception.
    unsafe { core::mem::transmute::<usize, unsafe extern "C" fn(usize) -> bool>(function)(value) }
}

struct List {
    /// The packed inputs and sizes. Most words are never used, so they are not cleared for each
    /// operator.
    words: [MaybeUninit<u64>; SIZES_WORDS],
    /// Number of words that were written.
    len: usize,
}

impl List {
    /// Adds an input after which `sizes` sizes will follow. Returns false if there is no room for
    /// all of this and one more word.
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

    /// Adds a value that is neither a tensor nor a number. Returns false if there is no room for
    /// it.
    ///
    /// # Safety
    /// `value` is the address of an `IValue` with the contents `held` and this tag.
    #[inline]
    unsafe fn other(&mut self, value: usize, held: u64, tag: u32) -> bool {
        if tag == LAYOUT.truth.load(Relaxed) {
            // Only the first byte belongs to a boolean value.
            return self.push(Input::Truth { value: held as u8 != 0 }, 0);
        }
        let known = LAYOUT.list.load(Relaxed);
        if known != 0 && known != tag {
            return self.push(Input::Other { tag }, 0);
        }
        // SAFETY: the caller guarantees an `IValue`. If it is one of these lists, `held` is the
        // list's address.
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

    /// Adds a list of integers or booleans. Returns false if there is no room for it.
    ///
    /// # Safety
    /// `object` is the address of a `ListImpl` of integers or booleans.
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

    /// Adds a list of tensors. Returns false if there is no room for it.
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
                // SAFETY: a value with this tag contains a tensor.
                (held, TENSOR) => unsafe { self.tensor(held as usize) },
                _ => self.push(Input::Unread, 0),
            }
        })
    }

    /// Adds a tensor. Returns false if there is no room for it.
    ///
    /// # Safety
    /// `object` is the address of a `TensorImpl`.
    #[inline]
    unsafe fn tensor(&mut self, object: usize) -> bool {
        let at = LAYOUT.sizes.load(Relaxed);
        // SAFETY: the caller guarantees a `TensorImpl`, which has its sizes at the known offset.
        // The vtable, the extra metadata and the number of sizes precede them.
        let (vtable, extra, dims) =
            unsafe { (word(object), word(object + extra_at(at)), word(object + at - 8)) };
        if vtable as usize != LAYOUT.tensor.load(Relaxed) || extra != 0 || dims > DIMS_MOST {
            return self.push(Input::Unread, 0);
        }
        let dims = dims as usize;
        // Tensors with more dimensions have their sizes in separate memory.
        const INSIDE: usize = 5;
        let sizes = match dims <= INSIDE {
            true => object + at,
            // SAFETY: a plain tensor with more dimensions has the address of its sizes at this
            // offset.
            false => unsafe { word(object + at) as usize },
        };
        let type_at = LAYOUT.of_type.load(Relaxed);
        let of = match type_at {
            0 => NO_TYPE,
            // SAFETY: a plain tensor has its type at this offset.
            at => unsafe { word(object + at) as u8 },
        };
        let begin = self.len;
        if !self.push(Input::Tensor { dims: dims as u16, of }, dims) {
            return false;
        }
        // SAFETY: in a plain tensor, the number of elements follows ten words of sizes and the
        // storage's offset.
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

/// Returns the address of a list's values and their number; `None` if they are implausible.
///
/// # Safety
/// `object` is the address of a `ListImpl`.
#[inline]
unsafe fn values(object: usize) -> Option<(usize, usize)> {
    let at = object + values_at(LAYOUT.sizes.load(Relaxed));
    // SAFETY: the caller guarantees a `ListImpl`, in which a vector follows the vtable and the
    // counts of references.
    let (first, end) = unsafe { (word(at) as usize, word(at + 8) as usize) };
    let makes_sense = first <= end && (first | end).is_multiple_of(8);
    makes_sense.then(|| (first, (end - first) / (VALUE_WORDS * 8)))
}

/// Bytes from the first size to the number of elements. Between them are the ten words of sizes and
/// the storage's offset.
const ELEMENTS_BEHIND: usize = 11 * 8;

/// Offset of the extra metadata in a `TensorImpl` whose sizes are at offset `sizes`. A `TensorImpl`
/// begins with its vtable, counts of references (8 or 16 bytes), storage, autograd's metadata,
/// extra metadata, version, and one or two words of Python's. The number of sizes follows.
#[inline]
fn extra_at(sizes: usize) -> usize {
    if sizes < WITH_LONG_COUNTS { 32 } else { 40 }
}

/// Offset of a list's values, after its vtable and counts, in a version whose tensors have sizes at
/// offset `sizes`.
#[inline]
fn values_at(sizes: usize) -> usize {
    if sizes < WITH_LONG_COUNTS { 16 } else { 24 }
}

/// In versions whose counts of references have 16 bytes, the sizes of a tensor are at this offset
/// or a higher one.
const WITH_LONG_COUNTS: usize = 80;
