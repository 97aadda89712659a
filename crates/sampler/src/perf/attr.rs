//! Opens counters with `perf_event_open(2)`, and controls them.
#![allow(unsafe_code)] // system calls

use perf_event_open_sys::bindings::{self, PERF_ATTR_SIZE_VER5};
use perf_event_open_sys::ioctls;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// What a counter counts and records: the kernel's `struct perf_event_attr`.
pub use bindings::perf_event_attr as Attr;

/// Returns the attribute for an event. `kind` is a `PERF_TYPE_…` and `config` a `PERF_COUNT_…`.
pub fn attr_of(kind: u32, config: u32) -> Attr {
    let mut attr = Attr::default();
    // The struct has the size of Linux 4.8's, because its later fields aren't used. An older kernel
    // accepts a larger struct only if the fields that it doesn't know are zero.
    attr.size = PERF_ATTR_SIZE_VER5;
    attr.type_ = kind;
    attr.config = config.into();
    attr
}

/// An open counter.
#[derive(Debug)]
pub struct Counter {
    fd: OwnedFd,
}

impl Counter {
    /// Opens a counter of a thread (0 for this thread, -1 for all) on a processor (-1 for any).
    pub fn open(attr: &Attr, tid: i32, cpu: i32) -> io::Result<Counter> {
        let mut attr = *attr;
        let flags = bindings::PERF_FLAG_FD_CLOEXEC.into();
        // SAFETY: `attr` is alive during the call, and `attr.size`, which `attr_of` has set, isn't
        // larger than `Attr`.
        let fd =
            unsafe { perf_event_open_sys::perf_event_open(&raw mut attr, tid, cpu, -1, flags) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the call above has just returned this descriptor, so nothing else owns it.
        Ok(Counter { fd: unsafe { OwnedFd::from_raw_fd(fd) } })
    }

    /// Returns the descriptor, which can be polled or mapped.
    pub fn fd(&self) -> &OwnedFd {
        &self.fd
    }

    /// Enables the counter.
    pub fn enable(&self) -> io::Result<()> {
        // SAFETY: `ENABLE` takes a descriptor, which `self` keeps open, and an integer.
        done(unsafe { ioctls::ENABLE(self.fd.as_raw_fd(), 0) })
    }

    /// Disables the counter.
    pub fn disable(&self) -> io::Result<()> {
        // SAFETY: `DISABLE` takes a descriptor, which `self` keeps open, and an integer.
        done(unsafe { ioctls::DISABLE(self.fd.as_raw_fd(), 0) })
    }

    /// Makes the counter write its records into the ring of `other`, which must be of the same
    /// processor.
    pub fn share_ring_of(&self, other: &Counter) -> io::Result<()> {
        // SAFETY: `SET_OUTPUT` takes two descriptors, which `self` and `other` keep open.
        done(unsafe { ioctls::SET_OUTPUT(self.fd.as_raw_fd(), other.fd.as_raw_fd()) })
    }

    /// Returns the id that the counter's records contain. Copies that threads inherit have the same
    /// id.
    pub fn id(&self) -> io::Result<u64> {
        let mut id = 0;
        // SAFETY: the descriptor is open, and the kernel writes one `u64` to `id`.
        done(unsafe { ioctls::ID(self.fd.as_raw_fd(), &raw mut id) })?;
        Ok(id)
    }

    /// Returns the count, including those of the copies that threads have inherited.
    pub fn value(&self) -> io::Result<u64> {
        self.read::<1>().map(|[value]| value)
    }

    /// Returns how long the counter has counted, including its inherited copies, ns. The counter
    /// must have been opened with `PERF_FORMAT_TOTAL_TIME_RUNNING`.
    pub fn ran_ns(&self) -> io::Result<u64> {
        self.read::<2>().map(|[_, ran_ns]| ran_ns)
    }

    fn read<const WORDS: usize>(&self) -> io::Result<[u64; WORDS]> {
        let mut words = [0; WORDS];
        let bytes = size_of_val(&words);
        // SAFETY: `words` has room for `bytes` bytes, and the kernel writes no more than that.
        let got = unsafe { libc::read(self.fd.as_raw_fd(), words.as_mut_ptr().cast(), bytes) };
        if got == bytes as isize { Ok(words) } else { Err(io::Error::last_os_error()) }
    }
}

fn done(result: i32) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
