//! Implements the functions of NVTX that tprof records; [`super::install`] makes NVTX's copies call
//! them.

use super::event::{self, Attributes, Text};
use super::ranges::{RangeText, end, mark, name_thread, pop_from, push, start};
use core::ffi::{c_char, c_int};
use tprof_inject::registered_names::{self, Name, NameKind};

type Domain = *const Name;

/// A function with one of the types that NVTX's functions have.
///
/// # Safety
/// The `unsafe` functions rely on how NVTX's headers call them. A text is null or ends with a zero.
/// Attributes are null or point at a structure that has the size in its own size field. Texts and
/// attributes don't change during the call.
#[derive(Clone, Copy)]
pub enum Function {
    Ex(unsafe extern "C" fn(*const Attributes)),
    ExInt(unsafe extern "C" fn(*const Attributes) -> c_int),
    ExId(unsafe extern "C" fn(*const Attributes) -> u64),
    Bytes(unsafe extern "C" fn(*const c_char)),
    BytesInt(unsafe extern "C" fn(*const c_char) -> c_int),
    BytesId(unsafe extern "C" fn(*const c_char) -> u64),
    BytesHandle(unsafe extern "C" fn(*const c_char) -> Domain),
    Wide(unsafe extern "C" fn(*const u32)),
    WideInt(unsafe extern "C" fn(*const u32) -> c_int),
    WideId(unsafe extern "C" fn(*const u32) -> u64),
    WideHandle(unsafe extern "C" fn(*const u32) -> Domain),
    NumberBytes(unsafe extern "C" fn(u32, *const c_char)),
    NumberWide(unsafe extern "C" fn(u32, *const u32)),
    Id(extern "C" fn(u64)),
    Nothing(extern "C" fn() -> c_int),
    In(extern "C" fn(Domain) -> c_int),
    InEx(unsafe extern "C" fn(Domain, *const Attributes)),
    InExInt(unsafe extern "C" fn(Domain, *const Attributes) -> c_int),
    InExId(unsafe extern "C" fn(Domain, *const Attributes) -> u64),
    InId(extern "C" fn(Domain, u64)),
    InBytesHandle(unsafe extern "C" fn(Domain, *const c_char) -> Domain),
    InWideHandle(unsafe extern "C" fn(Domain, *const u32) -> Domain),
    InNumberBytes(unsafe extern "C" fn(Domain, u32, *const c_char)),
    InNumberWide(unsafe extern "C" fn(Domain, u32, *const u32)),
}

impl Function {
    /// Address of the function.
    pub fn address(self) -> usize {
        use Function::*;
        match self {
            Ex(f) => f as usize,
            ExInt(f) => f as usize,
            ExId(f) => f as usize,
            Bytes(f) => f as usize,
            BytesInt(f) => f as usize,
            BytesId(f) => f as usize,
            BytesHandle(f) => f as usize,
            Wide(f) => f as usize,
            WideInt(f) => f as usize,
            WideId(f) => f as usize,
            WideHandle(f) => f as usize,
            NumberBytes(f) => f as usize,
            NumberWide(f) => f as usize,
            Id(f) => f as usize,
            Nothing(f) => f as usize,
            In(f) => f as usize,
            InEx(f) => f as usize,
            InExInt(f) => f as usize,
            InExId(f) => f as usize,
            InId(f) => f as usize,
            InBytesHandle(f) => f as usize,
            InWideHandle(f) => f as usize,
            InNumberBytes(f) => f as usize,
            InNumberWide(f) => f as usize,
        }
    }
}

/// Functions of NVTX's module `CORE`, each with its number.
pub const CORE: &[(u32, Function)] = &[
    (1, Function::Ex(mark_ex)),
    (2, Function::Bytes(mark_bytes)),
    (3, Function::Wide(mark_wide)),
    (4, Function::ExId(start_ex)),
    (5, Function::BytesId(start_bytes)),
    (6, Function::WideId(start_wide)),
    (7, Function::Id(end)),
    (8, Function::ExInt(push_ex)),
    (9, Function::BytesInt(push_bytes)),
    (10, Function::WideInt(push_wide)),
    (11, Function::Nothing(pop)),
    (12, Function::NumberBytes(category_bytes)),
    (13, Function::NumberWide(category_wide)),
    (14, Function::NumberBytes(thread_bytes)),
    (15, Function::NumberWide(thread_wide)),
];

/// Functions of NVTX's module `CORE2`, each with its number. tprof doesn't implement resources (6,
/// 7), `nvtxInitialize` (15), and the end of a domain (14), since the domain keeps its name.
pub const DOMAINS: &[(u32, Function)] = &[
    (1, Function::InEx(domain_mark)),
    (2, Function::InExId(domain_start)),
    (3, Function::InId(domain_end)),
    (4, Function::InExInt(domain_push)),
    (5, Function::In(domain_pop)),
    (8, Function::InNumberBytes(domain_category_bytes)),
    (9, Function::InNumberWide(domain_category_wide)),
    (10, Function::InBytesHandle(register_bytes)),
    (11, Function::InWideHandle(register_wide)),
    (12, Function::BytesHandle(create_bytes)),
    (13, Function::WideHandle(create_wide)),
];

/// # Safety
/// The same premises as [`event::with`].
unsafe fn name_category(domain: Domain, number: u32, text: Text) {
    let domain = registered_names::of_handle(domain);
    // SAFETY: the caller guarantees the premises of `event::with` for the text.
    unsafe { event::with(text, |text| registered_names::name_category(domain, number, text)) };
}

/// Returns a handle for a text; null if there is no room for names, as NVTX does without a tool.
///
/// # Safety
/// The same premises as [`event::with`].
unsafe fn handle(kind: NameKind, text: Text) -> Domain {
    // SAFETY: the caller guarantees the premises of `event::with` for the text.
    let name = unsafe { event::with(text, |text| registered_names::name(kind, text)) };
    name.map_or(core::ptr::null(), core::ptr::from_ref)
}

// NVTX calls the following functions with its own types: a text is passed as bytes, as `wchar_t`s,
// or in a structure.

unsafe extern "C" fn mark_ex(at: *const Attributes) {
    // SAFETY: NVTX's headers pass null or attributes of the size that they state, see `Function`.
    unsafe { mark(RangeText::Described(None, at)) };
}
unsafe extern "C" fn mark_bytes(text: *const c_char) {
    // SAFETY: NVTX's headers pass null or a text that ends with a zero, see `Function`.
    unsafe { mark(RangeText::Named(Text::Bytes(text))) };
}
unsafe extern "C" fn mark_wide(text: *const u32) {
    // SAFETY: NVTX's headers pass null or a text that ends with a zero, see `Function`.
    unsafe { mark(RangeText::Named(Text::Wide(text))) };
}
unsafe extern "C" fn start_ex(at: *const Attributes) -> u64 {
    // SAFETY: NVTX's headers pass null or attributes of the size that they state, see `Function`.
    unsafe { start(RangeText::Described(None, at)) }
}
unsafe extern "C" fn start_bytes(text: *const c_char) -> u64 {
    // SAFETY: NVTX's headers pass null or a text that ends with a zero, see `Function`.
    unsafe { start(RangeText::Named(Text::Bytes(text))) }
}
unsafe extern "C" fn start_wide(text: *const u32) -> u64 {
    // SAFETY: NVTX's headers pass null or a text that ends with a zero, see `Function`.
    unsafe { start(RangeText::Named(Text::Wide(text))) }
}
unsafe extern "C" fn push_ex(at: *const Attributes) -> c_int {
    // SAFETY: NVTX's headers pass null or attributes of the size that they state, see `Function`.
    unsafe { push(None, RangeText::Described(None, at)) }
}
unsafe extern "C" fn push_bytes(text: *const c_char) -> c_int {
    // SAFETY: NVTX's headers pass null or a text that ends with a zero, see `Function`.
    unsafe { push(None, RangeText::Named(Text::Bytes(text))) }
}
unsafe extern "C" fn push_wide(text: *const u32) -> c_int {
    // SAFETY: NVTX's headers pass null or a text that ends with a zero, see `Function`.
    unsafe { push(None, RangeText::Named(Text::Wide(text))) }
}
extern "C" fn pop() -> c_int {
    pop_from(None)
}
unsafe extern "C" fn category_bytes(number: u32, text: *const c_char) {
    // SAFETY: NVTX's headers pass null or a text that ends with a zero, see `Function`.
    unsafe { name_category(core::ptr::null(), number, Text::Bytes(text)) };
}
unsafe extern "C" fn category_wide(number: u32, text: *const u32) {
    // SAFETY: NVTX's headers pass null or a text that ends with a zero, see `Function`.
    unsafe { name_category(core::ptr::null(), number, Text::Wide(text)) };
}
unsafe extern "C" fn thread_bytes(tid: u32, text: *const c_char) {
    // SAFETY: NVTX's headers pass null or a text that ends with a zero, see `Function`.
    unsafe { name_thread(tid, Text::Bytes(text)) };
}
unsafe extern "C" fn thread_wide(tid: u32, text: *const u32) {
    // SAFETY: NVTX's headers pass null or a text that ends with a zero, see `Function`.
    unsafe { name_thread(tid, Text::Wide(text)) };
}
unsafe extern "C" fn domain_mark(domain: Domain, at: *const Attributes) {
    // SAFETY: NVTX's headers pass null or attributes of the size that they state, see `Function`.
    unsafe { mark(RangeText::Described(registered_names::of_handle(domain), at)) };
}
unsafe extern "C" fn domain_start(domain: Domain, at: *const Attributes) -> u64 {
    // SAFETY: NVTX's headers pass null or attributes of the size that they state, see `Function`.
    unsafe { start(RangeText::Described(registered_names::of_handle(domain), at)) }
}
extern "C" fn domain_end(_: Domain, id: u64) {
    end(id);
}
unsafe extern "C" fn domain_push(domain: Domain, at: *const Attributes) -> c_int {
    let domain = registered_names::of_handle(domain);
    // SAFETY: NVTX's headers pass null or attributes of the size that they state, see `Function`.
    unsafe { push(domain, RangeText::Described(domain, at)) }
}
extern "C" fn domain_pop(domain: Domain) -> c_int {
    pop_from(registered_names::of_handle(domain))
}
unsafe extern "C" fn domain_category_bytes(domain: Domain, number: u32, text: *const c_char) {
    // SAFETY: NVTX's headers pass null or a text that ends with a zero, see `Function`.
    unsafe { name_category(domain, number, Text::Bytes(text)) };
}
unsafe extern "C" fn domain_category_wide(domain: Domain, number: u32, text: *const u32) {
    // SAFETY: NVTX's headers pass null or a text that ends with a zero, see `Function`.
    unsafe { name_category(domain, number, Text::Wide(text)) };
}
unsafe extern "C" fn register_bytes(_: Domain, text: *const c_char) -> Domain {
    // SAFETY: NVTX's headers pass null or a text that ends with a zero, see `Function`.
    unsafe { handle(NameKind::Text, Text::Bytes(text)) }
}
unsafe extern "C" fn register_wide(_: Domain, text: *const u32) -> Domain {
    // SAFETY: NVTX's headers pass null or a text that ends with a zero, see `Function`.
    unsafe { handle(NameKind::Text, Text::Wide(text)) }
}
unsafe extern "C" fn create_bytes(text: *const c_char) -> Domain {
    // SAFETY: NVTX's headers pass null or a text that ends with a zero, see `Function`.
    unsafe { handle(NameKind::Domain, Text::Bytes(text)) }
}
unsafe extern "C" fn create_wide(text: *const u32) -> Domain {
    // SAFETY: NVTX's headers pass null or a text that ends with a zero, see `Function`.
    unsafe { handle(NameKind::Domain, Text::Wide(text)) }
}
