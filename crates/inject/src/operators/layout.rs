//! Finds the offsets of fields in PyTorch's objects. For this it calls PyTorch's own functions on
//! memory of tprof's that is laid out like such an object.

use super::cpp_call;
use crate::loaded::{self, Loaded};
use core::ffi::CStr;
use tprof_wire::operators::unread;
use tprof_wire::sync::{AtomicU32, AtomicUsize, Ordering::*};

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

/// Number of words of the objects that are built for these calls.
const WORDS: usize = 96;
/// First word at which the search looks for the inputs, since a `RecordFunction` begins with its
/// callbacks.
const FIRST_WORD: usize = 14;
/// The search ends before this word.
const LAST_WORD: usize = 64;

/// Addresses and offsets with which tprof reads PyTorch's objects. Offsets are in bytes.
pub struct Layout {
    /// Address of `at::RecordFunction::name() const`.
    pub name: AtomicUsize,
    /// Offset in a `RecordFunction` of the inputs: the address of the `IValue`s, then their number;
    /// 0 while not known. Autograd's sequence number is in the word before them.
    pub inputs: AtomicUsize,
    /// Offset of the first size in a `TensorImpl`; 0 while not known. The word before it is the
    /// number of sizes.
    pub sizes: AtomicUsize,
    /// Offset of the element type in a `TensorImpl`, 2 bytes; 0 while not known.
    pub of_type: AtomicUsize,
    /// The word that a plain `TensorImpl` begins with: its vtable. Tensors with another vtable may
    /// have no sizes, or computed ones.
    pub tensor: AtomicUsize,
    /// Address of `c10::IValue::isTensorList() const`; 0 while not known.
    pub is_list: AtomicUsize,
    /// Address of `c10::IValue::isIntList() const`; 0 while not known.
    pub is_whole_list: AtomicUsize,
    /// Address of `c10::IValue::isBoolList() const`; 0 while not known.
    pub is_truth_list: AtomicUsize,
    /// Tag of boolean values, which differs between versions; 0 while not known.
    pub truth: AtomicU32,
    /// Tag of lists, learned from the first list in any input; 0 while not known.
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

/// Finds the layout. An error, from [`unread`], says why the sizes of inputs can't be read. `None`
/// means that even the function that returns names is missing.
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

/// Finds the tag of boolean values: the one whose values have the type `bool`. Only tags above the
/// last one that has the same number in all versions are tried. For all of these tags, the type
/// follows from the tag alone.
fn truth_tag(torch: &Loaded) -> Option<u32> {
    const FIRST: u32 = 6;
    const LAST: u32 = 10;
    let (get, of_tag) = (torch.function(TRUTH_TYPE)?, torch.function(TYPE_OF_TAG)?);
    let mut place = [0u64; 4];
    // SAFETY: `BoolType::get()` takes no argument and returns a pointer. In builds where the result
    // isn't a plain pointer, the function writes it to the address in the first argument, which is
    // that of `place`.
    let returned = unsafe { cpp_call::call(get, [(&raw mut place) as u64, 0, 0]) }?;
    let truth = place.first().copied().filter(|at| *at != 0).unwrap_or(returned);
    (FIRST..=LAST).find(|tag| {
        let value = [0u64, u64::from(*tag)];
        // The result has two pointers: one to the type, and one that owns the type and is null for
        // these types.
        let mut of = [0u64; 4];
        let arguments = [(&raw mut of) as u64, (&raw const value) as u64, 0];
        // SAFETY: the arguments are the address for the result and a value with this tag. The
        // function does not read the value's contents.
        unsafe { cpp_call::call(of_tag, arguments) }.is_some() && of.first() == Some(&truth)
    })
}

/// Finds the offset of the inputs in a `RecordFunction`: the only offset at which an object with
/// one input makes `inputSizes` return one list. The words before that offset have odd bytes, so
/// that builds with assertions take the inputs for valid. The words after it are zero, which means
/// no inputs.
fn inputs_at(input_sizes: usize) -> Result<usize, u64> {
    let none = [0u64; 2];
    for at in FIRST_WORD..LAST_WORD {
        let list = InputList { function: input_sizes, at: at * 8 };
        // SAFETY: `none` is an `IValue`. Smaller offsets were tried before, so the function reads
        // its inputs at this offset, where there is one input, or at a higher one, where the count
        // is 0.
        if unsafe { list.of(&none) }?.is_some() {
            return Ok(at * 8);
        }
    }
    Err(unread::NO_PLACE)
}

/// The function `inputSizes`, and the offset at which the object that it gets has the inputs.
struct InputList {
    function: usize,
    at: usize,
}

impl InputList {
    /// Number of sizes that the function returns for one input; `None` if it finds no input.
    ///
    /// # Safety
    /// `input` is an `IValue`, and the function reads no inputs before `at`.
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
        // SAFETY: the arguments are the address for the result (a vector of three words), an
        // object, and a flag. The caller guarantees that the function finds either valid inputs or
        // none.
        if unsafe { cpp_call::call(self.function, arguments) }.is_none() {
            return Err(unread::THROWN);
        }
        let [first, end, _] = lists;
        let count = match end.wrapping_sub(first) {
            0 => Ok(None),
            // 24 bytes are one list, which is a vector itself.
            24 => {
                // SAFETY: `first` is the address of a vector, which begins with these two words.
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

/// Frees the memory of a vector.
fn free(memory: u64) {
    let delete = || {
        loaded::find(|loaded| {
            loaded.base().starts_with(b"libstdc++.so").then(|| loaded.function(DELETE))?
        })
    };
    if memory != 0
        && let Some(delete) = delete()
    {
        // SAFETY: this is `operator delete(void*)`, which never throws, and the memory comes from
        // the `operator new` of a vector.
        unsafe {
            core::mem::transmute::<usize, unsafe extern "C" fn(u64)>(delete)(memory);
        }
    }
}

/// Finds the offsets of the sizes and the type in a `TensorImpl`.
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

/// Finds the offset of the sizes by calling the functions of PyTorch's stable ABI that read them.
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

/// Finds the offset of the sizes in versions before the stable ABI (PyTorch 2.1). The sizes follow
/// their number, which is the only word that makes `inputSizes` return that many sizes when all
/// other words are zero. `inputSizes` reads no word after the flags, and the flags stay zero.
fn sizes_by_list(list: &InputList) -> Result<usize, u64> {
    const FIRST: usize = 4;
    const LAST: usize = 16;
    for count in FIRST..LAST {
        let mut object = [0u64; WORDS];
        if let Some(word) = object.get_mut(count) {
            *word = 3;
        }
        let tensor = [object.as_ptr() as u64, 1];
        // SAFETY: the value contains a tensor whose words are zero, except one. Its flags are zero,
        // which means that it stores its sizes in the standard way.
        if unsafe { list.of(&tensor) }? == Some(3) {
            return Ok((count + 1) * 8);
        }
    }
    Err(unread::NO_PLACE)
}

/// Bytes from the first size to the type. Between them are ten words of sizes, the storage's
/// offset, and the number of elements.
const TYPE_BEHIND: usize = 12 * 8;
/// Number of `c10::ScalarType::Double`.
const DOUBLE: u16 = 7;

/// Calls `aoti_torch_get_…(tensor, &value)` for a tensor with this object, and returns the value.
fn read(function: usize, object: &[u64; WORDS]) -> Result<u64, u64> {
    let tensor = object.as_ptr() as u64;
    let mut value = 0u64;
    let arguments = [(&raw const tensor) as u64, (&raw mut value) as u64, 0];
    // SAFETY: the arguments are a tensor, which is a pointer to such an object, and the address for
    // the value. The object's flags are zero, which means that it stores its sizes in the standard
    // way.
    match unsafe { cpp_call::call(function, arguments) } {
        Some(0) => Ok(value),
        Some(result) if result as u32 == 0 => Ok(value),
        Some(_) => Err(unread::NO_PLACE),
        None => Err(unread::THROWN),
    }
}

/// Reads a word of memory.
///
/// # Safety
/// The word at `at` is aligned and can be read.
#[inline(always)]
pub unsafe fn word(at: usize) -> u64 {
    // SAFETY: the caller guarantees an aligned word.
    unsafe { *(at as *const u64) }
}
