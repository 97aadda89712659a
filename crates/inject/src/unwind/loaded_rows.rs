//! Rows of code that the collector has no table for yet, out of the frame information that the loader
//! mapped with the code: 0.3 µs in the C library (8,192 addresses in turn), where a
//! question to the collector is a wait of one to several milliseconds. `import torch` asked for tables
//! 15 times.
//!
//! The loader finds the object (`_dl_find_object` of glibc 2.35, which unwinders of exceptions use:
//! without locks, safe in signal handlers). Where it has no such function, tables are
//! asked for.
//!
//! Code that a stack returns to stays loaded. A word that is no return address may lead to an object
//! that another thread unloads: no object is read while one is being unloaded.

use crate::real::ObjectInfo;
use crate::state::WIPED;
use crate::{loaded, sys, unloading};
use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering::*};
use tprof_cfi::LoadedFrames;
use tprof_wire::hash::spread;
use tprof_wire::unwind::Row;

/// `struct dl_find_object` of glibc for x86-64, with room for what it may grow by.
#[repr(C)]
struct FoundObject {
    flags: u64,
    start: usize,
    end: usize,
    /// Begins with the difference between addresses and those in the file.
    link_map: *const usize,
    /// Address of its `.eh_frame_hdr`.
    frames: usize,
    reserved: [u64; 16],
}

type FindObject = unsafe extern "C" fn(*mut c_void, *mut FoundObject) -> c_int;

/// `_dl_find_object`; 0 where there is none.
static FIND_OBJECT: AtomicUsize = AtomicUsize::new(0);

/// Rows that were found here, by place in the code: a table of code that many come from is worth
/// a question, for which no thread waits.
static FOUND: [AtomicU8; 256] = [const { AtomicU8::new(0) }; 256];
/// Bits of an address within such a place, and rows of one until its table is asked for.
const PLACE_BITS: u32 = 17;
const WORTH_A_TABLE: u8 = 64;

/// Whether the loader's function was searched.
static SEARCHED: AtomicBool = AtomicBool::new(false);

/// Finds the loader's function, once: a forked child finds it where its parent did, since another
/// thread may have held the loader's lock.
pub fn prepare() {
    if !SEARCHED.swap(true, Relaxed)
        && let Some(find) = loaded::libc_function(c"_dl_find_object")
    {
        FIND_OBJECT.store(find, Relaxed);
    }
}

/// Whether rows can be found here.
pub fn can_find() -> bool {
    FIND_OBJECT.load(Relaxed) != 0
}

/// The row of a pc, and whether the table of its code is worth a question now.
pub fn find(pc: u64) -> Option<(Row, bool)> {
    let find = FIND_OBJECT.load(Relaxed);
    if find == 0 {
        return None;
    }
    WIPED.reading_frames.fetch_add(1, SeqCst);
    let row = match unloading::any() {
        // SAFETY: nothing is unloaded meanwhile: who unloads waits for readers to leave, and who
        // reads sees that something is.
        false => unsafe { row_of_loaded(find, pc) },
        true => None,
    };
    WIPED.reading_frames.fetch_sub(1, SeqCst);
    let place = spread(pc >> PLACE_BITS) as usize % FOUND.len();
    row.map(|row| (row, FOUND[place].fetch_add(1, Relaxed) == WORTH_A_TABLE - 1))
}

/// # Safety
/// `find` is `_dl_find_object`, and no object is unloaded meanwhile.
unsafe fn row_of_loaded(find: usize, pc: u64) -> Option<Row> {
    let mut object = FoundObject {
        flags: 0,
        start: 0,
        end: 0,
        link_map: core::ptr::null(),
        frames: 0,
        reserved: [0; 16],
    };
    // SAFETY: the function has this type, and writes no more than the structure has room for. What
    // it finds is loaded: its link map, its first page and its segments are mapped.
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

/// Times that a thread which is to unload a library lets others run, who read frame information for
/// a microsecond: one that was stopped in the middle is not waited for.
const MOST_YIELDS: u32 = 100;

/// A library is about to be unloaded, which [`unloading::any`] shows already.
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
        assert!(can_find(), "glibc 2.35 has it");
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
