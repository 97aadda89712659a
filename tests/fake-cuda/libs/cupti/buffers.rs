//! Keeps the buffers of the older interface's client. This CUPTI requests a buffer when it needs
//! one, and returns it when it is full or flushed.
//!
//! Real clients of the older interface can harm each other, and here they can, too: the last client to
//! register gets all records, a buffer that should be zeroed and isn't comes back with its old
//! content, and before CUDA 12.9 a client without a buffer ends the process.

use crate::{PER_THREAD, ZEROED, clients, complain, faults, lock};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::*};
use tprof_cupti_sys::bindings::CUcontext;

type Request = unsafe extern "C" fn(*mut *mut u8, *mut usize, *mut usize);
type Complete = unsafe extern "C" fn(CUcontext, u32, *mut u8, usize, usize);

/// A buffer that a client lent.
pub struct Buffer {
    /// Address of the buffer.
    pub at: usize,
    /// Length of the buffer.
    pub bytes: usize,
    /// Bytes of records.
    pub used: usize,
}

impl Buffer {
    /// Whether the buffer has room for a record.
    pub fn has_room(&self, record: &[u8]) -> bool {
        self.used + record.len() <= self.bytes
    }

    /// Writes a record for which there is room.
    pub fn write(&mut self, record: &[u8]) {
        // SAFETY: the caller checked that there is room, and the client lent this memory.
        unsafe {
            let at = (self.at + self.used) as *mut u8;
            match ZEROED.load(Relaxed) {
                false => std::ptr::copy_nonoverlapping(record.as_ptr(), at, record.len()),
                // Zero bytes are not written, so that a buffer that was not zeroed shows.
                true => (0..record.len()).filter(|byte| record[*byte] != 0).for_each(|byte| {
                    at.add(byte).write(record[byte]);
                }),
            }
        }
        self.used += record.len();
    }
}

struct State {
    client: Option<(Request, Complete)>,
    /// Buffers that are being filled, by the thread whose records they get. Key 0 is the buffer of
    /// the device's records, or of all records.
    open: BTreeMap<u32, Buffer>,
    late: Vec<(Buffer, Complete)>,
    /// Buffers that are held back until a forced flush.
    held: Vec<Buffer>,
}

static STATE: Mutex<State> =
    Mutex::new(State { client: None, open: BTreeMap::new(), late: Vec::new(), held: Vec::new() });

/// Registers a client's functions. The client before it gets its buffers back, and then no more
/// records.
pub fn register(request: Request, complete: Complete) {
    let mut state = lock(&STATE);
    let before = state.client.replace((request, complete));
    let open = std::mem::take(&mut state.open);
    let held = std::mem::take(&mut state.held);
    drop(state);
    let Some((_, before)) = before else { return };
    for buffer in held.into_iter().chain(open.into_values()) {
        if faults::is_set("orphans") {
            hand_over(buffer, complete);
        } else if !faults::is_set("lost") {
            give(buffer, before);
        }
    }
}

/// Removes the client. The buffers that it lent are lost.
pub fn detach() {
    let mut state = lock(&STATE);
    state.client = None;
    state.open.clear();
    state.late.clear();
    state.held.clear();
}

/// Drops the records of a context that ended.
pub fn forget() {
    let mut state = lock(&STATE);
    let State { open, held, .. } = &mut *state;
    open.values_mut().chain(held).for_each(|buffer| buffer.used = 0);
}

/// Whether there is a client.
pub fn is_registered() -> bool {
    lock(&STATE).client.is_some()
}

/// Puts a record into the buffer of a thread.
pub fn put(thread: u32, record: &[u8]) {
    if clients::are_apart() {
        return clients::put(record);
    }
    let thread = if PER_THREAD.load(Relaxed) { thread } else { 0 };
    let mut full = None;
    let mut state = lock(&STATE);
    let Some((request, complete)) = state.client else { return };
    if state.open.get(&thread).is_some_and(|open| !open.has_room(record)) {
        full = state.open.remove(&thread);
    }
    if let Entry::Vacant(place) = state.open.entry(thread) {
        // SAFETY: the client registered this function of CUPTI's type, and the pointers are to locals.
        match ask(|at, bytes, most| unsafe { request(at, bytes, most) }) {
            Some(buffer) => {
                place.insert(buffer);
            }
            None => {
                faults::DROPPED.fetch_add(1, SeqCst);
            }
        }
    }
    if let Some(buffer) = state.open.get_mut(&thread) {
        buffer.write(record);
    }
    static PUT: AtomicU64 = AtomicU64::new(0);
    if faults::turn("hold", &PUT) {
        let open = std::mem::take(&mut state.open);
        state.held.extend(open.into_values());
    }
    drop(state);
    if let Some(buffer) = full {
        give(buffer, complete);
    }
}

/// Asks a client for a buffer through `request`, and returns the buffer.
pub fn ask(request: impl FnOnce(*mut *mut u8, *mut usize, *mut usize)) -> Option<Buffer> {
    let (mut at, mut bytes, mut most) = (std::ptr::null_mut(), 0, 0);
    request(&raw mut at, &raw mut bytes, &raw mut most);
    if at.is_null() {
        if crate::version() < 27 {
            complain("no buffer was lent, which is the end before CUDA 12.9");
            std::process::abort();
        }
        return None;
    }
    // SAFETY: the client lent `bytes` bytes at `at`, and nothing else uses them now.
    let memory = unsafe { std::slice::from_raw_parts_mut(at, bytes) };
    if !(at as usize).is_multiple_of(8) {
        complain("a buffer is not aligned to 8 bytes");
    }
    if !ZEROED.load(Relaxed) {
        memory.fill(0);
    } else if memory.iter().any(|byte| *byte != 0) {
        complain("a buffer that should be zeroed is not");
    }
    Some(Buffer { at: at as usize, bytes, used: 0 })
}

fn give(buffer: Buffer, complete: Complete) {
    if faults::is_set("late") {
        lock(&STATE).late.push((buffer, complete));
        return;
    }
    hand_over(buffer, complete);
}

fn hand_over(buffer: Buffer, complete: Complete) {
    // SAFETY: the client registered this function of CUPTI's type, and it lent the buffer.
    unsafe {
        complete(std::ptr::null_mut(), 0, buffer.at as *mut u8, buffer.bytes, buffer.used);
    }
}

/// Returns all buffers with records to the client.
pub fn flush(forced: bool) {
    // Flushes run one after another, so that no flush overtakes buffers that another has taken out.
    static FLUSHING: Mutex<()> = Mutex::new(());
    let _flushing = lock(&FLUSHING);
    let mut state = lock(&STATE);
    let Some((_, complete)) = state.client else { return };
    let late = std::mem::take(&mut state.late);
    let open = std::mem::take(&mut state.open);
    let held = if forced { std::mem::take(&mut state.held) } else { Vec::new() };
    drop(state);
    for (buffer, complete) in late.into_iter().rev() {
        hand_over(buffer, complete);
    }
    for mut buffer in held.into_iter().chain(open.into_values()) {
        if forced && faults::is_set("unended") && buffer.used + 8 <= buffer.bytes {
            // SAFETY: the check above found room for the header, and the client lent this memory.
            unsafe { std::ptr::write_bytes((buffer.at + buffer.used) as *mut u8, 0, 8) };
            buffer.used += 8;
        }
        if forced { hand_over(buffer, complete) } else { give(buffer, complete) }
    }
}
