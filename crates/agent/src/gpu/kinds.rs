//! Decides which records the agent requests from CUPTI: which kinds, and which calls to leave out.
//! While recording is off, the agent requests only devices, contexts, streams and external ids.

use super::cupti::Cupti;
use super::guarded::Guarded;
use super::journal::{self, JournalEvent};
use super::notes::{note, refused};
use super::{streams, wants};
use tprof_cupti_sys::*;
use tprof_inject::block::Thread;
use tprof_inject::{agent_link, environment};
use tprof_wire::env;
use tprof_wire::gpu::trouble;
use tprof_wire::sync::{AtomicBool, AtomicU64, Ordering::Relaxed};

const KINDS: [(CUpti_ActivityKind, &[u8]); 13] = [
    (CUPTI_ACTIVITY_KIND_DEVICE, b"devices"),
    (CUPTI_ACTIVITY_KIND_CONTEXT, b"contexts"),
    (CUPTI_ACTIVITY_KIND_STREAM, b"streams"),
    (CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, b"kernels"),
    (CUPTI_ACTIVITY_KIND_MEMCPY, b"copies"),
    (CUPTI_ACTIVITY_KIND_MEMCPY2, b"peer copies"),
    (CUPTI_ACTIVITY_KIND_MEMSET, b"memsets"),
    (CUPTI_ACTIVITY_KIND_SYNCHRONIZATION, b"synchronisations"),
    (CUPTI_ACTIVITY_KIND_RUNTIME, b"calls of the CUDA runtime"),
    (CUPTI_ACTIVITY_KIND_DRIVER, b"calls of the CUDA driver"),
    (CUPTI_ACTIVITY_KIND_MEMORY2, b"device memory"),
    (CUPTI_ACTIVITY_KIND_OVERHEAD, b"CUPTI's own overhead"),
    // Only threads on which the job's own profiler pushes external ids have any.
    (CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION, b"external ids"),
];

/// Runtime calls that only read known values and that no report uses. PyTorch makes one after each
/// launch. Similar calls that may load code at their first use are recorded, since that takes
/// milliseconds on an H200 (`cudaGetFuncBySymbol`, `cuKernelSetAttribute`).
const MUTED_RUNTIME: [u32; 5] = [
    CUPTI_RUNTIME_TRACE_CBID_cudaGetLastError_v3020,
    CUPTI_RUNTIME_TRACE_CBID_cudaPeekAtLastError_v3020,
    CUPTI_RUNTIME_TRACE_CBID_cudaGetErrorString_v3020,
    CUPTI_RUNTIME_TRACE_CBID_cudaGetDevice_v3020,
    CUPTI_RUNTIME_TRACE_CBID_cudaStreamIsCapturing_v10000,
];
/// Driver calls that only read known values and that no report uses.
const MUTED_DRIVER: [u32; 11] = [
    CUPTI_DRIVER_TRACE_CBID_cuDriverGetVersion,
    CUPTI_DRIVER_TRACE_CBID_cuDeviceGet,
    CUPTI_DRIVER_TRACE_CBID_cuCtxGetDevice,
    CUPTI_DRIVER_TRACE_CBID_cuCtxGetLimit,
    CUPTI_DRIVER_TRACE_CBID_cuCtxGetCurrent,
    CUPTI_DRIVER_TRACE_CBID_cuGetErrorString,
    CUPTI_DRIVER_TRACE_CBID_cuDevicePrimaryCtxGetState,
    CUPTI_DRIVER_TRACE_CBID_cuGetProcAddress,
    CUPTI_DRIVER_TRACE_CBID_cuGetProcAddress_v2,
    CUPTI_DRIVER_TRACE_CBID_cuKernelGetAttribute,
    CUPTI_DRIVER_TRACE_CBID_cuKernelGetName,
];
/// Hooked runtime calls that start work, of functions for which
/// [`tprof_wire::calls::may_be_left_to_hooks`] holds. CUPTI leaves these out as well while the
/// hooks record them.
const HOOKED: [u32; 14] = [
    CUPTI_RUNTIME_TRACE_CBID_cudaMemcpy_v3020,
    CUPTI_RUNTIME_TRACE_CBID_cudaMemcpyAsync_v3020,
    CUPTI_RUNTIME_TRACE_CBID_cudaMemset_v3020,
    CUPTI_RUNTIME_TRACE_CBID_cudaMemsetAsync_v3020,
    CUPTI_RUNTIME_TRACE_CBID_cudaMemcpyPeer_v4000,
    CUPTI_RUNTIME_TRACE_CBID_cudaMemcpyPeerAsync_v4000,
    CUPTI_RUNTIME_TRACE_CBID_cudaLaunchKernel_v7000,
    CUPTI_RUNTIME_TRACE_CBID_cudaLaunchKernel_ptsz_v7000,
    CUPTI_RUNTIME_TRACE_CBID_cudaMemcpy_ptds_v7000,
    CUPTI_RUNTIME_TRACE_CBID_cudaMemcpyAsync_ptsz_v7000,
    CUPTI_RUNTIME_TRACE_CBID_cudaMemset_ptds_v7000,
    CUPTI_RUNTIME_TRACE_CBID_cudaMemsetAsync_ptsz_v7000,
    CUPTI_RUNTIME_TRACE_CBID___cudaLaunchKernel_v13000,
    CUPTI_RUNTIME_TRACE_CBID___cudaLaunchKernel_ptsz_v13000,
];
/// Whether the hooks, and not CUPTI, record the calls in [`HOOKED`].
static RELIES_ON_HOOKS: AtomicBool = AtomicBool::new(false);

/// Whether the hooks, and not CUPTI, record hooked calls that start work.
pub fn relies_on_hooks() -> bool {
    RELIES_ON_HOOKS.load(Relaxed)
}

/// Makes CUPTI leave hooked calls that start work to the hooks, if the environment requests this
/// and it is possible.
fn rely_on_hooks(thread: &Thread, cupti: &Cupti) {
    if environment::variable(env::CALLS_BY_HOOKS).is_none_or(|text| text != b"1") {
        return;
    }
    let why: &[u8] = if cupti.choose_runtime_call.is_none() {
        b"this CUPTI records all calls or none (12.6 and newer can leave some out)"
    } else if cupti.context_id.is_none() || cupti.stream_id.is_none() {
        b"this CUPTI does not tell how it numbers streams"
    } else if !agent_link::rely_on_hooks(streams::number) {
        b"the hooks are not loaded"
    } else {
        return RELIES_ON_HOOKS.store(true, Relaxed);
    };
    note(thread, trouble::NOT_BY_HOOKS, 1, why);
}

/// The calls of a domain that CUPTI doesn't record.
fn muted(driver: bool) -> impl Iterator<Item = u32> {
    let hooked: &[u32] = if !driver && relies_on_hooks() { &HOOKED } else { &[] };
    let always: &[u32] = if driver { &MUTED_DRIVER } else { &MUTED_RUNTIME };
    always.iter().chain(hooked).copied()
}

/// Bit set of the kinds that CUPTI collects for the agent.
static ON: AtomicU64 = AtomicU64::new(0);

/// Whether CUPTI collects a kind for the agent.
pub fn is_on(kind: CUpti_ActivityKind) -> bool {
    kind < 64 && ON.load(Relaxed) >> kind & 1 != 0
}

/// Kinds that stay on while recording is off: those whose records are written once and referred to
/// later, and external ids, which another client pushes.
const LASTING: u64 = 1 << CUPTI_ACTIVITY_KIND_DEVICE
    | 1 << CUPTI_ACTIVITY_KIND_CONTEXT
    | 1 << CUPTI_ACTIVITY_KIND_STREAM
    | 1 << CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION;
/// Bit set of the kinds that are off because recording is off; 0 while it is on.
static PAUSED: AtomicU64 = AtomicU64::new(0);
/// Locked while kinds are switched, by the agent or for another client, since each must consider
/// which kinds the other wants.
static SWITCH: Guarded<()> = Guarded::new(());

/// Whether kinds are off because recording is off.
pub fn is_paused() -> bool {
    PAUSED.load(Relaxed) != 0
}

/// Runs `work`, which switches kinds for another client, while nothing switches the agent's kinds.
pub fn locked<T>(work: impl FnOnce() -> T) -> T {
    SWITCH.with(|()| work())
}

/// Switches kinds off if recording is off, and on again if it is on. Returns whether it switched
/// any. While kinds are off, the hooks call `resume` before a CUDA call that must be recorded.
pub fn follow(thread: &Thread, cupti: &Cupti, resume: extern "C" fn()) -> bool {
    let differs = || agent_link::is_on(thread) == is_paused();
    if !differs() {
        return false;
    }
    SWITCH.with(|()| match differs() {
        true if is_paused() => go_on(thread, cupti),
        true => pause(cupti, resume),
        false => false,
    })
}

fn pause(cupti: &Cupti, resume: extern "C" fn()) -> bool {
    let kinds = ON.load(Relaxed) & !LASTING;
    let Some(disable) = cupti.disable.filter(|_| kinds != 0) else { return false };
    ON.fetch_and(!kinds, Relaxed);
    PAUSED.store(kinds, Relaxed);
    for kind in bits(kinds).filter(|kind| !wants::is_on(*kind)) {
        // SAFETY: `kind` is one of the kinds of CUPTI's header.
        let result = unsafe { disable(kind) };
        journal::keep(JournalEvent::Enabled, [u64::from(kind), u64::from(result), 1]);
    }
    agent_link::call_before_work(Some(resume));
    true
}

fn go_on(thread: &Thread, cupti: &Cupti) -> bool {
    for kind in bits(PAUSED.load(Relaxed)) {
        // SAFETY: `kind` is one of the kinds of CUPTI's header.
        let result = unsafe { (cupti.enable)(kind) };
        journal::keep(JournalEvent::Enabled, [u64::from(kind), u64::from(result), 0]);
        match result {
            CUPTI_SUCCESS => drop(ON.fetch_or(1 << kind, Relaxed)),
            _ => refused(thread, cupti, name(kind), result),
        }
    }
    PAUSED.store(0, Relaxed);
    for kind in [CUPTI_ACTIVITY_KIND_RUNTIME, CUPTI_ACTIVITY_KIND_DRIVER] {
        mute(cupti, kind);
    }
    choose_graphs(cupti);
    agent_link::call_before_work(None);
    true
}

fn bits(kinds: u64) -> impl Iterator<Item = CUpti_ActivityKind> {
    (0..64).filter(move |kind| kinds >> kind & 1 != 0)
}

fn name(kind: CUpti_ActivityKind) -> &'static [u8] {
    KINDS.iter().find(|(of, _)| *of == kind).map_or(b"CUDA graphs", |(_, name)| name)
}

/// Switches on all kinds. Returns how many of them CUPTI accepted, and reports the refused ones.
pub fn enable(thread: &Thread, cupti: &Cupti) -> u32 {
    let mut on = 0;
    PAUSED.store(0, Relaxed);
    agent_link::call_before_work(None);
    rely_on_hooks(thread, cupti);
    for (kind, what) in KINDS {
        // SAFETY: `kind` is one of the kinds of CUPTI's header.
        let result = unsafe { (cupti.enable)(kind) };
        journal::keep(JournalEvent::Enabled, [u64::from(kind), u64::from(result), 0]);
        if result != CUPTI_SUCCESS {
            ON.fetch_and(!(1 << kind), Relaxed);
            refused(thread, cupti, what, result);
            continue;
        }
        on += 1;
        ON.fetch_or(1 << kind, Relaxed);
        if kind == CUPTI_ACTIVITY_KIND_RUNTIME {
            // From now on CUPTI records calls. So the collector doesn't need the hooks' records,
            // except of the calls that CUPTI leaves to the hooks.
            note(thread, trouble::RECORDS_CALLS, u64::from(relies_on_hooks()), b"");
        }
    }
    for kind in [CUPTI_ACTIVITY_KIND_RUNTIME, CUPTI_ACTIVITY_KIND_DRIVER] {
        mute(cupti, kind);
    }
    choose_graphs(cupti);
    on
}

/// Oldest version of CUPTI that safely traces whole graphs: CUDA 12.5. Before, a copy or fill in a
/// graph could crash the program. 12.4 Update 1 fixes this, but has the same version number as
/// 12.4.
const WHOLE_GRAPHS_FROM: u32 = 23;
/// Kinds of records that CUPTI doesn't write for a graph that it traces as a whole. A client that
/// wants one of them needs the graph's nodes.
const NODES: [CUpti_ActivityKind; 4] = [
    CUPTI_ACTIVITY_KIND_KERNEL,
    CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL,
    CUPTI_ACTIVITY_KIND_MEMCPY,
    CUPTI_ACTIVITY_KIND_MEMSET,
];

/// Makes CUPTI record each run of a graph as a whole, unless the user or another client wants the
/// nodes. So the traces of the job's own profiler contain the same as without tprof. Called
/// whenever a client switches a kind. If CUPTI refuses, it continues to record nodes.
pub fn choose_graphs(cupti: &Cupti) {
    const WHOLE: CUpti_ActivityKind = CUPTI_ACTIVITY_KIND_GRAPH_TRACE;
    let asked = environment::variable(env::GRAPH_NODES).is_some_and(|text| text == b"1");
    let wanted = wants_whole_graphs(cupti.version, asked, wants::is_on);
    if is_paused() || wanted == is_on(WHOLE) {
        return;
    }
    let Some(disable) = cupti.disable else { return };
    // SAFETY: `WHOLE` is a kind of CUPTI's header.
    let result = unsafe { if wanted { (cupti.enable)(WHOLE) } else { disable(WHOLE) } };
    journal::keep(JournalEvent::Enabled, [u64::from(WHOLE), u64::from(result), u64::from(!wanted)]);
    match (result, wanted) {
        (CUPTI_SUCCESS, true) => ON.fetch_or(1 << WHOLE, Relaxed),
        (CUPTI_SUCCESS, false) => ON.fetch_and(!(1 << WHOLE), Relaxed),
        _ => return,
    };
}

/// Called when CUPTI was detached, so that it no longer collects anything.
pub fn forget() {
    ON.store(0, Relaxed);
}

/// Whether a CUPTI of this version should record whole graphs. `nodes_asked` says that the user
/// wants the nodes. `client` returns whether another client wants a kind.
fn wants_whole_graphs(
    version: u32,
    nodes_asked: bool,
    client: impl Fn(CUpti_ActivityKind) -> bool,
) -> bool {
    client(CUPTI_ACTIVITY_KIND_GRAPH_TRACE)
        || !nodes_asked && version >= WHOLE_GRAPHS_FROM && !NODES.iter().any(|kind| client(*kind))
}

/// Switches on again all kinds that another client's call may have switched off.
pub fn enable_again(cupti: &Cupti) {
    let whole = (CUPTI_ACTIVITY_KIND_GRAPH_TRACE, &b""[..]);
    for (kind, _) in KINDS.into_iter().chain([whole]) {
        if is_on(kind) {
            // SAFETY: `kind` is one of the kinds of CUPTI's header.
            unsafe { (cupti.enable)(kind) };
        }
    }
}

/// Makes CUPTI leave out the calls of a kind that no report uses or that the hooks record (CUDA
/// 12.6 and newer). Calls that another client currently wants are still recorded.
pub fn mute(cupti: &Cupti, kind: CUpti_ActivityKind) {
    let driver = kind == CUPTI_ACTIVITY_KIND_DRIVER;
    let choose = match kind {
        CUPTI_ACTIVITY_KIND_RUNTIME => cupti.choose_runtime_call,
        CUPTI_ACTIVITY_KIND_DRIVER => cupti.choose_driver_call,
        _ => return,
    };
    let Some(choose) = choose.filter(|_| is_on(kind)) else { return };
    let is_wanted = |call| wants::is_on(kind) && wants::is_chosen(driver, call);
    for call in muted(driver) {
        // SAFETY: `call` is one of the calls of CUPTI's header.
        let result = unsafe { choose(call, u8::from(is_wanted(call))) };
        journal::keep(JournalEvent::Chosen, [u64::from(kind), u64::from(call), u64::from(result)]);
    }
}

/// Whether the agent's records leave out a call, even if CUPTI records it for another client.
pub fn is_muted(cupti: &Cupti, driver: bool, call: u32) -> bool {
    let can_choose = match driver {
        false => cupti.choose_runtime_call.is_some(),
        true => cupti.choose_driver_call.is_some(),
    };
    can_choose && muted(driver).any(|muted| muted == call)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tprof_wire::calls::{FUNCTIONS, may_be_left_to_hooks};

    #[test]
    fn cupti_leaves_out_as_many_functions_as_may_be_left_to_hooks() {
        let left = (0..FUNCTIONS.len() as u32).filter(|number| may_be_left_to_hooks(*number));
        assert_eq!(left.count(), HOOKED.len());
        assert!(HOOKED.is_sorted() && MUTED_DRIVER.is_sorted());
        assert!(HOOKED.iter().all(|call| !MUTED_RUNTIME.contains(call)));
    }

    #[test]
    fn whole_graphs_are_recorded_unless_nodes_are_wanted() {
        const SAFE: u32 = WHOLE_GRAPHS_FROM;
        let none = |_| false;
        assert!(wants_whole_graphs(SAFE, false, none));
        assert!(!wants_whole_graphs(SAFE - 1, false, none), "this CUPTI may crash");
        assert!(!wants_whole_graphs(SAFE, true, none), "nodes are wanted");
        for wanted in NODES {
            assert!(
                !wants_whole_graphs(SAFE, false, |kind| kind == wanted),
                "a client wants {wanted}"
            );
        }
        let calls = |kind| kind == CUPTI_ACTIVITY_KIND_RUNTIME;
        assert!(wants_whole_graphs(SAFE, false, calls), "the client wants only calls");
        // If the client itself enabled whole graphs, the client takes the risk of a crash.
        let whole = |kind| kind == CUPTI_ACTIVITY_KIND_GRAPH_TRACE;
        assert!(wants_whole_graphs(SAFE - 1, true, whole));
    }
}
