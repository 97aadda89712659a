//! Holds the CUPTI that the agent uses. It is set once when the agent starts. The agent's thread
//! and the calls of other clients read it.

use super::cupti::Cupti;
use core::cell::UnsafeCell;
use core::ffi::c_int;
use core::mem::MaybeUninit;
use tprof_inject::agent_link;
use tprof_inject::state::WIPED;
use tprof_inject::{loaded, sys};
use tprof_wire::sync::{AtomicBool, AtomicU32, AtomicU64, Ordering::*};

/// The process's generation when the agent started; 0 before that. A forked child has another
/// generation, by which it is recognised.
static GENERATION: AtomicU64 = AtomicU64::new(0);

/// CUPTI's functions, written once before [`GENERATION`].
struct CuptiCell(UnsafeCell<MaybeUninit<Cupti>>);
// SAFETY: one thread writes the value before it sets `GENERATION`, and other threads read the value
// only after that.
unsafe impl Sync for CuptiCell {}
static CUPTI: CuptiCell = CuptiCell(UnsafeCell::new(MaybeUninit::uninit()));

/// Sets the CUPTI in use. Called once, by the thread that starts the agent.
pub fn start(cupti: Cupti) {
    // SAFETY: this is called once, and other threads read the value only after `GENERATION` changes
    // below.
    unsafe { (*CUPTI.0.get()).write(cupti) };
    GENERATION.store(WIPED.generation.load(Acquire), Release);
}

/// The CUPTI that the agent uses in this process; `None` in a forked child.
pub fn cupti() -> Option<Cupti> {
    let generation = GENERATION.load(Acquire);
    if generation == 0 || WIPED.generation.load(Acquire) != generation {
        return None;
    }
    // SAFETY: `start` wrote the value before it changed `GENERATION`, and it is never written
    // again.
    Some(unsafe { (*CUPTI.0.get()).assume_init() })
}

/// The CUPTI whose other clients the agent serves; `None` if that CUPTI separates its clients
/// itself.
pub fn serving() -> Option<Cupti> {
    cupti().filter(|cupti| !cupti.has_clients_apart)
}

/// Set once it is certain that no agent will start in this process.
static IS_WITHOUT: AtomicBool = AtomicBool::new(false);

/// Whether the agent may still start. Clients can use CUPTI before the driver starts, and so before
/// the agent does. NVTX and NCCL load this library too, even in processes in which the driver
/// doesn't load it.
pub fn is_awaited() -> bool {
    GENERATION.load(Acquire) == 0
        && !IS_WITHOUT.load(Acquire)
        && agent_link::agents_path().is_some()
}

/// Called when the agent can't start.
pub fn give_up() {
    IS_WITHOUT.store(true, Release);
}

/// Thread id of the agent's thread; 0 before it runs.
static OWN_THREAD: AtomicU32 = AtomicU32::new(0);

/// Marks the calling thread as the agent's.
pub fn begin_thread() {
    OWN_THREAD.store(sys::tid(), Relaxed);
}

/// Whether a thread is the agent's. Its calls are not the job's.
pub fn is_own_thread(id: u32) -> bool {
    id != 0 && OWN_THREAD.load(Relaxed) == id
}

/// Waits until the driver has started. CUPTI may write records before `cuInit` ends, which takes
/// seconds with many devices, and the thread in `cuInit` may need CUPTI's locks. This calls
/// `cuInit`, which waits until the first call of `cuInit` has returned, and does nothing else.
pub fn wait_for_driver() {
    let function = loaded::named(b"libcuda.so").and_then(|driver| driver.function(c"cuInit"));
    if let Some(address) = function {
        // SAFETY: the driver's function of this name has this type, and any thread may call it.
        unsafe {
            let init = core::mem::transmute::<usize, unsafe extern "C" fn(u32) -> c_int>(address);
            init(0);
        }
    }
}
