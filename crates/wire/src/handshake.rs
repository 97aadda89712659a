//! What a process and the collector say to each other on `SESSION/sock`.
//!
//! A target sends one [`Hello`] and receives one [`Welcome`] with three
//! descriptors (SCM_RIGHTS): the session page, its region, the unwind tables.
//! It maps them and closes everything. Control clients send [`Hello`] with
//! [`Role::Control`] and then exchange JSON lines.

/// First word of a [`Hello`] and a [`Welcome`].
pub const HELLO_MAGIC: u64 = 0x3168_6d73_666f_7270; // "profsmh1"

/// Who speaks.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// A process that loaded an injected library.
    Target = 1,
    /// `tprof ctl`: JSON lines follow.
    Control = 2,
}

/// Bits of [`Hello::flags`].
pub mod hello_flags {
    /// The image is a forked child of a process that was already attached.
    pub const FORKED: u32 = 1;
    /// The executable (or an earlier library) brings its own `malloc`, so that
    /// allocations cannot be seen.
    pub const OWN_MALLOC: u32 = 2;
    /// Some hooked function was not found behind this library.
    pub const NO_REAL_MALLOC: u32 = 4;
    /// The CUPTI agent speaks: this region is one more of a process whose hooks
    /// attached before, if they are there.
    pub const AGENT: u32 = 8;
    /// It said hello before, and got no answer in time.
    pub const LATE: u32 = 16;
}

/// First message from a client.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Hello {
    /// [`HELLO_MAGIC`].
    pub magic: u64,
    /// [`crate::WIRE_VERSION`].
    pub version: u32,
    /// [`Role`].
    pub role: u32,
    /// Pid in the sender's namespace.
    pub pid: u32,
    /// Parent's pid in the sender's namespace.
    pub parent: u32,
    /// [`hello_flags`].
    pub flags: u32,
    /// Thread that attaches.
    pub tid: u32,
    /// Sender's clock (TSC ticks, or CLOCK_MONOTONIC nanoseconds).
    pub clock: u64,
    /// Address of a string at the top of the main thread's stack.
    pub stack_top: u64,
}
const _: () = assert!(size_of::<Hello>() == 48);

/// The collector's answer.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Welcome {
    /// [`HELLO_MAGIC`].
    pub magic: u64,
    /// [`crate::WIRE_VERSION`].
    pub version: u32,
    /// 1: recording may begin; 0: the target stays inert.
    pub accepted: u32,
}
const _: () = assert!(size_of::<Welcome>() == 16);
