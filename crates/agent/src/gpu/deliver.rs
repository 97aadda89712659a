//! Copies the other client's records from a completed buffer into buffers that the client lends.
//! This runs on the thread on which CUPTI completes the buffer, as CUPTI's own delivery would. So
//! the copies are complete when the client's flush returns.

use super::client_clock::{self as clock, ClientClock};
use super::cupti::Cupti;
use super::journal::{self, JournalEvent};
use super::lent::{self, Lent};
use super::wants::{self, Complete, Request};
use super::{buffers, kinds, started};
use tprof_cupti_sys::*;
use tprof_inject::sys;
use tprof_wire::sync::{AtomicU32, Ordering::*};

/// Number of threads that deliver, or that run a flush of the agent, during which CUPTI may
/// deliver. Threads wait on it as a futex.
static BUSY: AtomicU32 = AtomicU32::new(0);
/// Maximum time that a client's flush waits for other threads that deliver.
const WAIT_NS: u64 = 2_000_000_000;

/// A delivery that is in progress. While this value lives, a client's flush waits.
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
    // SAFETY: `buffers::request` and `complete` have the types that
    // `cuptiActivityRegisterCallbacks` demands.
    let result = unsafe { (cupti.register)(Some(buffers::request), Some(complete)) };
    journal::keep(JournalEvent::Registered, [u64::from(result), 0, 0]);
    result
}

/// Called when CUPTI returns a buffer. The other client gets its records from the buffer first.
unsafe extern "C" fn complete(
    context: CUcontext,
    stream: u32,
    buffer: *mut u8,
    bytes: usize,
    valid: usize,
) {
    if !buffers::is_own(buffer) {
        // The client lent this buffer before the agent's callbacks were registered, so it goes back
        // to the client unread.
        if let Some((_, theirs)) = wants::callbacks() {
            // SAFETY: the client's callback gets the arguments with which CUPTI called this one.
            unsafe { theirs(context, stream, buffer, bytes, valid) };
        }
        return;
    }
    // SAFETY: CUPTI passed these arguments to this callback, and the buffer is one that `buffers`
    // lent.
    unsafe {
        deliver(context, stream, buffer, valid);
        buffers::complete(context.cast(), stream, buffer, bytes, valid);
    }
}

/// Copies the records that the client wants from a buffer.
///
/// # Safety
/// CUPTI passed these arguments to the agent's callback, which has not returned.
pub unsafe fn deliver(context: CUcontext, stream: u32, buffer: *mut u8, valid: usize) {
    // A shared buffer may have had several writers, so its records can't be read.
    if !wants::any_ever() || buffers::is_shared(buffer) {
        return;
    }
    let (Some(cupti), Some(callbacks)) = (started::serving(), wants::callbacks()) else { return };
    let _busy = Delivering::begin();
    clock::read(&cupti);
    let lent_at = buffers::lent_at(buffer);
    if wants::covers_turn(CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION, lent_at) {
        // SAFETY: the caller guarantees that CUPTI has just completed this buffer.
        unsafe { place_calls(&cupti, buffer, valid) };
    }
    let mut copies = Copies { callbacks, clock: clock::chosen(), context, stream, open: None };
    let mut record = core::ptr::null_mut();
    let mut result = CUPTI_SUCCESS;
    let mut next = |record: &mut *mut CUpti_Activity| {
        // SAFETY: the caller guarantees a completed buffer; `record` is null or the previous record
        // in it.
        result = unsafe { (cupti.next)(buffer, valid, record) };
        result == CUPTI_SUCCESS && !record.is_null()
    };
    let end = buffer as usize + valid;
    let mut is_there = next(&mut record);
    while is_there {
        let this: *mut CUpti_Activity = record;
        is_there = next(&mut record);
        // After the last record there is nothing more, or there are bytes that can't be read.
        let until = if is_there { record as usize } else { end };
        let Some(bytes) = until.checked_sub(this as usize) else { break };
        // SAFETY: CUPTI returned `this`, in a buffer that has not been recycled yet.
        if unsafe { is_wanted(this, lent_at) } {
            // SAFETY: `bytes` is the distance to the next record or to the end of the buffer, so
            // the whole record is within.
            copies.push(unsafe { core::slice::from_raw_parts(this.cast::<u8>(), bytes) });
        }
    }
    copies.end(result == CUPTI_ERROR_MAX_LIMIT_REACHED);
}

/// Notes the start times of the calls in a buffer. External ids have no times and precede their
/// calls, so their calls' times decide whether the client wants them.
///
/// # Safety
/// CUPTI has completed the buffer, and it has not been recycled yet.
unsafe fn place_calls(cupti: &Cupti, buffer: *mut u8, valid: usize) {
    let mut record = core::ptr::null_mut();
    // SAFETY: the caller guarantees a completed buffer; `record` is null or the previous record in
    // it.
    while unsafe { (cupti.next)(buffer, valid, &raw mut record) } == CUPTI_SUCCESS
        && !record.is_null()
    {
        // SAFETY: every record begins with its kind, and a record of a call has these fields.
        unsafe {
            if matches!((*record).kind, CUPTI_ACTIVITY_KIND_RUNTIME | CUPTI_ACTIVITY_KIND_DRIVER) {
                let call = record.cast::<record::Api>();
                wants::place_call((*call).correlationId, (*call).start);
            }
        }
    }
}

/// Whether the client wants a record: whether its kind was enabled when the recorded work began.
///
/// # Safety
/// CUPTI returned `record`, in a buffer that has not been recycled yet.
unsafe fn is_wanted(record: *const CUpti_Activity, lent_at: u32) -> bool {
    // SAFETY: the caller guarantees a record of CUPTI's, and every record begins with its kind.
    let kind = unsafe { (*record).kind };
    if !wants::ever(kind) {
        return false;
    }
    if matches!(kind, CUPTI_ACTIVITY_KIND_RUNTIME | CUPTI_ACTIVITY_KIND_DRIVER) {
        // SAFETY: records of these two kinds have the fields of `record::Api`.
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
    // The agent doesn't collect this kind, so CUPTI collects it only for the client.
    if !kinds::is_on(kind) {
        return true;
    }
    match times::offsets(kind).and_then(<[usize]>::first) {
        Some(offset) => {
            // SAFETY: by `times::offsets`, records of this kind have their start time at this
            // offset.
            let start_ns = unsafe { record.byte_add(*offset).cast::<u64>().read_unaligned() };
            wants::covers_time(kind, start_ns)
        }
        None if kind == CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION => {
            // SAFETY: records of this kind have the fields of `record::ExternalCorrelation`.
            let id = unsafe { &*record.cast::<record::ExternalCorrelation>() };
            wants::covers_turn(kind, lent_at) && wants::covers_call(id.correlationId)
        }
        None => wants::covers_turn(kind, lent_at),
    }
}

/// Copies records into buffers that the client lends, one after the other.
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
        // SAFETY: `copy` is the copied record, which has `record.len()` bytes.
        unsafe { convert(copy, record.len(), &self.clock) };
    }

    /// Stores a buffer that isn't full for the next records. The client gets it back at once if the
    /// client wants buffers regularly. It also does if unreadable bytes follow the last record,
    /// since the client's own reading would end there too.
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

/// Converts a copied record's times to the client's clock.
///
/// # Safety
/// `record` points at a record of `bytes` bytes, which begins with its kind.
unsafe fn convert(record: *mut u8, bytes: usize, clock: &ClientClock) {
    // SAFETY: the caller guarantees that the record begins with its kind.
    let kind = unsafe { record.cast::<CUpti_ActivityKind>().read_unaligned() };
    for offset in times::offsets(kind).unwrap_or_default() {
        if offset + 8 <= bytes {
            // SAFETY: the eight bytes at `offset` are within the record.
            unsafe {
                let at = record.add(*offset).cast::<u64>();
                at.write_unaligned(clock.theirs(at.read_unaligned()));
            }
        }
    }
}
