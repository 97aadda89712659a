//! The state of the whole process: its mappings, its modes, and its generation.
//!
//! Each hook compares its thread's stamp with the generation. If they differ, the thread must take
//! the slow path: it is not attached yet, it is in a forked child, or recording was turned off.

use tprof_wire::hash::spread;
use tprof_wire::region::{RegionHeader, SessionPage, mem_mode, off};
use tprof_wire::sync::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering::*};

/// A page that the kernel zeroes in a forked child.
#[repr(C, align(4096))]
pub struct Wiped {
    /// The current generation; 0 in a process that has not attached.
    pub generation: AtomicU64,
    /// 1 once this process sent `Hello` to a collector that did not answer in time.
    pub asked: AtomicU64,
    /// Number of events that were not recorded since then.
    pub missed: AtomicU64,
    /// Number of threads that are reading unwind information of loaded objects, which must not be
    /// unmapped meanwhile.
    pub reading_frames: AtomicU64,
    /// Number of `dlclose` calls that are unloading libraries: see [`crate::unloading`].
    pub unloading: AtomicU64,
    /// The switch of the allocator's hooks ([`Hot::switch`]) in a process with `--mem off`. It is in
    /// this page so that the hooks attach a forked child, even one of a raw `clone`.
    pub without_heap: AtomicU32,
    rest: [u32; 1013],
}

impl Wiped {
    /// Zeroes the page in a forked child. Linux before 4.14 can't do that itself.
    pub fn wipe(&self) {
        for word in
            [&self.generation, &self.asked, &self.missed, &self.reading_frames, &self.unloading]
        {
            word.store(0, Relaxed);
        }
        self.without_heap.store(0, Relaxed);
    }
}

/// The page. It is in `.bss` after the page that has the end of `.data`, so that its mapping is
/// anonymous, as `MADV_WIPEONFORK` demands.
pub static WIPED: Wiped = Wiped {
    generation: AtomicU64::new(0),
    asked: AtomicU64::new(0),
    missed: AtomicU64::new(0),
    reading_frames: AtomicU64::new(0),
    unloading: AtomicU64::new(0),
    without_heap: AtomicU32::new(0),
    rest: [0; 1013],
};

/// The phase of this process. A forked child inherits it, unlike [`WIPED`].
pub static PHASE: AtomicU32 = AtomicU32::new(phase::NEW);
/// Values of [`PHASE`].
pub mod phase {
    /// No hook has run.
    pub const NEW: u32 = 0;
    /// A thread is initialising this library. Hooks only call the real functions.
    pub const BUSY: u32 = 1;
    /// The process is attached to the session.
    pub const ON: u32 = 2;
    /// Recording is off for good.
    pub const OFF: u32 = 3;
    /// The collector did not answer in time. This process asks again when the collector resumes.
    pub const LATER: u32 = 4;
}

/// Number of generations so far. A forked child inherits it, so that its generation differs from
/// its parent's.
static GENERATIONS: AtomicU64 = AtomicU64::new(0);
/// Pid of the process that attached. A vfork child shares this memory and is detected by its other
/// pid.
pub static PID: AtomicU32 = AtomicU32::new(0);
/// Address of the process's region; null before the process has one.
pub static REGION: AtomicPtr<u8> = AtomicPtr::new(core::ptr::null_mut());
/// Address of the session page; null before attaching.
pub static SESSION: AtomicPtr<SessionPage> = AtomicPtr::new(core::ptr::null_mut());
/// Address of the unwind tables; null before attaching.
pub static TABLES: AtomicPtr<u8> = AtomicPtr::new(core::ptr::null_mut());
/// Bytes of the unwind tables that are mapped.
pub static TABLES_BYTES: AtomicUsize = AtomicUsize::new(0);
/// Number of bytes of the unwind tables that may be read so far. The rest becomes accessible as the
/// collector adds tables, so that an `mlockall` of the job doesn't allocate memory for all of it.
pub static TABLES_OPEN: AtomicUsize = AtomicUsize::new(0);
/// Whether the process's address space is limited, so that this library should map little.
pub static SPARING: AtomicBool = AtomicBool::new(false);
/// How memory is recorded: one of [`tprof_wire::region::mem_mode`].
pub static MEM_MODE: AtomicU32 = AtomicU32::new(0);
/// Whether CUDA runtime and NCCL calls are recorded.
pub static CALLS: AtomicU32 = AtomicU32::new(0);
/// Whether calls on files and sockets are recorded.
pub static IO: AtomicU32 = AtomicU32::new(0);
/// How operators are recorded: one of [`tprof_wire::operators::mode`].
pub static OPERATORS: AtomicU32 = AtomicU32::new(0);
/// How stacks are taken: one of [`tprof_wire::region::stack_mode`].
pub static STACK_MODE: AtomicU32 = AtomicU32::new(0);
/// Path of the file for the results of checks of stacks; null if no checks were requested.
pub static CHECK_STACKS: AtomicPtr<u8> = AtomicPtr::new(core::ptr::null_mut());
/// Mean number of bytes between samples of allocations.
pub static INTERVAL: AtomicU64 = AtomicU64::new(0);
/// The values that the allocator's hooks read at each call, in one cache line.
#[repr(C, align(64))]
pub struct Hot {
    /// The real `malloc`; 0 until it is found.
    pub malloc: AtomicUsize,
    /// The real `calloc`.
    pub calloc: AtomicUsize,
    /// The real `free`.
    pub free: AtomicUsize,
    /// Points to the word whose bit [`off::UNCOUNTED`] is set while the hooks only call the real
    /// functions. It is never null. See [`Hot::is_uncounted`].
    pub switch: AtomicPtr<AtomicU32>,
    /// The filter of [`crate::sampled_blocks`]; one without blocks until a block was sampled. It is
    /// never null.
    pub filter: AtomicPtr<u8>,
    /// Whether the clock is the TSC.
    pub clock_is_tsc: AtomicU32,
}

/// The switch of a process that has not found the real functions: the hooks take the path on which
/// they look for them. The highest bit tells it from a switch that is off.
static UNRESOLVED: AtomicU32 = AtomicU32::new(0x80 | off::UNCOUNTED);
/// The switch of a process that is not attached, so that its hooks attach it.
static UNATTACHED: AtomicU32 = AtomicU32::new(0);
/// The switch of a process that never records again.
static NEVER: AtomicU32 = AtomicU32::new(off::UNCOUNTED);

impl Hot {
    /// Whether the allocator's hooks are only to call the real functions, so that they cost next to
    /// nothing: recording is off in the session, or never records the heap (`--mem off`).
    #[inline(always)]
    pub fn is_uncounted(&self) -> bool {
        // SAFETY: `switch` is the address of a static, or of a field of the region's header, which
        // is mapped for the process's life and inherited by a forked child.
        unsafe { (*self.switch.load(Relaxed)).load(Relaxed) & off::UNCOUNTED != 0 }
    }

    /// Whether aligned allocations must notice what PyTorch should call, although
    /// [`Hot::is_uncounted`].
    #[inline(always)]
    pub fn notices_steps(&self) -> bool {
        // SAFETY: as in `is_uncounted`.
        unsafe { (*self.switch.load(Relaxed)).load(Relaxed) & off::STEPS != 0 }
    }

    /// Called when the real functions are known.
    pub fn resolved(&self) {
        let [from, to] = [&raw const UNRESOLVED, &raw const UNATTACHED].map(<*const _>::cast_mut);
        let is_complete =
            [&self.malloc, &self.calloc, &self.free].iter().all(|f| f.load(Relaxed) != 0);
        if is_complete {
            let _ = self.switch.compare_exchange(from, to, Release, Relaxed);
        }
    }

    /// Follows this word from now on, once the real functions are known.
    fn follow(&self, word: &'static AtomicU32) {
        if self.switch.load(Relaxed) != (&raw const UNRESOLVED).cast_mut() {
            self.switch.store(core::ptr::from_ref(word).cast_mut(), Release);
        }
    }
}

/// Called in a forked child, which isn't attached to a region of its own yet. A child of a raw
/// `clone` doesn't come here, and follows its parent's switch until it attaches.
pub fn forked() {
    WIPED.wipe();
    HOT.follow(&UNATTACHED);
}

/// Called when the process has attached.
pub fn attached(header: &'static RegionHeader) {
    if MEM_MODE.load(Relaxed) != mem_mode::OFF {
        return HOT.follow(&header.off);
    }
    // Aligned allocations make PyTorch call callbacks again, whether blocks are recorded or not.
    WIPED.without_heap.store(off::UNCOUNTED | off::STEPS, Relaxed);
    HOT.follow(&WIPED.without_heap);
}

/// The hot values of this process.
pub static HOT: Hot = Hot {
    malloc: AtomicUsize::new(0),
    calloc: AtomicUsize::new(0),
    free: AtomicUsize::new(0),
    switch: AtomicPtr::new((&raw const UNRESOLVED).cast_mut()),
    filter: AtomicPtr::new((&raw const crate::sampled_blocks::NOTHING).cast_mut().cast()),
    clock_is_tsc: AtomicU32::new(0),
};
/// The real `clock_gettime`, if the clock is not the TSC.
pub static CLOCK_GETTIME: AtomicUsize = AtomicUsize::new(0);
/// Whether the real `malloc` is glibc's.
pub static MALLOC_IS_GLIBC: AtomicU32 = AtomicU32::new(0);
/// The real `malloc_usable_size`.
pub static USABLE_SIZE: AtomicUsize = AtomicUsize::new(0);
/// An address at the top of the main thread's stack.
pub static STACK_TOP: AtomicUsize = AtomicUsize::new(0);

/// The region's header; `None` before attaching.
#[inline(always)]
pub fn header() -> Option<&'static RegionHeader> {
    let region = REGION.load(Relaxed);
    // SAFETY: a non-null region begins with its header and stays mapped for the process's life.
    (!region.is_null()).then(|| unsafe { &*region.cast::<RegionHeader>() })
}

/// Whether a part of the recording is thinned: one of the bits of [`tprof_wire::region::thinned`].
#[inline(always)]
pub fn is_thinned(part: u32) -> bool {
    header().is_some_and(|header| header.is_thinned(part))
}

/// The session page; `None` before attaching.
#[inline(always)]
pub fn session() -> Option<&'static SessionPage> {
    let session = SESSION.load(Relaxed);
    // SAFETY: a non-null session page stays mapped for the process's life.
    (!session.is_null()).then(|| unsafe { &*session })
}

/// Whether this process is attached. Calling this doesn't attach it. A forked child is not attached
/// until it records something.
pub fn is_attached() -> bool {
    WIPED.generation.load(Relaxed) != 0
}

/// Returns a generation that differs from all earlier ones and that memory is unlikely to contain
/// by chance. The latter matters for a task with a thread pointer of its own, since a hook compares
/// the generation with the unrelated memory at that pointer.
pub fn next_generation() -> u64 {
    // `spread` multiplies by an odd factor, so a value is repeated, or 0, only after 2^64
    // generations.
    spread(GENERATIONS.fetch_add(1, Relaxed) + 1)
}

/// Turns recording off for good in this process.
pub fn turn_off(reason: u32) {
    if let Some(header) = header() {
        header.off_reason.store(reason, Relaxed);
    }
    PHASE.store(phase::OFF, Release);
    WIPED.generation.store(0, Release);
    HOT.follow(&NEVER);
}

/// Values of [`RegionHeader::off_reason`].
pub mod off_reason {
    /// The collector has exited.
    pub const COLLECTOR_GONE: u32 = 1;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Attached;

    #[test]
    fn generations_differ_and_are_never_zero() {
        let all: std::collections::HashSet<_> = (0..1000).map(|_| next_generation()).collect();
        assert!(all.len() == 1000 && !all.contains(&0));
    }

    #[test]
    fn a_process_that_is_off_for_good_says_why_and_its_hooks_only_call() {
        let process = Attached::new();
        for real in [&HOT.malloc, &HOT.calloc, &HOT.free] {
            real.store(1, SeqCst);
        }
        HOT.resolved();
        attached(process.header());
        assert!(!HOT.is_uncounted() && is_attached());
        turn_off(off_reason::COLLECTOR_GONE);
        assert_eq!(process.header().off_reason.load(SeqCst), off_reason::COLLECTOR_GONE);
        assert!(HOT.is_uncounted() && !is_attached());
        assert_eq!(PHASE.load(SeqCst), phase::OFF);
    }

    #[test]
    fn without_the_heap_hooks_only_jump_except_in_a_child_of_a_raw_clone() {
        let process = Attached::new();
        for real in [&HOT.malloc, &HOT.calloc, &HOT.free] {
            real.store(1, SeqCst);
        }
        HOT.resolved();
        let mode = MEM_MODE.swap(mem_mode::OFF, SeqCst);
        attached(process.header());
        assert!(HOT.is_uncounted() && HOT.notices_steps());
        // The kernel zeroes the page.
        WIPED.wipe();
        assert!(!HOT.is_uncounted());
        MEM_MODE.store(mode, SeqCst);
    }

    #[test]
    fn a_forked_child_is_not_attached_and_its_hooks_attach_it() {
        let process = Attached::new();
        for real in [&HOT.malloc, &HOT.calloc, &HOT.free] {
            real.store(1, SeqCst);
        }
        HOT.resolved();
        attached(process.header());
        process.header().stop_session(off::SESSION | off::UNCOUNTED);
        assert!(HOT.is_uncounted());
        forked();
        assert!(!is_attached() && !HOT.is_uncounted());
    }
}
