//! Finds rows of code for which the collector has no table yet, in the unwind information that the
//! loader has mapped together with the code. This takes 0.3 µs in the C library (8,192 addresses in
//! turn). A question to the collector takes one to several milliseconds, and `import torch` alone
//! would need 15.
//!
//! The loader's function `_dl_find_object` (glibc 2.35) finds the object that contains the code.
//! Exception unwinders use it too: it takes no locks and is safe in signal handlers. If the loader
//! doesn't have this function, the collector is asked for tables instead.
//!
//! Code that a stack returns to stays loaded. But a word that only looks like a return address may
//! point into an object that another thread is unloading. So no object is read while a library is
//! being unloaded.

use crate::real::ObjectInfo;
use crate::state::WIPED;
use crate::{loaded, sys, unloading};
use core::ffi::{c_int, c_void};
use tprof_cfi::LoadedFrames;
use tprof_wire::hash::spread;
use tprof_wire::sync::{AtomicBool, AtomicU8, AtomicUsize, Ordering::*};
use tprof_wire::unwind::Row;

/// `struct dl_find_object` of glibc for x86-64, with space for fields that later versions may add.
#[repr(C)]
struct FoundObject {
    flags: u64,
    start: usize,
    end: usize,
    /// Pointer to the link map, which begins with the difference between addresses in memory and in
    /// the file.
    link_map: *const usize,
    /// Address of the object's `.eh_frame_hdr`.
    frames: usize,
    reserved: [u64; 16],
}

type FindObject = unsafe extern "C" fn(*mut c_void, *mut FoundObject) -> c_int;

/// Address of `_dl_find_object`; 0 if the loader doesn't have it.
static FIND_OBJECT: AtomicUsize = AtomicUsize::new(0);

/// Number of rows that were found here in each part of the code. When many rows were found in a
/// part, the collector is asked for its table, without any thread waiting for it.
static FOUND: [AtomicU8; 256] = [const { AtomicU8::new(0) }; 256];
/// Number of low bits of an address that don't select its part.
const PLACE_BITS: u32 = 17;
const WORTH_A_TABLE: u8 = 64;

/// Whether the loader's function was looked up.
static SEARCHED: AtomicBool = AtomicBool::new(false);

/// Looks up the loader's function once. A forked child uses the address that its parent found,
/// since in the child the loader's lock may be locked forever.
pub fn prepare() {
    if !SEARCHED.swap(true, Relaxed)
        && let Some(find) = loaded::libc_function(c"_dl_find_object")
    {
        FIND_OBJECT.store(find, Relaxed);
    }
}

/// Whether rows can be found in loaded objects.
pub fn can_find() -> bool {
    FIND_OBJECT.load(Relaxed) != 0
}

/// Returns the row of a pc, and whether now is the time to ask for the table of its code.
pub fn find(pc: u64) -> Option<(Row, bool)> {
    let find = FIND_OBJECT.load(Relaxed);
    if find == 0 {
        return None;
    }
    WIPED.reading_frames.fetch_add(1, SeqCst);
    let row = match unloading::any() {
        // SAFETY: no library is unloaded during this call. A thread that unloads one first waits
        // for readers, and readers check here that no thread is unloading.
        false => unsafe { row_of_loaded(find, pc) },
        true => None,
    };
    WIPED.reading_frames.fetch_sub(1, SeqCst);
    let place = spread(pc >> PLACE_BITS) as usize % FOUND.len();
    row.map(|row| (row, FOUND[place].fetch_add(1, Relaxed) == WORTH_A_TABLE - 1))
}

/// # Safety
/// `find` is the address of `_dl_find_object`, and no object is unloaded during the call.
unsafe fn row_of_loaded(find: usize, pc: u64) -> Option<Row> {
    let mut object = FoundObject {
        flags: 0,
        start: 0,
        end: 0,
        link_map: core::ptr::null(),
        frames: 0,
        reserved: [0; 16],
    };
    // SAFETY: `_dl_find_object` has this type, and its result fits into the structure. The object
    // that it finds is loaded, so its link map, first page and segments are mapped.
    let (info, entry) = unsafe {
        let find: FindObject = core::mem::transmute::<usize, FindObject>(find);
        if find(pc as *mut c_void, &raw mut object) != 0 || object.frames == 0 {
            return None;
        }
        ObjectInfo::at(object.start, *object.link_map)?
    };
    let segment = |address: usize| {
        let bytes = info.readable(address)?;
        Some((bytes, bytes.as_ptr().addr()))
    };
    let (bytes, start) = segment(object.frames)?;
    let header = bytes.get(object.frames - start..)?;
    let frames = LoadedFrames::new(header, object.frames as u64, entry as u64, |address| {
        segment(address as usize).map(|(bytes, start)| (bytes, start as u64))
    })?;
    frames.row_at(pc)
}

/// Maximum number of times that a thread which is about to unload a library yields to threads that
/// read unwind information. Reading takes a microsecond. A thread that was stopped while it reads
/// isn't waited for any longer.
const MOST_YIELDS: u32 = 100;

/// Waits for threads that read unwind information. Called before a library is unloaded, after
/// [`unloading::any`] has become true.
pub fn let_readers_leave() {
    for _ in 0..MOST_YIELDS {
        if WIPED.reading_frames.load(SeqCst) == 0 {
            break;
        }
        sys::yield_now();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::unloading::ONE_AT_A_TIME;
    use tprof_wire::unwind::RowKind;

    unsafe extern "C" {
        fn qsort();
    }

    #[test]
    fn functions_begin_with_the_return_address_on_top_of_the_stack() {
        let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(|e| e.into_inner());
        prepare();
        assert!(can_find(), "glibc 2.35 and newer have `_dl_find_object`");
        let begin = Row::new(RowKind::Sp, 8, None);
        for function in [qsort as *const (), find as *const ()] {
            assert_eq!(find(function.addr() as u64).map(|found| found.0), begin);
        }
        let on_stack = 0;
        assert!(find((&raw const on_stack).addr() as u64).is_none());
        assert!(find(0).is_none() && find(u64::MAX).is_none());
    }

    #[test]
    fn nothing_is_read_while_a_library_is_unloaded() {
        let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(|e| e.into_inner());
        prepare();
        let function = qsort as *const () as u64;
        let unloading = unloading::begin();
        assert!(find(function).is_none());
        unloading.end();
        assert!(find(function).is_some());
    }
}
