//! `perf_event_open(2)` and what is asked of a counter once it is open.
#![allow(unsafe_code)] // system calls

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// `struct perf_event_attr` as of Linux 4.8: older fields never move.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Attr {
    /// Kind of event: [`SOFTWARE`] or [`HARDWARE`].
    pub kind: u32,
    pub(crate) size: u32,
    /// Which event of that kind.
    pub config: u64,
    /// Period, or frequency with [`flag::FREQ`].
    pub period: u64,
    /// What a sample holds: [`sample`].
    pub sample: u64,
    /// What `read` gives.
    pub read_format: u64,
    /// [`flag`]s.
    pub flags: u64,
    /// Samples before a wake-up.
    pub wakeup_events: u32,
    pub(crate) bp_type: u32,
    pub(crate) config1: u64,
    pub(crate) config2: u64,
    pub(crate) branch: u64,
    /// User registers in a sample, a mask.
    pub regs_user: u64,
    /// Most bytes of user stack in a sample.
    pub stack_user: u32,
    /// Clock, with [`flag::USE_CLOCKID`].
    pub clockid: i32,
    pub(crate) regs_intr: u64,
    pub(crate) aux_watermark: u32,
    /// Most frames in a call chain; 0 is the machine's limit.
    pub max_stack: u16,
    pub(crate) reserved: u16,
}

const _: () = assert!(size_of::<Attr>() == 112);

/// `PERF_TYPE_HARDWARE`.
pub const HARDWARE: u32 = 0;
/// `PERF_TYPE_SOFTWARE`.
pub const SOFTWARE: u32 = 1;

/// Software events.
pub mod software {
    /// Time on a processor; samples come from a timer.
    pub const CPU_CLOCK: u64 = 0;
    /// Pages touched first.
    pub const PAGE_FAULTS: u64 = 2;
    /// Pages touched first that were in memory.
    pub const MINOR_FAULTS: u64 = 5;
    /// Pages touched that had to be read.
    pub const MAJOR_FAULTS: u64 = 6;
    /// A thread leaves its processor.
    pub const CONTEXT_SWITCHES: u64 = 3;
    /// A thread moves to another processor.
    pub const MIGRATIONS: u64 = 4;
}

/// Hardware events.
pub mod hardware {
    /// Cycles.
    pub const CYCLES: u64 = 0;
    /// Retired instructions.
    pub const INSTRUCTIONS: u64 = 1;
    /// References to the last cache.
    pub const CACHE_REFERENCES: u64 = 2;
    /// Those that missed.
    pub const CACHE_MISSES: u64 = 3;
    /// Retired branches.
    pub const BRANCHES: u64 = 4;
    /// Those that were guessed wrong.
    pub const BRANCH_MISSES: u64 = 5;
}

/// Bits of [`Attr::read_format`].
pub mod read {
    /// Time for which a counter counted.
    pub const TIME_RUNNING: u64 = 1 << 1;
}

/// Bits of [`Attr::sample`].
pub mod sample {
    #[allow(missing_docs)]
    pub const IP: u64 = 1;
    #[allow(missing_docs)]
    pub const TID: u64 = 1 << 1;
    #[allow(missing_docs)]
    pub const TIME: u64 = 1 << 2;
    #[allow(missing_docs)]
    pub const CALLCHAIN: u64 = 1 << 5;
    #[allow(missing_docs)]
    pub const CPU: u64 = 1 << 7;
    #[allow(missing_docs)]
    pub const PERIOD: u64 = 1 << 8;
    #[allow(missing_docs)]
    pub const REGS_USER: u64 = 1 << 12;
    #[allow(missing_docs)]
    pub const STACK_USER: u64 = 1 << 13;
    /// The counter's id comes first.
    pub const IDENTIFIER: u64 = 1 << 16;
}

/// Bits of [`Attr::flags`].
pub mod flag {
    #[allow(missing_docs)]
    pub const DISABLED: u64 = 1;
    /// Children and new threads are counted as well.
    pub const INHERIT: u64 = 1 << 1;
    #[allow(missing_docs)]
    pub const EXCLUDE_KERNEL: u64 = 1 << 5;
    #[allow(missing_docs)]
    pub const EXCLUDE_HV: u64 = 1 << 6;
    /// Records of executable mappings.
    pub const MMAP: u64 = 1 << 8;
    /// Records of names.
    pub const COMM: u64 = 1 << 9;
    #[allow(missing_docs)]
    pub const FREQ: u64 = 1 << 10;
    #[allow(missing_docs)]
    pub const ENABLE_ON_EXEC: u64 = 1 << 12;
    /// Records of forks and exits.
    pub const TASK: u64 = 1 << 13;
    /// All records tell time and thread.
    pub const SAMPLE_ID_ALL: u64 = 1 << 18;
    #[allow(missing_docs)]
    pub const EXCLUDE_CALLCHAIN_KERNEL: u64 = 1 << 21;
    #[allow(missing_docs)]
    pub const EXCLUDE_CALLCHAIN_USER: u64 = 1 << 22;
    /// Records of mappings name the file's inode.
    pub const MMAP2: u64 = 1 << 23;
    /// Records of names tell an exec.
    pub const COMM_EXEC: u64 = 1 << 24;
    #[allow(missing_docs)]
    pub const USE_CLOCKID: u64 = 1 << 25;
    /// Records of threads that leave and enter a processor.
    pub const CONTEXT_SWITCH: u64 = 1 << 26;
}

const IOC_ENABLE: libc::c_ulong = 0x2400;
const IOC_DISABLE: libc::c_ulong = 0x2401;
const IOC_SET_OUTPUT: libc::c_ulong = 0x2405;
const IOC_ID: libc::c_ulong = 0x8008_2407;
const FLAG_FD_CLOEXEC: libc::c_ulong = 8;

/// An open counter.
#[derive(Debug)]
pub struct Counter {
    fd: OwnedFd,
}

impl Counter {
    /// Opens a counter of a thread (0: this one; -1: all) on a processor (-1: any).
    pub fn open(attr: &Attr, tid: i32, cpu: i32) -> io::Result<Counter> {
        let attr = Attr { size: size_of::<Attr>() as u32, ..*attr };
        // SAFETY: points at a live attr whose size it tells.
        let fd = unsafe {
            libc::syscall(libc::SYS_perf_event_open, &raw const attr, tid, cpu, -1, FLAG_FD_CLOEXEC)
        };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: a fresh descriptor that nothing else owns.
        Ok(Counter { fd: unsafe { OwnedFd::from_raw_fd(fd as i32) } })
    }

    /// Its descriptor, to be polled or mapped.
    pub fn fd(&self) -> &OwnedFd {
        &self.fd
    }

    fn ioctl(&self, request: libc::c_ulong, argument: u64) -> io::Result<()> {
        // SAFETY: none of these requests keeps the argument.
        match unsafe { libc::ioctl(self.fd.as_raw_fd(), request, argument) } {
            -1 => Err(io::Error::last_os_error()),
            _ => Ok(()),
        }
    }

    /// Lets it count.
    pub fn enable(&self) -> io::Result<()> {
        self.ioctl(IOC_ENABLE, 0)
    }

    /// Stops it.
    pub fn disable(&self) -> io::Result<()> {
        self.ioctl(IOC_DISABLE, 0)
    }

    /// Sends its records into the ring of another counter of the same processor.
    pub fn share_ring_of(&self, other: &Counter) -> io::Result<()> {
        self.ioctl(IOC_SET_OUTPUT, other.fd.as_raw_fd() as u64)
    }

    /// The id by which records name it; those of inherited copies too.
    pub fn id(&self) -> io::Result<u64> {
        let mut id = 0u64;
        self.ioctl(IOC_ID, (&raw mut id) as u64)?;
        Ok(id)
    }

    /// What it counted, its own and its inherited copies'.
    pub fn value(&self) -> io::Result<u64> {
        let mut value = 0u64;
        // SAFETY: room for the eight bytes that a read without a format gives.
        let got = unsafe { libc::read(self.fd.as_raw_fd(), (&raw mut value).cast(), 8) };
        if got == 8 { Ok(value) } else { Err(io::Error::last_os_error()) }
    }

    /// For how long it counted, ns: of one opened with [`read::TIME_RUNNING`], with
    /// its inherited copies.
    pub fn ran_ns(&self) -> io::Result<u64> {
        let mut read = [0u64; 2];
        let bytes = size_of_val(&read);
        // SAFETY: room for the two words that a read with the time gives.
        let got = unsafe { libc::read(self.fd.as_raw_fd(), read.as_mut_ptr().cast(), bytes) };
        if got == bytes as isize { Ok(read[1]) } else { Err(io::Error::last_os_error()) }
    }
}
