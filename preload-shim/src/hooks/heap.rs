//! Hooks of the allocator's functions: `malloc`, `free`, `realloc` and their relatives.

use crate::{real, table};
use core::ffi::c_int;
use core::mem::offset_of;
use core::ptr::null_mut;
use core::sync::atomic::Ordering::Relaxed;
use tprof_inject::fast_path::{self, Freeing};
use tprof_inject::state::{self, Hot};
use tprof_inject::{heap, pytorch_registration, stack_hook};
use tprof_wire::region::off;

/// libc's error number for a lack of memory.
const ENOMEM: c_int = 12;

/// Defines a hook that calls the real function, and then jumps to [`fast_path::allocated`] with the
/// block, the requested bytes, and the caller's stack and frame pointers. It saves only one
/// register, since a hook's cost is mostly its number of instructions. While recording is off in the
/// session, the hook only jumps to the real function. Before that function is known, the hook jumps to
/// `$early` instead. See [`Hot::is_uncounted`].
macro_rules! quick_hook {
    ($name:ident($($arg:ident),*), $bytes:literal, $real:ident, $early:ident, $sp:literal, $fp:literal) => {
        /// # Safety
        /// The same premises as the libc function of this name.
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        pub unsafe extern "C" fn $name($($arg: usize),*) -> *mut u8 {
            core::arch::naked_asm!(
                ".cfi_startproc",
                "endbr64",
                "mov rax, qword ptr [rip + {hot} + {switch}]",
                // All other reasons are smaller. `UNRESOLVED` is larger, and negative as a signed byte.
                "cmp byte ptr [rax], {uncounted}",
                "jae 2f",
                "push rbx",
                ".cfi_adjust_cfa_offset 8",
                ".cfi_rel_offset rbx, 0",
                $bytes,
                "call qword ptr [rip + {hot} + {real}]",
                "mov rdi, rax",
                "mov rsi, rbx",
                "pop rbx",
                ".cfi_adjust_cfa_offset -8",
                ".cfi_restore rbx",
                "mov rdx, rsp",
                "mov rcx, rbp",
                "jmp {counted}",
                "2:",
                "jl 3f",
                "jmp qword ptr [rip + {hot} + {real}]",
                "3:",
                concat!("mov ", $sp, ", rsp"),
                concat!("mov ", $fp, ", rbp"),
                "jmp {early}",
                ".cfi_endproc",
                hot = sym state::HOT,
                real = const offset_of!(Hot, $real),
                switch = const offset_of!(Hot, switch),
                uncounted = const off::UNCOUNTED,
                counted = sym fast_path::allocated,
                early = sym $early,
            )
        }
    };
}

quick_hook!(malloc(bytes), "mov rbx, rdi", malloc, malloc_early, "rsi", "rdx");
unsafe extern "C" fn malloc_early(bytes: usize, sp: usize, fp: usize) -> *mut u8 {
    let block = real!(MALLOC(bytes) as fn(usize) -> *mut u8, else null_mut());
    // SAFETY: the real function has just returned the block.
    unsafe { fast_path::allocated(block, bytes, sp, fp) }
}

// If the product overflows, the real function returns null, and the hook ignores the product.
quick_hook!(calloc(count, each), "mov rbx, rdi\nimul rbx, rsi", calloc, calloc_early, "rdx", "rcx");
unsafe extern "C" fn calloc_early(count: usize, each: usize, sp: usize, fp: usize) -> *mut u8 {
    let block = real!(CALLOC(count, each) as fn(usize, usize) -> *mut u8, else null_mut());
    // SAFETY: the real function has just returned the block.
    unsafe { fast_path::allocated(block, count.wrapping_mul(each), sp, fp) }
}

/// # Safety
/// The same premises as libc's `free`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn free(block: *mut u8) {
    if state::HOT.is_uncounted() {
        return real!(FREE(block) as fn(*mut u8) -> (), else ());
    }
    if !block.is_null() {
        // SAFETY: the caller guarantees a live block, and it isn't null.
        match unsafe { fast_path::freeing(block) } {
            Freeing::Done => {}
            // SAFETY: the caller guarantees a block that `free` accepts.
            Freeing::Flush => return unsafe { free_and_flush(block) },
            // SAFETY: the caller guarantees a block that `free` accepts.
            Freeing::SlowPath => return unsafe { free_slow(block) },
        }
    }
    let address = table::FREE.load(Relaxed);
    // SAFETY: the address is that of the real `free`, since the process counts only once it is
    // known, and the caller guarantees a block that `free` accepts.
    unsafe {
        let call: unsafe extern "C" fn(*mut u8) = core::mem::transmute(address);
        call(block);
    }
}

#[cold]
#[inline(never)]
unsafe extern "C" fn free_and_flush(block: *mut u8) {
    fast_path::flush_own();
    real!(FREE(block) as fn(*mut u8) -> (), else ());
}

#[cold]
#[inline(never)]
unsafe extern "C" fn free_slow(block: *mut u8) {
    if !block.is_null() {
        // SAFETY: the caller passes a live block to `free`, and it isn't null.
        unsafe { heap::freeing(block) };
    }
    real!(FREE(block) as fn(*mut u8) -> (), else ());
}

stack_hook!(#[doc = "Interposes libc's `realloc`."] realloc(block: *mut u8, bytes: usize) -> *mut u8, realloc_impl, "rdx", "rcx");
unsafe extern "C" fn realloc_impl(block: *mut u8, bytes: usize, sp: usize, fp: usize) -> *mut u8 {
    // SAFETY: the caller passes a live block to `realloc`, and it isn't null.
    let old = if block.is_null() { None } else { unsafe { heap::reallocating(block) } };
    let new = real!(REALLOC(block, bytes) as fn(*mut u8, usize) -> *mut u8, else null_mut());
    // SAFETY: the real function has just returned `new`.
    unsafe { resized(old, block, new, bytes, sp, fp) };
    new
}

stack_hook!(#[doc = "Interposes libc's `reallocarray`."] reallocarray(block: *mut u8, count: usize, each: usize) -> *mut u8, reallocarray_impl, "rcx", "r8");
unsafe extern "C" fn reallocarray_impl(
    block: *mut u8,
    count: usize,
    each: usize,
    sp: usize,
    fp: usize,
) -> *mut u8 {
    // libc's `reallocarray` calls `realloc` through the PLT, and so the hook above. Recording the
    // block here as well would count it twice. On overflow libc's function fails without that call,
    // and there is nothing to record.
    let Some(bytes) = count.checked_mul(each) else {
        return real!(REALLOCARRAY(block, count, each) as fn(*mut u8, usize, usize) -> *mut u8, else null_mut());
    };
    // SAFETY: the caller passes a block that `realloc` accepts, and the product didn't overflow.
    unsafe { realloc_impl(block, bytes, sp, fp) }
}

/// Records the result of a `realloc`.
///
/// # Safety
/// The real function has just returned `to`.
unsafe fn resized(
    old: Option<heap::Reallocation>,
    from: *mut u8,
    to: *mut u8,
    bytes: usize,
    sp: usize,
    fp: usize,
) {
    if from.is_null() {
        // SAFETY: the caller guarantees that the real function has just returned the block.
        unsafe { heap::allocated(to, bytes, sp, fp) };
    } else {
        // glibc's `realloc(p, 0)` frees the block and returns NULL, which is not a failure.
        let failed = to.is_null() && bytes != 0;
        // SAFETY: the caller guarantees that the real function has just returned the block.
        unsafe { heap::reallocated(old, from, to, bytes, failed, sp, fp) };
    }
}

stack_hook!(#[doc = "Interposes libc's `posix_memalign`."] posix_memalign(out: *mut *mut u8, align: usize, bytes: usize) -> c_int, posix_memalign_impl, "rcx", "r8");
unsafe extern "C" fn posix_memalign_impl(
    out: *mut *mut u8,
    align: usize,
    bytes: usize,
    sp: usize,
    fp: usize,
) -> c_int {
    if state::HOT.is_uncounted() {
        if state::HOT.notices_steps() && pytorch_registration::must_restore() {
            pytorch_registration::sync_callbacks();
        }
        return real!(POSIX_MEMALIGN(out, align, bytes) as fn(*mut *mut u8, usize, usize) -> c_int, else ENOMEM);
    }
    let error = real!(POSIX_MEMALIGN(out, align, bytes) as fn(*mut *mut u8, usize, usize) -> c_int, else ENOMEM);
    if error == 0 {
        // SAFETY: libc has succeeded, so it has stored the block's address there.
        unsafe { heap::allocated(*out, bytes, sp, fp) };
    }
    // PyTorch allocates a tensor's memory with this function, within an operator.
    if pytorch_registration::must_restore() {
        pytorch_registration::sync_callbacks();
    }
    error
}

stack_hook!(#[doc = "Interposes libc's `aligned_alloc`."] aligned_alloc(align: usize, bytes: usize) -> *mut u8, aligned_alloc_impl, "rdx", "rcx");
unsafe extern "C" fn aligned_alloc_impl(
    align: usize,
    bytes: usize,
    sp: usize,
    fp: usize,
) -> *mut u8 {
    let block = real!(ALIGNED_ALLOC(align, bytes) as fn(usize, usize) -> *mut u8, else null_mut());
    // SAFETY: the real function has just returned the block.
    unsafe { heap::allocated(block, bytes, sp, fp) };
    block
}

stack_hook!(#[doc = "Interposes libc's `memalign`."] memalign(align: usize, bytes: usize) -> *mut u8, memalign_impl, "rdx", "rcx");
unsafe extern "C" fn memalign_impl(align: usize, bytes: usize, sp: usize, fp: usize) -> *mut u8 {
    let block = real!(MEMALIGN(align, bytes) as fn(usize, usize) -> *mut u8, else null_mut());
    // SAFETY: the real function has just returned the block.
    unsafe { heap::allocated(block, bytes, sp, fp) };
    block
}

stack_hook!(#[doc = "Interposes libc's `valloc`."] valloc(bytes: usize) -> *mut u8, valloc_impl, "rsi", "rdx");
unsafe extern "C" fn valloc_impl(bytes: usize, sp: usize, fp: usize) -> *mut u8 {
    let block = real!(VALLOC(bytes) as fn(usize) -> *mut u8, else null_mut());
    // SAFETY: the real function has just returned the block.
    unsafe { heap::allocated(block, bytes, sp, fp) };
    block
}

stack_hook!(#[doc = "Interposes libc's `pvalloc`."] pvalloc(bytes: usize) -> *mut u8, pvalloc_impl, "rsi", "rdx");
unsafe extern "C" fn pvalloc_impl(bytes: usize, sp: usize, fp: usize) -> *mut u8 {
    let block = real!(PVALLOC(bytes) as fn(usize) -> *mut u8, else null_mut());
    // SAFETY: the real function has just returned the block.
    unsafe { heap::allocated(block, bytes, sp, fp) };
    block
}
