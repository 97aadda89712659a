//! Reads a completed buffer on the flush thread: decodes its records and writes them to the ring.

use super::buffers::{self, Done};
use super::cupti::Cupti;
use super::decode::{self, Names, Skip};
use super::devices;
use super::journal::{self, JournalEvent};
use super::kinds;
use super::notes::note;
use super::raw::Raw;
use super::started;
use super::texts;
use super::wants;
use core::ffi::CStr;
use tprof_cupti_sys::*;
use tprof_inject::block::Thread;
use tprof_inject::{gate, ring};
use tprof_wire::gpu::trouble;
use tprof_wire::record::ExtKind;
use tprof_wire::sync::{AtomicU32, Ordering::Relaxed};

/// Saves a buffer unchanged to the file of raw buffers, after the texts that its records refer to.
#[cold]
pub fn keep(raw: &Raw, cupti: &Cupti, done: &Done) {
    let mut record = core::ptr::null_mut();
    let mut records = 0u64;
    let result = loop {
        // SAFETY: CUPTI completed this buffer, and `record` is null or the previous record in it.
        let result = unsafe { (cupti.next)(done.at(), done.valid(), &raw mut record) };
        if result != CUPTI_SUCCESS || record.is_null() {
            break result;
        }
        records += 1;
        // SAFETY: CUPTI returned this record, in a buffer that has not been recycled yet.
        unsafe { raw.text_of(record) };
    };
    journal::keep(JournalEvent::Read, [done.at() as u64, records, u64::from(result)]);
    // The journal's entries from before this buffer precede it in the file.
    journal::write(raw);
    // SAFETY: CUPTI filled `valid` bytes of this buffer, and only the flush thread uses it now.
    raw.buffer(unsafe { core::slice::from_raw_parts(done.at(), done.valid()) });
}

/// Decodes a buffer's records and writes them to the ring. After a forced flush the buffer may end
/// with records of work that has not ended. CUPTI can't return these, so the reading stops there.
pub fn read(thread: &Thread, cupti: &Cupti, names: &mut Interner, done: &Done) {
    let mut record = core::ptr::null_mut();
    let (mut no_times, mut unknown, mut nested) = (0u64, 0u64, 0u64);
    let clock = thread.clock();
    let result = loop {
        // SAFETY: CUPTI completed this buffer, and `record` is null or the previous record in it.
        let result = unsafe { (cupti.next)(done.at(), done.valid(), &raw mut record) };
        if result != CUPTI_SUCCESS || record.is_null() {
            break result;
        }
        // SAFETY: CUPTI returned this record, in a buffer that has not been recycled yet.
        match unsafe { decode::decode(record, names) } {
            Ok(decoded) => {
                devices::seen(&decoded);
                let lasting =
                    matches!(decoded.kind, ExtKind::Device | ExtKind::Context | ExtKind::Stream);
                if lasting || thread.is_on() {
                    ring::ext(thread, decoded.kind, 0, clock, decoded.payload());
                }
            }
            Err(Skip::NoTimes) => no_times += 1,
            // SAFETY: CUPTI returned this record, and every record begins with its kind. (CUPTI
            // enables this kind together with kernels.)
            Err(Skip::Unknown) if unsafe { (*record).kind } == CUPTI_ACTIVITY_KIND_CDP_KERNEL => {
                nested += 1;
            }
            // SAFETY: CUPTI returned this record, which begins with its kind. (Another client may
            // have enabled that kind.)
            Err(Skip::Unknown) => unknown += u64::from(!wants::ever(unsafe { (*record).kind })),
            Err(Skip::Idle) => {}
        }
    };
    if result != CUPTI_ERROR_MAX_LIMIT_REACHED {
        let at = if record.is_null() { done.at() as usize } else { record as usize };
        let left = done.valid() - (at - done.at() as usize).min(done.valid());
        let what = match result {
            CUPTI_ERROR_INVALID_KIND if done.is_forced() => trouble::NOT_ENDED,
            _ => trouble::UNREADABLE,
        };
        note(thread, what, left as u64, cupti.result_name(result));
    }
    if no_times > 0 {
        note(thread, trouble::NO_TIMES, no_times, b"");
    }
    if nested > 0 {
        note(thread, trouble::NESTED_KERNELS, nested, b"");
    }
    if unknown > 0 {
        note(thread, trouble::UNKNOWN_KIND, unknown, b"");
    }
}

/// Reports the number of records that CUPTI dropped, and of requests for a buffer that were
/// refused.
pub fn count_lost(thread: &Thread, cupti: &Cupti) {
    let mut dropped = 0usize;
    // SAFETY: CUPTI writes one number to the local.
    let result = unsafe { (cupti.dropped)(core::ptr::null_mut(), 0, &raw mut dropped) };
    if dropped > 0 {
        journal::keep(JournalEvent::Dropped, [dropped as u64, u64::from(result), 0]);
    }
    let dropped = if result == CUPTI_SUCCESS { dropped as u64 } else { 0 };
    if wants::callbacks().is_some() {
        wants::DROPPED.fetch_add(dropped, Relaxed);
    }
    let dropped = dropped + wants::DROPPED_OURS.swap(0, Relaxed);
    if dropped > 0 {
        note(thread, trouble::DROPPED, dropped, b"");
    }
    let bytes = buffers::DROPPED_BYTES.swap(0, Relaxed);
    if bytes > 0 {
        note(thread, trouble::SPARE_BUFFERS, bytes, b"");
    }
    let refused = buffers::REFUSED.swap(0, Relaxed);
    if refused > 0 {
        note(thread, trouble::NO_BUFFER, refused, b"");
    }
}

/// Number of calls in each domain for whose names the id is cached.
const CALLS: usize = 2048;
static CALL_NAMES: [[AtomicU32; CALLS]; 2] = [const { [const { AtomicU32::new(0) }; CALLS] }; 2];

/// Resolves names to the ids of texts, for the flush thread.
pub struct Interner {
    cupti: Cupti,
}

impl Interner {
    /// Resolves names of calls through this CUPTI.
    pub fn new(cupti: Cupti) -> Interner {
        Interner { cupti }
    }
}

impl Names for Interner {
    #[inline]
    fn text(&mut self, text: &[u8]) -> u32 {
        gate::recording().map_or(0, |thread| texts::id(thread, text))
    }

    #[inline]
    fn call(&mut self, domain: CUpti_CallbackDomain, number: u32) -> u32 {
        let list = CALL_NAMES.get((domain == CUPTI_CB_DOMAIN_DRIVER_API) as usize);
        let known = list.and_then(|list| list.get(number as usize));
        if let Some(id) = known.map(|known| known.load(Relaxed)).filter(|id| *id != 0) {
            return id;
        }
        let name = self.cupti.call_name(domain, number).map_or(&b""[..], CStr::to_bytes);
        let id = self.text(name);
        if let Some(known) = known {
            known.store(id, Relaxed);
        }
        id
    }

    #[inline]
    fn is_left_out(&self, driver: bool, number: u32, thread: u32) -> bool {
        // If the hooks record the calls that start work, the agent's own calls are kept, since they
        // separate hooked calls in time.
        started::is_own_thread(thread) && !kinds::relies_on_hooks()
            || (wants::any_ever() || kinds::relies_on_hooks())
                && kinds::is_muted(&self.cupti, driver, number)
    }

    fn names_threads_of_overhead(&self) -> bool {
        self.cupti.names_threads_of_overhead()
    }
}
