//! The buffer that the other client has lent and that isn't full yet. It is requested as soon as
//! the client wants records, since Kineto only flushes if it has lent a buffer. It goes back when
//! it is full or the client flushes.

use super::guarded::Guarded;
use super::wants::{Complete, Request};
use tprof_cupti_sys::CUcontext;

/// A buffer that the client has lent.
pub struct Lent {
    complete: Complete,
    at: *mut u8,
    bytes: usize,
    used: usize,
    /// Number of records that may still be added.
    left: usize,
}

// SAFETY: one thread at a time owns this value and so the buffer; CUPTI, too, completes buffers on
// any thread.
unsafe impl Send for Lent {}

impl Lent {
    /// Requests a buffer from the client; `None` if the client lends none.
    pub fn ask((request, complete): (Request, Complete)) -> Option<Lent> {
        let (mut at, mut bytes, mut most) = (core::ptr::null_mut(), 0, 0);
        // SAFETY: the client's callback gets pointers to three locals, as CUPTI would pass them.
        unsafe { request(&raw mut at, &raw mut bytes, &raw mut most) };
        let left = if most == 0 { usize::MAX } else { most };
        (!at.is_null()).then_some(Lent { complete, at, bytes, used: 0, left })
    }

    /// Whether a record of `bytes` bytes fits into the buffer.
    pub fn has_room(&self, bytes: usize) -> bool {
        self.left > 0 && self.bytes - self.used >= bytes
    }

    /// Whether the buffer has records.
    pub fn has_records(&self) -> bool {
        self.used > 0
    }

    /// Copies a record into the buffer, which must have room for it. Returns the address of the
    /// copy.
    pub fn push(&mut self, record: &[u8]) -> *mut u8 {
        // SAFETY: the client lent `bytes` bytes to be written, and the caller has checked with
        // `has_room` that the record fits.
        let to = unsafe {
            let to = self.at.add(self.used);
            to.copy_from_nonoverlapping(record.as_ptr(), record.len());
            to
        };
        self.used += record.len();
        self.left -= 1;
        to
    }

    /// Returns the buffer to the client.
    #[allow(clippy::not_unsafe_ptr_arg_deref)] // passed on, not read
    pub fn give_back(self, context: CUcontext, stream: u32) {
        // SAFETY: the client's callback gets a buffer that the client lent, with the number of
        // bytes used.
        unsafe { (self.complete)(context, stream, self.at, self.bytes, self.used) };
    }
}

/// The buffer that is not full.
static PLACE: Guarded<Option<Lent>> = Guarded::new(None);

/// Takes the buffer that is not full, if there is one.
pub fn take() -> Option<Lent> {
    PLACE.with(Option::take)
}

/// Stores a buffer that isn't full. Returns a buffer that another thread has stored before.
pub fn put(lent: Lent) -> Option<Lent> {
    PLACE.with(|place| place.replace(lent))
}

/// Requests a buffer from the client, unless one is stored.
pub fn prepare(callbacks: (Request, Complete)) {
    if PLACE.with(|place| place.is_none()) {
        let other = Lent::ask(callbacks).and_then(put);
        if let Some(other) = other {
            other.give_back(core::ptr::null_mut(), 0);
        }
    }
}

/// Returns the buffer to the client. Called when the client flushes.
pub fn flush() {
    if let Some(lent) = take() {
        lent.give_back(core::ptr::null_mut(), 0);
    }
}
