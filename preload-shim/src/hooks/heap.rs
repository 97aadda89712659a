//! Hooks of the allocator's functions: `malloc`, `free`, `realloc` and their relatives.

use crate::real;
use core::ffi::c_int;
use core::mem::offset_of;
use core::ptr::null_mut;
use tprof_inject::block::Thread;
use tprof_inject::heap_fast_path::{self, Freeing};
use tprof_inject::state::{self, Hot, Wiped};
use tprof_inject::{heap, pytorch_registration, sampled_blocks, stack_hook};
use tprof_wire::region::{ThreadSlot, off};

/// libc's error number for a lack of memory.
const ENOMEM: c_int = 12;

/// Defines a hook that calls the real function and counts the block, as [`heap_fast_path::allocated`]
/// does. A hook's cost is mostly its number of instructions, so it is written in assembly, and saves
/// only one register. It leaves the rest to others:
///
/// - While recording is off in the session, it only jumps to the real function, see
///   [`Hot::is_uncounted`]; before that function is known, to `$early`.
/// - While recording is off for other reasons, or if the thread may not take the fast path, it jumps
///   to [`heap_fast_path::allocated`] with the block, the requested bytes, and the caller's stack and
///   frame pointers.
/// - If the block is sampled, it jumps to [`heap_fast_path::sampled`], and if the thread's live bytes have
///   changed much, to [`heap_fast_path::settled`].
macro_rules! quick_hook {
    ($name:ident($($arg:ident),*), $bytes:literal, $real:ident, $early:ident, $sp:literal, $fp:literal) => {
        /// # Safety
        /// The same premises as the libc function of this name.
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        pub unsafe extern "C" fn $name($($arg: usize),*) -> *mut u8 {
            core::arch::naked_asm!(
                ".cfi_startproc",
                "mov rax, qword ptr [rip + {hot} + {switch}]",
                "cmp dword ptr [rax], 0",
                "jne 2f",
                "push rbx",
                ".cfi_adjust_cfa_offset 8",
                ".cfi_rel_offset rbx, 0",
                $bytes,
                "call qword ptr [rip + {hot} + {real}]",
                "test rax, rax",
                "jz 5f",
                // The thread's stamp decides whether it may take the fast path.
                "mov rcx, qword ptr [rip + tprof_thread@GOTTPOFF]",
                "mov rdx, qword ptr fs:[rcx + {stamp}]",
                "not rdx",
                "cmp rdx, qword ptr [rip + {wiped} + {generation}]",
                "jne 6f",
                // glibc's header before the block: a mapping has bit 1, the size the others.
                "mov rsi, qword ptr [rax - 8]",
                "test sil, 2",
                "jnz 6f",
                "mov rdx, qword ptr fs:[rcx + {slot}]",
                "and rsi, -8",
                "inc qword ptr [rdx + {allocations}]",
                "add qword ptr [rdx + {allocated}], rbx",
                "sub qword ptr fs:[rcx + {countdown}], rbx",
                "js 7f",
                "sub rsi, 8",
                "sub qword ptr [rdx + {room}], rsi",
                "js 8f",
                "5:",
                "pop rbx",
                ".cfi_remember_state",
                ".cfi_adjust_cfa_offset -8",
                ".cfi_restore rbx",
                "ret",
                // While recording is off, the block is counted by the slower path.
                "2:",
                ".cfi_restore_state",
                ".cfi_remember_state",
                ".cfi_adjust_cfa_offset -8",
                ".cfi_restore rbx",
                // All other reasons are smaller. `UNRESOLVED` is larger, and negative as a signed byte.
                "cmp byte ptr [rax], {uncounted}",
                "jb 9f",
                "jl 3f",
                "jmp qword ptr [rip + {hot} + {real}]",
                "3:",
                concat!("mov ", $sp, ", rsp"),
                concat!("mov ", $fp, ", rbp"),
                "jmp {early}",
                "9:",
                "push rbx",
                ".cfi_adjust_cfa_offset 8",
                ".cfi_rel_offset rbx, 0",
                $bytes,
                "call qword ptr [rip + {hot} + {real}]",
                "6:",
                "mov rdi, rax",
                "mov rsi, rbx",
                "pop rbx",
                ".cfi_adjust_cfa_offset -8",
                ".cfi_restore rbx",
                "mov rdx, rsp",
                "mov rcx, rbp",
                "jmp {counted}",
                "7:",
                ".cfi_restore_state",
                ".cfi_remember_state",
                "lea r9, [rsi - 8]",
                "mov r8, qword ptr fs:[0]",
                "add r8, rcx",
                "mov rdi, rax",
                "mov rsi, rbx",
                "pop rbx",
                ".cfi_adjust_cfa_offset -8",
                ".cfi_restore rbx",
                "mov rdx, rsp",
                "mov rcx, rbp",
                "jmp {sampled}",
                "8:",
                ".cfi_restore_state",
                "mov rsi, qword ptr fs:[0]",
                "add rsi, rcx",
                "mov rdi, rax",
                "pop rbx",
                ".cfi_adjust_cfa_offset -8",
                ".cfi_restore rbx",
                "jmp {settled}",
                ".cfi_endproc",
                hot = sym state::HOT,
                wiped = sym state::WIPED,
                real = const offset_of!(Hot, $real),
                switch = const offset_of!(Hot, switch),
                generation = const offset_of!(Wiped, generation),
                uncounted = const off::UNCOUNTED,
                stamp = const Thread::FAST_STAMP,
                slot = const Thread::SLOT,
                countdown = const offset_of!(Thread, countdown),
                allocations = const offset_of!(ThreadSlot, allocations),
                allocated = const offset_of!(ThreadSlot, allocated_bytes),
                room = const offset_of!(ThreadSlot, room_to_allocate),
                counted = sym heap_fast_path::allocated,
                sampled = sym heap_fast_path::sampled,
                settled = sym heap_fast_path::settled,
                early = sym $early,
            )
        }
    };
}

quick_hook!(malloc(bytes), "mov rbx, rdi", malloc, malloc_early, "rsi", "rdx");
unsafe extern "C" fn malloc_early(bytes: usize, sp: usize, fp: usize) -> *mut u8 {
    let block = real!(MALLOC(bytes) as fn(usize) -> *mut u8, else null_mut());
    // SAFETY: the real function has just returned the block.
    unsafe { heap_fast_path::allocated(block, bytes, sp, fp) }
}

// If the product overflows, the real function returns null, and the hook ignores the product.
quick_hook!(calloc(count, each), "mov rbx, rdi\nimul rbx, rsi", calloc, calloc_early, "rdx", "rcx");
unsafe extern "C" fn calloc_early(count: usize, each: usize, sp: usize, fp: usize) -> *mut u8 {
    let block = real!(CALLOC(count, each) as fn(usize, usize) -> *mut u8, else null_mut());
    // SAFETY: the real function has just returned the block.
    unsafe { heap_fast_path::allocated(block, count.wrapping_mul(each), sp, fp) }
}

/// Counts the block, as [`heap_fast_path::freeing`] does, and jumps to the real function. What it leaves
/// to others is as for `malloc`, and it also leaves blocks that may have been sampled.
///
/// # Safety
/// The same premises as libc's `free`.
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub unsafe extern "C" fn free(block: *mut u8) {
    core::arch::naked_asm!(
        ".cfi_startproc",
        "mov rax, qword ptr [rip + {hot} + {switch}]",
        "cmp dword ptr [rax], 0",
        "jne 2f",
        "test rdi, rdi",
        "jz 3f",
        "mov rcx, qword ptr [rip + tprof_thread@GOTTPOFF]",
        "mov rdx, qword ptr fs:[rcx + {stamp}]",
        "not rdx",
        "cmp rdx, qword ptr [rip + {wiped} + {generation}]",
        "jne {slow}",
        "mov rax, qword ptr [rdi - 8]",
        "test al, 2",
        "jnz {slow}",
        // The filter of sampled blocks.
        "imul esi, edi, {factor}",
        "mov r8, qword ptr [rip + {hot} + {filter}]",
        "shr esi, {first}",
        "cmp byte ptr [r8 + rsi], 0",
        "jne 4f",
        "5:",
        "mov rdx, qword ptr fs:[rcx + {slot}]",
        "and rax, -8",
        "inc qword ptr [rdx + {frees}]",
        "sub rax, 8",
        "sub qword ptr [rdx + {room}], rax",
        "js {settle}",
        "3:",
        "jmp qword ptr [rip + {hot} + {free}]",
        // The filter's second byte.
        "4:",
        "imul r9d, edi, {factor}",
        "shr r9d, {second}",
        "and r9d, {within}",
        "inc r9d",
        "xor r9d, esi",
        "cmp byte ptr [r8 + r9], 0",
        "je 5b",
        "jmp {slow}",
        "2:",
        "cmp byte ptr [rax], {uncounted}",
        "jb {off}",
        "jl {slow}",
        "jmp qword ptr [rip + {hot} + {free}]",
        ".cfi_endproc",
        hot = sym state::HOT,
        wiped = sym state::WIPED,
        switch = const offset_of!(Hot, switch),
        free = const offset_of!(Hot, free),
        filter = const offset_of!(Hot, filter),
        generation = const offset_of!(Wiped, generation),
        uncounted = const off::UNCOUNTED,
        factor = const sampled_blocks::FILTER_FACTOR as i32,
        first = const sampled_blocks::FIRST_SHIFT,
        second = const sampled_blocks::SECOND_SHIFT,
        within = const sampled_blocks::WITHIN_LINE,
        stamp = const Thread::FAST_STAMP,
        slot = const Thread::SLOT,
        frees = const offset_of!(ThreadSlot, frees),
        room = const offset_of!(ThreadSlot, room_to_free),
        slow = sym free_slow,
        settle = sym free_and_settle,
        off = sym free_while_off,
    )
}

#[inline(never)]
unsafe extern "C" fn free_while_off(block: *mut u8) {
    if !block.is_null() {
        // SAFETY: the caller passes a live block to `free`, and it isn't null.
        match unsafe { heap_fast_path::freeing(block) } {
            Freeing::Done => {}
            Freeing::Settle => heap_fast_path::settle_own(),
            // SAFETY: as above.
            Freeing::SlowPath => unsafe { heap::freeing(block) },
        }
    }
    real!(FREE(block) as fn(*mut u8) -> (), else ());
}

#[cold]
#[inline(never)]
unsafe extern "C" fn free_and_settle(block: *mut u8) {
    heap_fast_path::settle_own();
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
        unsafe { heap_fast_path::allocated(*out, bytes, sp, fp) };
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
