//! Memory for samples: CUPTI fills it with the places that were sampled, each with a list of reasons.

use super::api::MAX_REASONS;
use core::ffi::CStr;
use core::mem::size_of;
use tprof_cupti_sys::record::PcData;
use tprof_cupti_sys::*;
use tprof_inject::sys;

/// Most places in one answer. CUPTI returns the others with the next one.
const PLACES: usize = 4096;
const HEAD_BYTES: usize = size_of::<CUpti_PCSamplingData>();
const PLACES_BYTES: usize = PLACES * size_of::<PcData>();
const REASONS_BYTES: usize = PLACES * MAX_REASONS * size_of::<CUpti_PCSamplingStallReason>();
const BYTES: usize = HEAD_BYTES + PLACES_BYTES + REASONS_BYTES;

/// Memory for one answer: 2.3 MiB of address space, of which only touched pages use memory.
pub struct Answer {
    base: *mut u8,
}

/// A place that was sampled.
pub struct Place<'a> {
    /// Number of the module's code.
    pub cubin: u64,
    /// Distance from the function's beginning, bytes.
    pub offset: u64,
    /// The function's mangled name.
    pub function: &'a [u8],
    /// Reasons, by CUPTI's numbers, and how often each was found.
    pub reasons: &'a [CUpti_PCSamplingStallReason],
}

impl Answer {
    /// Maps memory for an answer; `None` if the kernel refuses.
    pub fn new() -> Option<Answer> {
        let answer = Answer { base: sys::map_anonymous(BYTES)? };
        answer.reset();
        Some(answer)
    }

    /// The structure to pass to CUPTI.
    pub fn data(&self) -> *mut CUpti_PCSamplingData {
        self.base.cast()
    }

    /// Prepares it for CUPTI: sets sizes, capacities and addresses, and removes what it contains.
    pub fn reset(&self) {
        let places = self.base.wrapping_add(HEAD_BYTES).cast::<PcData>();
        let reasons = places.wrapping_add(PLACES).cast::<CUpti_PCSamplingStallReason>();
        // SAFETY: the mapping has room for the head, all places and all reasons, in this order, and
        // each is aligned to eight bytes. CUPTI doesn't use it during this call.
        unsafe {
            self.data().write(CUpti_PCSamplingData {
                size: size_of::<CUpti_PCSamplingData>(),
                collectNumPcs: PLACES,
                pPcData: places.cast(),
                ..core::mem::zeroed()
            });
            for at in 0..PLACES {
                places.add(at).write(PcData {
                    size: size_of::<PcData>(),
                    stallReason: reasons.add(at * MAX_REASONS),
                    ..core::mem::zeroed()
                });
            }
        }
    }

    /// What CUPTI wrote about the whole answer.
    pub fn head(&self) -> CUpti_PCSamplingData {
        // SAFETY: `reset` has initialized the head. CUPTI may change a number of it meanwhile, in
        // the buffer of a context that is being sampled; each is read once.
        unsafe { self.data().read_volatile() }
    }

    /// The places that CUPTI wrote.
    ///
    /// # Safety
    /// CUPTI doesn't write to this answer while the places are in use, and has not freed a
    /// function's name.
    pub unsafe fn places(&self) -> impl Iterator<Item = Place<'_>> {
        let places = self.base.wrapping_add(HEAD_BYTES).cast::<PcData>();
        let count = self.head().totalNumPcs.min(PLACES);
        (0..count).map(move |at| {
            // SAFETY: `reset` has initialized this place, and the index is below their number.
            let place = unsafe { places.add(at).read() };
            let function = match place.functionName.is_null() {
                true => &b""[..],
                // SAFETY: CUPTI wrote the address of a NUL-terminated name, which it leaves to the
                // client.
                false => unsafe { CStr::from_ptr(place.functionName) }.to_bytes(),
            };
            let reasons = match place.stallReason.is_null() {
                true => &[][..],
                // SAFETY: each place has room for `MAX_REASONS` initialized reasons.
                false => unsafe {
                    let count = place.stallReasonCount.min(MAX_REASONS);
                    core::slice::from_raw_parts(place.stallReason, count)
                },
            };
            Place { cubin: place.cubinCrc, offset: place.pcOffset, function, reasons }
        })
    }

    /// Gives the memory back.
    ///
    /// # Safety
    /// CUPTI doesn't use it any more.
    pub unsafe fn unmap(self) {
        // SAFETY: the caller guarantees that nothing uses it.
        unsafe { sys::unmap(self.base, BYTES) };
    }
}
