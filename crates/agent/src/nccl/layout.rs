//! The layout of NCCL's descriptions of events, in each version of the plugin interface.
//!
//! A description consists of a type, the parent's handle, the rank, and a union. Only the fields
//! that tprof reads are declared. Later versions append fields to some structures, which are not
//! needed.

use super::mask::event;
use core::ffi::{c_char, c_int, c_void};

/// The beginning of a description. Since version 5, the type has eight bytes. Before, it has one
/// byte, and the seven bytes after it may have any value.
#[repr(C)]
pub struct Description<U> {
    kind: [u8; 8],
    /// Handle of the parent.
    pub parent: *const c_void,
    /// This process's rank in the communicator.
    pub rank: c_int,
    /// Padding: the union is aligned for its widest members.
    gap: c_int,
    /// The union member that the type selects.
    pub of: U,
}

/// Returns the type, parent and rank of a description.
///
/// # Safety
/// `at` is NCCL's description of an event, in this version.
pub unsafe fn head(version: u32, at: *const c_void) -> (u64, *const c_void, c_int) {
    // SAFETY: the caller guarantees a description, and these three fields have the same offsets in
    // all versions.
    let head = unsafe { &*at.cast::<Description<[u64; 0]>>() };
    let kind = match version {
        0..=4 => u64::from(head.kind[0]),
        _ => u64::from_ne_bytes(head.kind),
    };
    (kind, head.parent, head.rank)
}

/// An operation of versions 1 to 3, in which each operation names its communicator.
#[repr(C)]
pub struct WithCommunicator<O> {
    /// Name of the communicator.
    pub name: *const c_char,
    /// Number of the communicator.
    pub hash: u64,
    /// The operation's other fields.
    pub of: O,
}

/// A collective of version 1, which has numbers where later versions have texts.
#[repr(C)]
pub struct NumberedCollective {
    /// Sequence number among the collectives of the same function.
    pub sequence: u64,
    /// Number of the function, as in [`super::operation`].
    pub function: u8,
    send: *const c_void,
    receive: *const c_void,
    /// Number of elements.
    pub count: usize,
    /// The root's rank.
    pub root: c_int,
    /// Type of an element.
    pub data_type: u8,
    reduction: u32,
    traffic: usize,
    /// Number of channels.
    pub channels: u8,
    warps: u8,
    /// Number of the algorithm.
    pub algorithm: u8,
    /// Number of the protocol.
    pub protocol: u8,
}

/// The arguments of a collective, from version 2 on.
#[repr(C)]
pub struct Asked {
    /// Sequence number among the collectives of the same function.
    pub sequence: u64,
    /// Name of the function.
    pub function: *const c_char,
    send: *const c_void,
    receive: *const c_void,
    /// Number of elements.
    pub count: usize,
    /// The root's rank.
    pub root: c_int,
    /// Type of an element.
    pub data_type: *const c_char,
}

/// The algorithm, protocol and channels that NCCL chose for a collective.
#[repr(C)]
pub struct Chosen {
    /// Number of channels.
    pub channels: u8,
    warps: u8,
    /// Name of the algorithm.
    pub algorithm: *const c_char,
    /// Name of the protocol.
    pub protocol: *const c_char,
}

/// A collective of version 2.
#[repr(C)]
pub struct TrafficCollective {
    /// The arguments of the collective.
    pub asked: Asked,
    traffic: usize,
    /// The algorithm, protocol and channels that NCCL chose.
    pub chosen: Chosen,
}

/// A collective from version 3 on.
#[repr(C)]
pub struct PlainCollective {
    /// The arguments of the collective.
    pub asked: Asked,
    /// The algorithm, protocol and channels that NCCL chose.
    pub chosen: Chosen,
}

/// An operation from version 5 on. Its parent is the call, so it has a separate field for the
/// group.
#[repr(C)]
pub struct Grouped<O> {
    /// The operation's other fields.
    pub of: O,
    /// Handle of the group.
    pub group: *const c_void,
}

/// One side of an exchange (a send or a receive) in version 1.
#[repr(C)]
pub struct NumberedExchange {
    /// Number of the function.
    pub function: u8,
    buffer: *const c_void,
    /// Type of an element.
    pub data_type: u8,
    /// Number of elements.
    pub count: usize,
    /// The other rank.
    pub peer: c_int,
}

/// One side of an exchange (a send or a receive), from version 2 on.
#[repr(C)]
pub struct Exchange {
    /// Name of the function.
    pub function: *const c_char,
    buffer: *const c_void,
    /// Type of an element.
    pub data_type: *const c_char,
    /// Number of elements.
    pub count: usize,
    /// The other rank.
    pub peer: c_int,
    /// Number of channels, from version 4 on. In earlier versions this byte is padding.
    channels: core::mem::MaybeUninit<u8>,
}

impl Exchange {
    /// Number of channels.
    ///
    /// # Safety
    /// The description is of version 4 or newer.
    pub unsafe fn channels(&self) -> u8 {
        // SAFETY: the caller guarantees version 4 or newer, which has this field.
        unsafe { self.channels.assume_init() }
    }
}

/// A collective that copy engines carry out, from version 6 on.
#[repr(C)]
pub struct CopyCollective {
    /// The arguments of the collective.
    pub asked: Asked,
    /// Name of the strategy.
    pub strategy: *const c_char,
}

/// A call of a collective, from version 5 on.
#[repr(C)]
pub struct CollApi {
    /// Name of the function.
    pub function: *const c_char,
    /// Number of elements.
    pub count: usize,
    /// Type of an element.
    pub data_type: *const c_char,
    /// The root's rank.
    pub root: c_int,
    /// The CUDA stream.
    pub stream: *const c_void,
    /// Whether a graph captures the call.
    pub captured: bool,
}

/// A call of a send or a receive, from version 5 on.
#[repr(C)]
pub struct P2pApi {
    /// Name of the function.
    pub function: *const c_char,
    /// Number of elements.
    pub count: usize,
    /// Type of an element.
    pub data_type: *const c_char,
    /// The CUDA stream.
    pub stream: *const c_void,
    /// Whether a graph captures the call.
    pub captured: bool,
}

/// The proxy's work for an operation on a channel.
#[repr(C)]
pub struct ProxyOp {
    /// Pid of the process to which the operation belongs.
    pub pid: c_int,
    /// Number of the channel.
    pub channel: u8,
    /// The other rank.
    pub peer: c_int,
    /// Number of steps that the operation will take.
    pub steps: c_int,
    /// Bytes of a step.
    pub chunk: c_int,
    /// Nonzero if the proxy sends for the operation.
    pub sends: c_int,
}

/// A kernel's part on a channel.
#[repr(C)]
pub struct KernelCh {
    /// Number of the channel.
    pub channel: u8,
    /// A reading of the device's clock, in ns; present from version 4 on.
    pub device_ns: u64,
}

/// The kinds of events that tprof distinguishes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// Operations that NCCL passes to the device together.
    Group,
    /// A collective operation.
    Collective,
    /// One side of an exchange: a send or a receive.
    PointToPoint,
    /// A collective that copy engines carry out.
    CopyEngine,
    /// A call of a collective.
    CollectiveCall,
    /// A call that sends or receives.
    PointToPointCall,
    /// The proxy's work on a channel.
    ProxyOp,
    /// A step of the proxy's work.
    ProxyStep,
    /// A kernel's part on a channel.
    KernelPart,
}

/// The kind of an event with this type; `None` if tprof doesn't use such events.
pub fn known(kind: u64) -> Option<EventKind> {
    Some(match kind {
        event::GROUP => EventKind::Group,
        event::COLL => EventKind::Collective,
        event::P2P => EventKind::PointToPoint,
        event::CE_COLL => EventKind::CopyEngine,
        event::COLL_API => EventKind::CollectiveCall,
        event::P2P_API => EventKind::PointToPointCall,
        event::PROXY_OP => EventKind::ProxyOp,
        event::PROXY_STEP => EventKind::ProxyStep,
        event::KERNEL_CH => EventKind::KernelPart,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::mem::offset_of;

    /// These are the offsets that gcc computes for NCCL's headers profiler_v1.h to profiler_v6.h.
    #[test]
    fn field_offsets_are_those_of_nccls_headers() {
        type D<U> = Description<U>;
        assert_eq!((offset_of!(D<u64>, parent), offset_of!(D<u64>, rank)), (8, 16));
        assert_eq!((offset_of!(D<u64>, of), offset_of!(D<ProxyOp>, of)), (24, 24));
        macro_rules! at {
            ($of:ty: $($($field:ident).+),*) => { [$(offset_of!($of, $($field).+)),*] };
        }
        assert_eq!(
            at!(WithCommunicator<NumberedCollective>: hash, of.sequence, of.function, of.count, of.root,
                of.data_type, of.channels, of.algorithm, of.protocol),
            [8, 16, 24, 48, 56, 60, 80, 82, 83]
        );
        assert_eq!(
            at!(WithCommunicator<TrafficCollective>: hash, of.asked.sequence, of.asked.function,
                of.asked.count, of.asked.root, of.asked.data_type, of.chosen.channels,
                of.chosen.algorithm, of.chosen.protocol),
            [8, 16, 24, 48, 56, 64, 80, 88, 96]
        );
        assert_eq!(
            at!(WithCommunicator<PlainCollective>: hash, of.asked.sequence, of.asked.function,
                of.asked.count, of.asked.root, of.asked.data_type, of.chosen.channels,
                of.chosen.algorithm, of.chosen.protocol),
            [8, 16, 24, 48, 56, 64, 72, 80, 88]
        );
        assert_eq!(
            at!(Grouped<PlainCollective>: of.asked.sequence, of.asked.function, of.asked.count,
                of.asked.root, of.asked.data_type, of.chosen.channels, of.chosen.algorithm,
                of.chosen.protocol, group),
            [0, 8, 32, 40, 48, 56, 64, 72, 80]
        );
        assert_eq!(
            at!(WithCommunicator<NumberedExchange>: hash, of.function, of.data_type, of.count, of.peer),
            [8, 16, 32, 40, 48]
        );
        assert_eq!(
            at!(WithCommunicator<Exchange>: hash, of.function, of.data_type, of.count, of.peer),
            [8, 16, 32, 40, 48]
        );
        assert_eq!(
            at!(Grouped<Exchange>: of.function, of.data_type, of.count, of.peer, of.channels, group),
            [0, 16, 24, 32, 36, 40]
        );
        assert_eq!(
            at!(CopyCollective: asked.sequence, asked.function, asked.count, asked.root,
                asked.data_type, strategy),
            [0, 8, 32, 40, 48, 56]
        );
        assert_eq!(
            at!(CollApi: function, count, data_type, root, stream, captured),
            [0, 8, 16, 24, 32, 40]
        );
        assert_eq!(at!(P2pApi: function, count, data_type, stream, captured), [0, 8, 16, 24, 32]);
        assert_eq!(at!(ProxyOp: pid, channel, peer, steps, chunk, sends), [0, 4, 8, 12, 16, 20]);
        assert_eq!(at!(KernelCh: channel, device_ns), [0, 8]);
    }
}
