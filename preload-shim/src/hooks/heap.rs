//! The allocator's functions.

use crate::real;
use core::ffi::c_int;
use core::ptr::null_mut;
use tprof_inject::{arming, heap, stack_hook};

/// What libc returns when there is no memory.
const ENOMEM: c_int = 12;

stack_hook!(#[doc = "Hook."] malloc(bytes: usize) -> *mut u8, malloc_impl, "rsi", "rdx");
unsafe extern "C" fn malloc_impl(bytes: usize, sp: usize, fp: usize) -> *mut u8 {
    let block = real!(MALLOC(bytes) as fn(usize) -> *mut u8, else null_mut());
    // SAFETY: what the real function returned.
    unsafe { heap::allocated(block, bytes, sp, fp) };
    block
}

stack_hook!(#[doc = "Hook."] calloc(count: usize, each: usize) -> *mut u8, calloc_impl, "rdx", "rcx");
unsafe extern "C" fn calloc_impl(count: usize, each: usize, sp: usize, fp: usize) -> *mut u8 {
    let block = real!(CALLOC(count, each) as fn(usize, usize) -> *mut u8, else null_mut());
    // SAFETY: what the real function returned.
    unsafe { heap::allocated(block, count.wrapping_mul(each), sp, fp) };
    block
}

/// Hook.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn free(block: *mut u8) {
    if !block.is_null() {
        // SAFETY: the caller gives this block to `free`.
        unsafe { heap::freeing(block) };
    }
    real!(FREE(block) as fn(*mut u8) -> (), else ());
}

stack_hook!(#[doc = "Hook."] realloc(block: *mut u8, bytes: usize) -> *mut u8, realloc_impl, "rdx", "rcx");
unsafe extern "C" fn realloc_impl(block: *mut u8, bytes: usize, sp: usize, fp: usize) -> *mut u8 {
    // SAFETY: the caller gives this block to `realloc`.
    let old = if block.is_null() { None } else { unsafe { heap::reallocating(block) } };
    let new = real!(REALLOC(block, bytes) as fn(*mut u8, usize) -> *mut u8, else null_mut());
    // SAFETY: what the real function returned.
    unsafe { resized(old, block, new, bytes, sp, fp) };
    new
}

stack_hook!(#[doc = "Hook."] reallocarray(block: *mut u8, count: usize, each: usize) -> *mut u8, reallocarray_impl, "rcx", "r8");
unsafe extern "C" fn reallocarray_impl(
    block: *mut u8,
    count: usize,
    each: usize,
    sp: usize,
    fp: usize,
) -> *mut u8 {
    // libc's own calls `realloc` through the PLT, hence through the hook above:
    // recording here as well would count twice. Where it does not (an overflow,
    // which fails), there is nothing to record.
    let Some(bytes) = count.checked_mul(each) else {
        return real!(REALLOCARRAY(block, count, each) as fn(*mut u8, usize, usize) -> *mut u8, else null_mut());
    };
    // SAFETY: as `realloc`, which this is with the product.
    unsafe { realloc_impl(block, bytes, sp, fp) }
}

/// Reports a `realloc` by what came of it.
///
/// # Safety
/// `to` is what the real function returned.
unsafe fn resized(
    old: Option<heap::Reallocation>,
    from: *mut u8,
    to: *mut u8,
    bytes: usize,
    sp: usize,
    fp: usize,
) {
    if from.is_null() {
        // SAFETY: the caller's premise.
        unsafe { heap::allocated(to, bytes, sp, fp) };
    } else {
        // glibc frees on `realloc(p, 0)` and returns NULL.
        let failed = to.is_null() && bytes != 0;
        // SAFETY: the caller's premise.
        unsafe { heap::reallocated(old, from, to, bytes, failed, sp, fp) };
    }
}

stack_hook!(#[doc = "Hook."] posix_memalign(out: *mut *mut u8, align: usize, bytes: usize) -> c_int, posix_memalign_impl, "rcx", "r8");
unsafe extern "C" fn posix_memalign_impl(
    out: *mut *mut u8,
    align: usize,
    bytes: usize,
    sp: usize,
    fp: usize,
) -> c_int {
    let error = real!(POSIX_MEMALIGN(out, align, bytes) as fn(*mut *mut u8, usize, usize) -> c_int, else ENOMEM);
    if error == 0 {
        // SAFETY: on success libc stored the block there.
        unsafe { heap::allocated(*out, bytes, sp, fp) };
    }
    // A tensor takes its memory here, within an operator.
    if arming::is_behind() {
        arming::follow();
    }
    error
}

stack_hook!(#[doc = "Hook."] aligned_alloc(align: usize, bytes: usize) -> *mut u8, aligned_alloc_impl, "rdx", "rcx");
unsafe extern "C" fn aligned_alloc_impl(
    align: usize,
    bytes: usize,
    sp: usize,
    fp: usize,
) -> *mut u8 {
    let block = real!(ALIGNED_ALLOC(align, bytes) as fn(usize, usize) -> *mut u8, else null_mut());
    // SAFETY: what the real function returned.
    unsafe { heap::allocated(block, bytes, sp, fp) };
    block
}

stack_hook!(#[doc = "Hook."] memalign(align: usize, bytes: usize) -> *mut u8, memalign_impl, "rdx", "rcx");
unsafe extern "C" fn memalign_impl(align: usize, bytes: usize, sp: usize, fp: usize) -> *mut u8 {
    let block = real!(MEMALIGN(align, bytes) as fn(usize, usize) -> *mut u8, else null_mut());
    // SAFETY: what the real function returned.
    unsafe { heap::allocated(block, bytes, sp, fp) };
    block
}

stack_hook!(#[doc = "Hook."] valloc(bytes: usize) -> *mut u8, valloc_impl, "rsi", "rdx");
unsafe extern "C" fn valloc_impl(bytes: usize, sp: usize, fp: usize) -> *mut u8 {
    let block = real!(VALLOC(bytes) as fn(usize) -> *mut u8, else null_mut());
    // SAFETY: what the real function returned.
    unsafe { heap::allocated(block, bytes, sp, fp) };
    block
}

stack_hook!(#[doc = "Hook."] pvalloc(bytes: usize) -> *mut u8, pvalloc_impl, "rsi", "rdx");
unsafe extern "C" fn pvalloc_impl(bytes: usize, sp: usize, fp: usize) -> *mut u8 {
    let block = real!(PVALLOC(bytes) as fn(usize) -> *mut u8, else null_mut());
    // SAFETY: what the real function returned.
    unsafe { heap::allocated(block, bytes, sp, fp) };
    block
}
