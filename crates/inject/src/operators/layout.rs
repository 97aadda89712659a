//! Finds where PyTorch's objects have what is read of them: by functions of PyTorch itself, on
//! memory of ours that is laid out as such an object.

use super::cpp_call;
use crate::loaded::{self, Loaded};
use core::ffi::CStr;
use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering::*};
use tprof_wire::operators::unread;

const NAME: &CStr = c"_ZNK2at14RecordFunction4nameEv";
const INPUT_SIZES: &CStr = c"_ZN5torch8profiler4impl10inputSizesERKN2at14RecordFunctionEb";
const GET_SIZES: &CStr = c"aoti_torch_get_sizes";
const GET_DIM: &CStr = c"aoti_torch_get_dim";
const GET_DTYPE: &CStr = c"aoti_torch_get_dtype";
const IS_LIST: &CStr = c"_ZNK3c106IValue12isTensorListEv";
const IS_WHOLE_LIST: &CStr = c"_ZNK3c106IValue9isIntListEv";
const IS_TRUTH_LIST: &CStr = c"_ZNK3c106IValue10isBoolListEv";
const TRUTH_TYPE: &CStr = c"_ZN3c108BoolType3getEv";
const TYPE_OF_TAG: &CStr = c"_ZN3c106IValue7TagTypeINS_4TypeEE3getERKS0_";
const TENSOR: &CStr = c"_ZTVN3c1010TensorImplE";
const DELETE: &CStr = c"_ZdlPv";

/// Words of the objects that are laid out.
const WORDS: usize = 96;
/// A `RecordFunction` begins with its callbacks: inputs begin behind these words.
const FIRST_WORD: usize = 14;
/// Inputs begin before this word.
const LAST_WORD: usize = 64;

/// Places of what is read in PyTorch's objects; offsets are in bytes.
pub struct Layout {
    /// Address of `at::RecordFunction::name() const`.
    pub name: AtomicUsize,
    /// Offset in a `RecordFunction` of its inputs: address and number of `IValue`s; 0 while not
    /// known. Autograd's number lies before them.
    pub inputs: AtomicUsize,
    /// Offset in a `TensorImpl` of the first of its sizes; the word before is how many; 0 while not
    /// known.
    pub sizes: AtomicUsize,
    /// Offset in a `TensorImpl` of its type, 2 bytes; 0 while not known.
    pub of_type: AtomicUsize,
    /// The word that a plain `TensorImpl` begins with: others may have no sizes, or computed ones.
    pub tensor: AtomicUsize,
    /// `c10::IValue::isTensorList() const`; 0 while not known.
    pub is_list: AtomicUsize,
    /// `c10::IValue::isIntList() const`; 0 while not known.
    pub is_whole_list: AtomicUsize,
    /// `c10::IValue::isBoolList() const`; 0 while not known.
    pub is_truth_list: AtomicUsize,
    /// Tag of truth values, which versions number differently; 0 while not known.
    pub truth: AtomicU32,
    /// Tag of lists, by the first one; 0 while not known.
    pub list: AtomicU32,
}

/// The layout of the PyTorch in this process.
pub static LAYOUT: Layout = Layout {
    name: AtomicUsize::new(0),
    inputs: AtomicUsize::new(0),
    sizes: AtomicUsize::new(0),
    of_type: AtomicUsize::new(0),
    tensor: AtomicUsize::new(0),
    is_list: AtomicUsize::new(0),
    is_whole_list: AtomicUsize::new(0),
    is_truth_list: AtomicUsize::new(0),
    truth: AtomicU32::new(0),
    list: AtomicU32::new(0),
};

/// Finds it; the error, of [`unread`], says why inputs have no sizes. Without the first function
/// there are not even names: `None`.
pub fn find(torch: &Loaded) -> Option<Result<(), u64>> {
    LAYOUT.name.store(torch.function(NAME)?, Relaxed);
    for place in [&LAYOUT.inputs, &LAYOUT.sizes, &LAYOUT.of_type, &LAYOUT.tensor] {
        place.store(0, Relaxed);
    }
    let Some(input_sizes) = torch.function(INPUT_SIZES).filter(|_| cpp_call::prepare()) else {
        return Some(Err(unread::NO_FUNCTION));
    };
    let inputs = match inputs_at(input_sizes) {
        Ok(at) => at,
        Err(why) => return Some(Err(why)),
    };
    LAYOUT.inputs.store(inputs, Relaxed);
    let by_name = [
        (&LAYOUT.is_list, IS_LIST),
        (&LAYOUT.is_whole_list, IS_WHOLE_LIST),
        (&LAYOUT.is_truth_list, IS_TRUTH_LIST),
    ];
    for (place, name) in by_name {
        place.store(torch.function(name).unwrap_or(0), Relaxed);
    }
    LAYOUT.list.store(0, Relaxed);
    LAYOUT.truth.store(truth_tag(torch).unwrap_or(0), Relaxed);
    Some(find_sizes(torch, &InputList { function: input_sizes, at: inputs }))
}

/// The tag of truth values: the one whose values have the type of these. Those tried, behind
/// the last that all versions number alike, are of values whose type follows from the tag only.
fn truth_tag(torch: &Loaded) -> Option<u32> {
    const FIRST: u32 = 6;
    const LAST: u32 = 10;
    let (get, of_tag) = (torch.function(TRUTH_TYPE)?, torch.function(TYPE_OF_TAG)?);
    let mut place = [0u64; 4];
    // SAFETY: `BoolType::get()`, which takes nothing and returns a pointer; a build in which that
    // is no plain one writes it to the first argument.
    let returned = unsafe { cpp_call::call(get, [(&raw mut place) as u64, 0, 0]) }?;
    let truth = place.first().copied().filter(|at| *at != 0).unwrap_or(returned);
    (FIRST..=LAST).find(|tag| {
        let value = [0u64, u64::from(*tag)];
        // A pointer, and another that owns the type: none does of these.
        let mut of = [0u64; 4];
        let arguments = [(&raw mut of) as u64, (&raw const value) as u64, 0];
        // SAFETY: the function's arguments: where the result goes, and a value with this tag,
        // which the function does not look into.
        unsafe { cpp_call::call(of_tag, arguments) }.is_some() && of.first() == Some(&truth)
    })
}

/// Finds where a `RecordFunction` has its inputs: `inputSizes` of an object with one input at that
/// place only returns one list. What lies before is odd, so that a build with assertions finds
/// the inputs valid; what lies behind is zero: no inputs.
fn inputs_at(input_sizes: usize) -> Result<usize, u64> {
    let none = [0u64; 2];
    for at in FIRST_WORD..LAST_WORD {
        let list = InputList { function: input_sizes, at: at * 8 };
        // SAFETY: at each place tried so far lies an input, or a count of none.
        if unsafe { list.of(&none) }?.is_some() {
            return Ok(at * 8);
        }
    }
    Err(unread::NO_PLACE)
}

/// `inputSizes`, and where it reads the inputs.
struct InputList {
    function: usize,
    at: usize,
}

impl InputList {
    /// How many sizes it gives of one input; `None` where it finds no input.
    ///
    /// # Safety
    /// `input` is an `IValue`; before `at` the function reads no inputs.
    unsafe fn of(&self, input: &[u64; 2]) -> Result<Option<u64>, u64> {
        let mut object = [0u64; WORDS];
        let before = self.at / 8;
        object.iter_mut().take(before).for_each(|word| *word = 0x0101_0101_0101_0101);
        if let Some([address, count]) = object.get_mut(before..before + 2) {
            *address = input.as_ptr() as u64;
            *count = 1;
        }
        let mut lists = [0u64; 3];
        let arguments = [(&raw mut lists) as u64, object.as_ptr() as u64, 0];
        // SAFETY: the function's arguments: where the result goes (a vector, of three words), an
        // object, a flag. Of the object it reads the inputs, by the caller's premise.
        if unsafe { cpp_call::call(self.function, arguments) }.is_none() {
            return Err(unread::THROWN);
        }
        let [first, end, _] = lists;
        let count = match end.wrapping_sub(first) {
            0 => Ok(None),
            // One list: a vector.
            24 => {
                // SAFETY: a vector's first two words.
                let (from, to) = unsafe { (word(first as usize), word(first as usize + 8)) };
                free(from);
                Ok(Some(to.wrapping_sub(from) / 8))
            }
            _ => Err(unread::NO_PLACE),
        };
        free(first);
        count
    }
}

/// Frees what a vector held.
fn free(memory: u64) {
    let delete = || {
        loaded::find(|loaded| {
            loaded.base().starts_with(b"libstdc++.so").then(|| loaded.function(DELETE))?
        })
    };
    if memory != 0
        && let Some(delete) = delete()
    {
        // SAFETY: `operator delete(void*)` of what the vector's `operator new` gave; without an
        // exception for certain.
        unsafe {
            core::mem::transmute::<usize, unsafe extern "C" fn(u64)>(delete)(memory);
        }
    }
}

/// Finds where a `TensorImpl` has its sizes and its type.
fn find_sizes(torch: &Loaded, list: &InputList) -> Result<(), u64> {
    let of_core = |loaded: &Loaded| {
        loaded.base().starts_with(b"libc10.so").then(|| loaded.variable(TENSOR))?
    };
    let vtable = loaded::find(of_core).ok_or(unread::NO_FUNCTION)?;
    let mut object = [0u64; WORDS];
    let at = match (torch.function(GET_SIZES), torch.function(GET_DIM)) {
        (Some(get_sizes), Some(get_dim)) => sizes_by_functions(get_sizes, get_dim)?,
        _ => sizes_by_list(list)?,
    };
    let of_type = at + TYPE_BEHIND;
    if let Some(word) = object.get_mut(of_type / 8) {
        *word = u64::from(DOUBLE);
    }
    if torch.function(GET_DTYPE).is_some_and(|get| read(get, &object) == Ok(u64::from(DOUBLE))) {
        LAYOUT.of_type.store(of_type, Relaxed);
    }
    LAYOUT.tensor.store(vtable + 16, Relaxed);
    LAYOUT.sizes.store(at, Relaxed);
    Ok(())
}

/// Finds where its sizes are, by the functions of the stable ABI that read them.
fn sizes_by_functions(get_sizes: usize, get_dim: usize) -> Result<usize, u64> {
    let mut object = [0u64; WORDS];
    let at = read(get_sizes, &object)?.wrapping_sub(object.as_ptr() as u64) as usize;
    if !(16..WORDS * 4).contains(&at) || at & 7 != 0 {
        return Err(unread::NO_PLACE);
    }
    if let Some(count) = object.get_mut(at / 8 - 1) {
        *count = 3;
    }
    let agrees = read(get_dim, &object)? == 3;
    if agrees { Ok(at) } else { Err(unread::NO_PLACE) }
}

/// Finds where its sizes are, before that ABI (PyTorch 2.1): where the only word that is not zero
/// makes `inputSizes` return so many sizes. What is read lies before the flags, which remain zero.
fn sizes_by_list(list: &InputList) -> Result<usize, u64> {
    const FIRST: usize = 4;
    const LAST: usize = 16;
    for count in FIRST..LAST {
        let mut object = [0u64; WORDS];
        if let Some(word) = object.get_mut(count) {
            *word = 3;
        }
        let tensor = [object.as_ptr() as u64, 1];
        // SAFETY: a value that holds a tensor, of zeros but for one word, has the standard way to
        // have sizes.
        if unsafe { list.of(&tensor) }? == Some(3) {
            return Ok((count + 1) * 8);
        }
    }
    Err(unread::NO_PLACE)
}

/// Bytes from the first size to the type: ten words of sizes, the storage's offset, the number of
/// elements.
const TYPE_BEHIND: usize = 12 * 8;
/// Number of `c10::ScalarType::Double`.
const DOUBLE: u16 = 7;

/// The value that `aoti_torch_get_…(tensor, &value)` gives for a tensor with this object.
fn read(function: usize, object: &[u64; WORDS]) -> Result<u64, u64> {
    let tensor = object.as_ptr() as u64;
    let mut value = 0u64;
    let arguments = [(&raw const tensor) as u64, (&raw mut value) as u64, 0];
    // SAFETY: the function's arguments: a tensor, which is a pointer to such an object, and where
    // the value goes. An object of zeros has the standard way to have sizes.
    match unsafe { cpp_call::call(function, arguments) } {
        Some(0) => Ok(value),
        Some(result) if result as u32 == 0 => Ok(value),
        Some(_) => Err(unread::NO_PLACE),
        None => Err(unread::THROWN),
    }
}

/// Reads a word.
///
/// # Safety
/// One lies there, aligned.
#[inline(always)]
pub unsafe fn word(at: usize) -> u64 {
    // SAFETY: the caller's premise.
    unsafe { *(at as *const u64) }
}
