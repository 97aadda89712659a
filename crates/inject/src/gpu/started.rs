//! The CUPTI in use: set once when the agent starts, read by its thread and by the calls of
//! other clients.

use super::cupti::Cupti;
use super::places;
use crate::state::WIPED;
use crate::{loaded, sys};
use core::cell::UnsafeCell;
use core::ffi::c_int;
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::*};

/// The process's generation when the agent started; 0 before. A forked child has another one.
static GENERATION: AtomicU64 = AtomicU64::new(0);

/// CUPTI's functions, written once before [`GENERATION`].
struct CuptiCell(UnsafeCell<MaybeUninit<Cupti>>);
// SAFETY: written by one thread, read only after GENERATION has changed.
unsafe impl Sync for CuptiCell {}
static CUPTI: CuptiCell = CuptiCell(UnsafeCell::new(MaybeUninit::uninit()));

/// Sets the CUPTI in use: called once, by the thread that starts the agent.
pub fn start(cupti: Cupti) {
    // SAFETY: no reader before GENERATION changes, and no second call.
    unsafe { (*CUPTI.0.get()).write(cupti) };
    GENERATION.store(WIPED.generation.load(Acquire), Release);
}

/// The CUPTI that the agent uses in this process; none in a forked child.
pub fn cupti() -> Option<Cupti> {
    let generation = GENERATION.load(Acquire);
    if generation == 0 || WIPED.generation.load(Acquire) != generation {
        return None;
    }
    // SAFETY: written before GENERATION changed, and never again.
    Some(unsafe { (*CUPTI.0.get()).assume_init() })
}

/// Set once it is certain that no agent will start in this process.
static IS_WITHOUT: AtomicBool = AtomicBool::new(false);

/// Whether the agent may still start: CUPTI can be used before the driver is, and its clients then
/// begin before the agent does. NVTX and NCCL load this library too, also where the driver does not.
pub fn is_awaited() -> bool {
    GENERATION.load(Acquire) == 0 && !IS_WITHOUT.load(Acquire) && places::of_agent().is_some()
}

/// Called when the agent does not start.
pub fn give_up() {
    IS_WITHOUT.store(true, Release);
}

/// The agent's thread; 0 before it runs.
static OWN_THREAD: AtomicU32 = AtomicU32::new(0);

/// Marks the calling thread as the agent's.
pub fn begin_thread() {
    OWN_THREAD.store(sys::tid(), Relaxed);
}

/// Whether a thread is the agent's: its calls are not the job's.
pub fn is_own_thread(id: u32) -> bool {
    id != 0 && OWN_THREAD.load(Relaxed) == id
}

/// Waits until the driver is up: records come before `cuInit` ends, which takes seconds with many
/// devices, and its thread may need locks of CUPTI's. Another `cuInit` waits for the first, and
/// only for that.
pub fn wait_for_driver() {
    let function = loaded::named(b"libcuda.so").and_then(|driver| driver.function(c"cuInit"));
    if let Some(address) = function {
        // SAFETY: the driver's function of this name and type, which any thread may call.
        unsafe {
            let init = core::mem::transmute::<usize, unsafe extern "C" fn(u32) -> c_int>(address);
            init(0);
        }
    }
}
