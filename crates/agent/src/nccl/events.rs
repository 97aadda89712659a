//! Records the communicators, calls and operations that NCCL reports.

use super::handle::{self, HandleKind};
use super::layout::{self, CollApi, Description, P2pApi};
use super::operation::{self, Operation};
use crate::gpu::texts;
use core::ffi::{CStr, c_char, c_int, c_void};
use tprof_inject::block::Thread;
use tprof_inject::{agent_link, gate, ring};
use tprof_wire::nccl::{Call, Context, Task, task_kind};
use tprof_wire::record::ExtKind;

/// The id of a text that NCCL passed; 0 for null.
///
/// # Safety
/// `at` is null or points at a NUL-terminated text.
unsafe fn text(thread: &Thread, at: *const c_char) -> u32 {
    if at.is_null() {
        return 0;
    }
    // SAFETY: the caller guarantees a NUL-terminated text, and it isn't null.
    texts::id(thread, unsafe { CStr::from_ptr(at) }.to_bytes())
}

/// The arguments that every version of `init` passes, apart from the pointers for its results.
#[derive(Clone, Copy)]
pub struct Communicator {
    /// Version of the interface.
    pub version: u32,
    /// Name of the communicator; null if NCCL did not pass it.
    pub name: *const c_char,
    /// Number of the communicator; 0 if NCCL did not pass it.
    pub hash: u64,
    /// Number of hosts; 0 if NCCL did not pass it.
    pub nodes: c_int,
    /// Number of ranks; 0 if NCCL did not pass it.
    pub ranks: c_int,
    /// This process's rank; 0 if NCCL did not pass it.
    pub rank: c_int,
}

/// Records a new communicator, and returns its context.
///
/// # Safety
/// The name is null or points at a NUL-terminated text.
pub unsafe fn context(of: Communicator) -> u64 {
    let context = handle::new(HandleKind::Context);
    // Communicators are recorded even while recording is off, since later operations refer to them.
    let Some(thread) = gate::recording() else { return context };
    let payload = Context {
        context,
        hash: of.hash,
        version: of.version,
        nodes: of.nodes.max(0) as u32,
        ranks: of.ranks.max(0) as u32,
        rank: of.rank.max(0) as u32,
        // SAFETY: the caller guarantees that the name is null or NUL terminated.
        name: unsafe { text(thread, of.name) },
    };
    ring::quick(thread, ExtKind::NcclContext, 0, thread.clock(), &payload.pack());
    context
}

/// This thread's block, if it records now.
pub fn recording() -> Option<&'static Thread> {
    gate::recording().filter(|thread| agent_link::is_on(thread))
}

/// The arguments that calls of collectives, sends and receives have in common.
struct AskedCall {
    function: *const c_char,
    count: usize,
    data_type: *const c_char,
    /// Root plus one; 0 if there is none.
    root: u32,
    stream: *const c_void,
    captured: bool,
}

/// Records a call, and returns its handle.
///
/// # Safety
/// The texts are null or NUL terminated.
unsafe fn call(thread: &Thread, context: u64, of: &AskedCall) -> u64 {
    let payload = Call {
        id: handle::new(HandleKind::Call),
        context,
        count: of.count as u64,
        stream: of.stream as u64,
        // SAFETY: the caller guarantees that the texts are null or NUL terminated.
        function: unsafe { text(thread, of.function) },
        // SAFETY: the caller guarantees that the texts are null or NUL terminated.
        data_type: unsafe { text(thread, of.data_type) },
        root: of.root,
        captured: u32::from(of.captured),
    };
    ring::quick(thread, ExtKind::NcclCall, 0, thread.clock(), &payload.pack());
    payload.id
}

/// Records a collective's call, and returns its handle.
///
/// # Safety
/// `at` is NCCL's description of a collective's call.
pub unsafe fn collective_call(thread: &Thread, context: u64, at: *const c_void) -> u64 {
    // SAFETY: the caller guarantees a description of a collective's call, which has these fields.
    let of = &unsafe { &*at.cast::<Description<CollApi>>() }.of;
    let CollApi { function, count, data_type, root, stream, captured } = *of;
    let root = u32::try_from(root).map_or(0, |root| root.saturating_add(1));
    // SAFETY: the texts of NCCL's descriptions are null or NUL terminated.
    unsafe {
        call(thread, context, &AskedCall { function, count, data_type, root, stream, captured })
    }
}

/// Records the call of a send or a receive, and returns its handle.
///
/// # Safety
/// `at` is NCCL's description of the call of a send or a receive.
pub unsafe fn point_to_point_call(thread: &Thread, context: u64, at: *const c_void) -> u64 {
    // SAFETY: the caller guarantees a description of such a call, which has these fields.
    let of = &unsafe { &*at.cast::<Description<P2pApi>>() }.of;
    let P2pApi { function, count, data_type, stream, captured } = *of;
    // SAFETY: the texts of NCCL's descriptions are null or NUL terminated.
    unsafe {
        call(thread, context, &AskedCall { function, count, data_type, root: 0, stream, captured })
    }
}

/// Records that NCCL enqueued an operation, and returns the operation's handle.
///
/// # Safety
/// The texts are null or NUL terminated.
pub unsafe fn task(thread: &Thread, context: u64, kind: u32, rank: c_int, of: &Operation) -> u64 {
    let id = handle::new(HandleKind::Task);
    let payload = Task {
        id,
        call: handle::checked(HandleKind::Call, of.call),
        group: handle::checked(HandleKind::Group, of.group),
        context,
        hash: of.hash,
        sequence: of.sequence,
        count: of.count,
        kind,
        // SAFETY: the caller guarantees that the texts are null or NUL terminated.
        function: unsafe { text(thread, of.function) },
        // SAFETY: the caller guarantees that the texts are null or NUL terminated.
        data_type: unsafe { text(thread, of.data_type) },
        // SAFETY: the caller guarantees that the texts are null or NUL terminated.
        algorithm: unsafe { text(thread, of.algorithm) },
        // SAFETY: the caller guarantees that the texts are null or NUL terminated.
        protocol: unsafe { text(thread, of.protocol) },
        peer: of.peer,
        channels: u32::from(of.channels),
        rank: rank.max(0) as u32,
        // SAFETY: the caller guarantees that the name is null or NUL terminated.
        name: unsafe { text(thread, of.name) },
    };
    ring::quick(thread, ExtKind::NcclTask, 0, thread.clock(), &payload.pack());
    id
}

/// Records the beginning of an event, and returns the event's handle.
///
/// # Safety
/// `at` is NCCL's description of an event of the kind `known`, in this version of the interface.
pub unsafe fn begin(
    version: u32,
    context: u64,
    known: layout::EventKind,
    rank: c_int,
    at: *const c_void,
) -> u64 {
    use layout::EventKind::*;
    let Some(thread) = recording() else { return 0 };
    // SAFETY: the caller guarantees a description of this kind and version, and the texts of NCCL's
    // descriptions are null or NUL terminated.
    unsafe {
        match known {
            Group => handle::new(HandleKind::Group),
            CollectiveCall => collective_call(thread, context, at),
            PointToPointCall => point_to_point_call(thread, context, at),
            Collective => {
                let of = operation::collective(version, at);
                task(thread, context, task_kind::COLLECTIVE, rank, &of)
            }
            PointToPoint => {
                let of = operation::point_to_point(version, at);
                task(thread, context, task_kind::POINT_TO_POINT, rank, &of)
            }
            CopyEngine => {
                let of = operation::copy_engine(at);
                task(thread, context, task_kind::COPY_ENGINE, rank, &of)
            }
            ProxyOp | ProxyStep | KernelPart => 0,
        }
    }
}
