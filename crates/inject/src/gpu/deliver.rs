//! Copies the other client's records of a completed buffer into buffers that it lends: on
//! CUPTI's thread, as CUPTI would, so that they are there when a flush returns.

use super::client_clock::{self as clock, ClientClock};
use super::cupti::Cupti;
use super::journal::{self, JournalEvent};
use super::lent::{self, Lent};
use super::wants::{self, Complete, Request};
use super::{buffers, kinds, started};
use crate::sys;
use core::sync::atomic::{AtomicU32, Ordering::*};
use tprof_cupti_sys::*;

/// Threads that deliver, or flush for the agent and may begin to. A futex.
static BUSY: AtomicU32 = AtomicU32::new(0);
/// How long a client's flush waits for other threads to deliver.
const WAIT_NS: u64 = 2_000_000_000;

/// A delivery in progress: while this lives, a client's flush waits.
pub struct Delivering(());

impl Delivering {
    /// Marks a delivery as begun.
    pub fn begin() -> Delivering {
        BUSY.fetch_add(1, AcqRel);
        Delivering(())
    }
}

impl Drop for Delivering {
    fn drop(&mut self) {
        if BUSY.fetch_sub(1, AcqRel) == 1 {
            sys::futex_wake(BUSY.as_ptr(), u32::MAX >> 1);
        }
    }
}

/// Waits until no thread delivers.
pub fn wait() {
    const ROUND_NS: u64 = 1_000_000;
    let mut left = WAIT_NS;
    loop {
        let busy = BUSY.load(Acquire);
        if busy == 0 || left == 0 {
            return;
        }
        sys::futex_wait(BUSY.as_ptr(), busy, ROUND_NS);
        left = left.saturating_sub(ROUND_NS);
    }
}

/// Registers the agent's callbacks.
pub fn register(cupti: &Cupti) -> CUptiResult {
    // SAFETY: CUPTI's function with two functions of the types that it wants.
    let result = unsafe { (cupti.register)(Some(buffers::request), Some(complete)) };
    journal::keep(JournalEvent::Registered, [u64::from(result), 0, 0]);
    result
}

/// CUPTI gives a buffer back: first other clients get their records of it.
unsafe extern "C" fn complete(
    context: CUcontext,
    stream: u32,
    buffer: *mut u8,
    bytes: usize,
    valid: usize,
) {
    if !buffers::is_own(buffer) {
        // Lent by the client before the agent had the callbacks: its own, as it is.
        if let Some((_, theirs)) = wants::callbacks() {
            // SAFETY: the client's function, as CUPTI called this.
            unsafe { theirs(context, stream, buffer, bytes, valid) };
        }
        return;
    }
    // SAFETY: as CUPTI called this.
    unsafe {
        deliver(context, stream, buffer, valid);
        buffers::complete(context.cast(), stream, buffer, bytes, valid);
    }
}

/// Copies what the client wants of a buffer.
///
/// # Safety
/// CUPTI passed these to the agent's callback, which has not returned.
pub unsafe fn deliver(context: CUcontext, stream: u32, buffer: *mut u8, valid: usize) {
    // Nothing can be read in a buffer with two writers.
    if !wants::any_ever() || buffers::is_shared(buffer) {
        return;
    }
    let (Some(cupti), Some(callbacks)) = (started::cupti(), wants::callbacks()) else { return };
    let _busy = Delivering::begin();
    clock::read(&cupti);
    let lent_at = buffers::lent_at(buffer);
    if wants::covers_turn(CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION, lent_at) {
        // SAFETY: by the premise.
        unsafe { place_calls(&cupti, buffer, valid) };
    }
    let mut copies = Copies { callbacks, clock: clock::chosen(), context, stream, open: None };
    let mut record = core::ptr::null_mut();
    let mut result = CUPTI_SUCCESS;
    let mut next = |record: &mut *mut CUpti_Activity| {
        // SAFETY: the buffer that CUPTI completed, and the record before in it.
        result = unsafe { (cupti.next)(buffer, valid, record) };
        result == CUPTI_SUCCESS && !record.is_null()
    };
    let end = buffer as usize + valid;
    let mut is_there = next(&mut record);
    while is_there {
        let this: *mut CUpti_Activity = record;
        is_there = next(&mut record);
        // Behind the last record that can be read lies nothing, or what cannot be.
        let until = if is_there { record as usize } else { end };
        let Some(bytes) = until.checked_sub(this as usize) else { break };
        // SAFETY: CUPTI returned the record, in a buffer that it has not got back.
        if unsafe { is_wanted(this, lent_at) } {
            // SAFETY: so long is the record.
            copies.push(unsafe { core::slice::from_raw_parts(this.cast::<u8>(), bytes) });
        }
    }
    copies.end(result == CUPTI_ERROR_MAX_LIMIT_REACHED);
}

/// Notes which calls of a buffer began when: external ids stand before them.
///
/// # Safety
/// CUPTI has completed the buffer, and has not got it back.
unsafe fn place_calls(cupti: &Cupti, buffer: *mut u8, valid: usize) {
    let mut record = core::ptr::null_mut();
    // SAFETY: by the premise; the record before is in the buffer.
    while unsafe { (cupti.next)(buffer, valid, &raw mut record) } == CUPTI_SUCCESS
        && !record.is_null()
    {
        // SAFETY: every record begins with its kind, and one of a call has these fields.
        unsafe {
            if matches!((*record).kind, CUPTI_ACTIVITY_KIND_RUNTIME | CUPTI_ACTIVITY_KIND_DRIVER) {
                let call = record.cast::<record::Api>();
                wants::place_call((*call).correlationId, (*call).start);
            }
        }
    }
}

/// Whether the client wants a record: its kind was enabled when it began.
///
/// # Safety
/// `record` was returned by CUPTI, in a buffer that is not given back yet.
unsafe fn is_wanted(record: *const CUpti_Activity, lent_at: u32) -> bool {
    // SAFETY: every record begins with its kind, by the caller's premise.
    let kind = unsafe { (*record).kind };
    if !wants::ever(kind) {
        return false;
    }
    if matches!(kind, CUPTI_ACTIVITY_KIND_RUNTIME | CUPTI_ACTIVITY_KIND_DRIVER) {
        // SAFETY: a record of these kinds is that of a call.
        let (call, thread) = unsafe {
            let call = record.cast::<record::Api>();
            ((*call).cbid, (*call).threadId)
        };
        if started::is_own_thread(thread) {
            return false;
        }
        if !wants::is_chosen(kind == CUPTI_ACTIVITY_KIND_DRIVER, call) {
            return false;
        }
    }
    // CUPTI collects other kinds only for the client.
    if !kinds::is_on(kind) {
        return true;
    }
    match times::offsets(kind).and_then(<[usize]>::first) {
        Some(offset) => {
            // SAFETY: a record of this kind has its beginning there.
            let start_ns = unsafe { record.byte_add(*offset).cast::<u64>().read_unaligned() };
            wants::covers_time(kind, start_ns)
        }
        None if kind == CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION => {
            // SAFETY: a record of this kind is that of an external id.
            let id = unsafe { &*record.cast::<record::ExternalCorrelation>() };
            wants::covers_turn(kind, lent_at) && wants::covers_call(id.correlationId)
        }
        None => wants::covers_turn(kind, lent_at),
    }
}

/// Copies into buffers that the client lends, one after the other.
struct Copies {
    callbacks: (Request, Complete),
    clock: ClientClock,
    context: CUcontext,
    stream: u32,
    open: Option<Lent>,
}

impl Copies {
    fn push(&mut self, record: &[u8]) {
        if self.open.is_none() {
            self.open = lent::take();
        }
        if let Some(full) = self.open.take_if(|open| !open.has_room(record.len())) {
            full.give_back(self.context, self.stream);
        }
        if self.open.is_none() {
            self.open = Lent::ask(self.callbacks);
        }
        let Some(open) = self.open.as_mut().filter(|open| open.has_room(record.len())) else {
            wants::DROPPED.fetch_add(1, Relaxed);
            return;
        };
        let copy = open.push(record);
        // SAFETY: so long is the copied record.
        unsafe { convert(copy, record.len(), &self.clock) };
    }

    /// What is not full stays for the next records, but for a client that wants it regularly, and
    /// where what could not be read lies behind the last record: the client's reading ends there.
    fn end(&mut self, was_read: bool) {
        let Some(open) = self.open.take() else { return };
        let rest = match was_read && !wants::IS_PERIODIC.load(Relaxed) {
            false => Some(open),
            true => lent::put(open),
        };
        if let Some(rest) = rest {
            rest.give_back(self.context, self.stream);
        }
    }
}

/// Puts a copied record's times on the client's clock.
///
/// # Safety
/// A record that begins with its kind lies there, so long.
unsafe fn convert(record: *mut u8, bytes: usize, clock: &ClientClock) {
    // SAFETY: by the premise.
    let kind = unsafe { record.cast::<CUpti_ActivityKind>().read_unaligned() };
    for offset in times::offsets(kind).unwrap_or_default() {
        if offset + 8 <= bytes {
            // SAFETY: within the record.
            unsafe {
                let at = record.add(*offset).cast::<u64>();
                at.write_unaligned(clock.theirs(at.read_unaligned()));
            }
        }
    }
}
