//! Finds out whether the running task has libc's thread-local storage, which contains this
//! library's block.
//!
//! A task may run with an arbitrary thread pointer. In a child of `clone(CLONE_VM | CLONE_SETTLS)`,
//! which browsers use, it may point at zeros or at unmapped memory. Such a task may still call
//! functions that use no thread-local variable: `_exit`, `mmap`, `prctl`, `execve`. So the hooks of
//! these functions must not use one either.
//!
//! Neither the stack nor ids identify such a child. It may run on its parent's stack, and reading
//! an id takes a system call, which a filter may forbid. But the register that contains the thread
//! pointer does identify it. Reading this register needs neither memory nor the kernel, and its
//! value is compared with the thread pointers of the threads that attached.
//!
//! An unknown thread pointer is examined through the kernel, which never causes a fault. It belongs
//! to a thread of libc only if it points at itself and is followed by a table of modules, which
//! holds for both glibc and musl.
//!
//! Hooks of functions that use thread-local storage themselves (allocators, threads, CUDA) don't
//! need this module. They read their thread's block directly: the hooked function's caller must
//! have thread-local storage anyway, see [`crate::gate::recording`].

use crate::block::Thread;
use crate::seccomp::{CallClass, is_forbidden};
use crate::{arch, sys};
use core::ffi::c_ulong;
use tprof_wire::hash::spread;
use tprof_wire::sync::{AtomicU32, AtomicUsize, Ordering::*};

unsafe extern "C" {
    fn getauxval(kind: c_ulong) -> c_ulong;
}

/// Argument `ARCH_GET_FS` of `arch_prctl`.
pub const GET_FS: usize = 0x1003;

/// 1 once it is known that an instruction can read the thread pointer on this machine.
static BY_INSTRUCTION: AtomicU32 = AtomicU32::new(0);
/// Number of threads under strict seccomp. These may not even make the system call that reads the
/// thread pointer.
pub static STRICT: AtomicU32 = AtomicU32::new(0);

/// The thread pointer of the first thread that attached. Most processes have only one thread.
static FIRST: AtomicUsize = AtomicUsize::new(0);
const PLACES: usize = 8;
const BUCKETS: usize = 2048;
/// Thread pointers of further threads, by hash. If a thread finds no free entry, it is examined
/// anew each time.
static OTHERS: [Bucket; BUCKETS] =
    [const { Bucket([const { AtomicUsize::new(0) }; PLACES]) }; BUCKETS];

#[repr(align(64))]
struct Bucket([AtomicUsize; PLACES]);

/// Finds out how the thread pointer can be read on this machine. Called once.
pub fn prepare() {
    const AT_HWCAP2: c_ulong = 26;
    const FSGSBASE: c_ulong = 2; // Linux 5.9
    // SAFETY: `getauxval` only reads the auxiliary vector.
    if unsafe { getauxval(AT_HWCAP2) } & FSGSBASE != 0 {
        BY_INSTRUCTION.store(1, Relaxed);
    }
}

/// Whether reading the thread pointer takes a system call on this machine.
pub fn needs_system_call() -> bool {
    BY_INSTRUCTION.load(Relaxed) == 0
}

/// The thread pointer; 0 if it isn't set or can't be read.
fn register() -> usize {
    #[cfg(all(test, loom))]
    if let Some(pointer) = crate::models::thread_pointer() {
        return pointer;
    }
    if !needs_system_call() {
        // SAFETY: `HWCAP2_FSGSBASE` says that the kernel allows user space to read it.
        return unsafe { arch::thread_register() };
    }
    if is_forbidden(CallClass::Threads) || STRICT.load(Relaxed) != 0 {
        return 0;
    }
    sys::thread_register(GET_FS)
}

fn bucket(pointer: usize) -> &'static [AtomicUsize; PLACES] {
    let hash = (spread(pointer as u64 >> 6) >> 48) as usize;
    let first = &OTHERS[0];
    &OTHERS.get(hash % BUCKETS).unwrap_or(first).0
}

fn is_known(pointer: usize) -> bool {
    pointer == FIRST.load(Relaxed)
        || bucket(pointer).iter().any(|place| place.load(Relaxed) == pointer)
}

/// Registers this thread, because it has attached or must be recognised later.
pub fn register_thread() {
    let pointer = arch::thread_pointer();
    if is_known(pointer) || FIRST.compare_exchange(0, pointer, Relaxed, Relaxed).is_ok() {
        return;
    }
    let free = |place: &&AtomicUsize| place.compare_exchange(0, pointer, Relaxed, Relaxed).is_ok();
    let _ = bucket(pointer).iter().find(free);
}

/// Unregisters this thread when it is about to end, since its memory may be used for anything then.
pub fn unregister_thread() {
    let pointer = arch::thread_pointer();
    for place in bucket(pointer).iter().chain([&FIRST]) {
        let _ = place.compare_exchange(pointer, 0, Relaxed, Relaxed);
    }
}

/// The block of the running thread; `None` if its thread pointer isn't known to belong to libc.
pub fn own_block() -> Option<&'static Thread> {
    let pointer = register();
    if pointer == 0 || !pointer.is_multiple_of(8) {
        return None;
    }
    let block: *const Thread = arch::block_of(pointer).cast();
    if is_known(pointer) {
        // SAFETY: the thread pointer is that of a thread that is registered and has not ended, so
        // this is its block.
        return Some(unsafe { &*block });
    }
    if is_forbidden(CallClass::Threads) {
        return None;
    }
    let table = pointer.wrapping_add(8);
    let last = (block as usize).wrapping_add(arch::THREAD_BYTES - 8);
    let is_there = [pointer, table, block as usize, last].into_iter().all(sys::is_readable);
    // SAFETY: the kernel has just found that both words are readable.
    let is_thread =
        || unsafe { *(pointer as *const usize) == pointer && *(table as *const usize) != 0 };
    // SAFETY: the block is readable, and the thread pointer looks like that of a thread of libc,
    // whose static TLS contains this block.
    (is_there && is_thread()).then(|| unsafe { &*block })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::alone;

    #[test]
    fn a_thread_of_libcs_has_a_block_even_before_it_is_registered() {
        let _alone = alone();
        let blocks = [(), ()].map(|()| {
            std::thread::spawn(|| {
                // A thread of an earlier test may have ended at this address.
                unregister_thread();
                let block = own_block().unwrap();
                // SAFETY: this thread has thread-local storage.
                assert!(core::ptr::eq(block, unsafe { Thread::here() }));
                assert!(!is_known(arch::thread_pointer()));
            })
        });
        blocks.into_iter().for_each(|thread| thread.join().unwrap());
    }

    #[test]
    fn a_thread_is_known_from_its_registration_to_its_end() {
        let _alone = alone();
        let thread = std::thread::spawn(|| {
            let pointer = arch::thread_pointer();
            unregister_thread();
            let before = FIRST.swap(0, Relaxed);
            register_thread();
            register_thread();
            assert!(is_known(pointer) && own_block().is_some());
            let places = bucket(pointer).iter().chain([&FIRST]);
            assert_eq!(places.filter(|place| place.load(Relaxed) == pointer).count(), 1);
            unregister_thread();
            assert!(!is_known(pointer));
            FIRST.store(before, Relaxed);
        });
        thread.join().unwrap();
    }

    #[test]
    fn threads_that_find_no_place_are_examined_and_still_own_their_blocks() {
        let _alone = alone();
        let thread = std::thread::spawn(|| {
            let pointer = arch::thread_pointer();
            unregister_thread();
            let is_first = FIRST.compare_exchange(0, 8, Relaxed, Relaxed).is_ok();
            bucket(pointer).iter().for_each(|place| place.store(16, Relaxed));
            register_thread();
            assert!(!is_known(pointer) && own_block().is_some());
            bucket(pointer).iter().for_each(|place| place.store(0, Relaxed));
            if is_first {
                FIRST.store(0, Relaxed);
            }
        });
        thread.join().unwrap();
    }

    #[test]
    fn under_a_filter_only_a_known_thread_has_a_block() {
        let _alone = alone();
        let thread = std::thread::spawn(|| {
            let count = &crate::seccomp::counts()[CallClass::Threads as usize];
            unregister_thread();
            count.store(1, SeqCst);
            let unknown = own_block().is_none();
            register_thread();
            let known = own_block().is_some();
            count.store(0, SeqCst);
            unregister_thread();
            (unknown, known)
        });
        // Where the pointer takes a system call to read, no thread has one under a filter.
        assert_eq!(thread.join().unwrap(), (true, !needs_system_call()));
    }

    #[test]
    fn each_thread_has_a_block_of_its_own() {
        let _alone = alone();
        let own = core::ptr::from_ref(own_block().unwrap()).addr();
        let other = std::thread::spawn(|| core::ptr::from_ref(own_block().unwrap()).addr());
        assert_ne!(other.join().unwrap(), own);
    }
}
