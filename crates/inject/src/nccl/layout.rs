//! NCCL's descriptions of events, as each version of the interface lays them out.
//!
//! A description is a type, the parent's handle, the rank, and a union. Only what is read is
//! declared; what a later version appended to a structure is not needed.

use super::mask::event;
use core::ffi::{CStr, c_char, c_int, c_void};

/// Beginning of a description. The type has one byte before version 5 (the seven behind it are
/// anything), eight since.
#[repr(C)]
pub struct Description<U> {
    kind: [u8; 8],
    /// Handle of the parent.
    pub parent: *const c_void,
    /// This process's rank in the communicator.
    pub rank: c_int,
    /// The union begins where its widest members may lie.
    gap: c_int,
    /// What the type selects.
    pub of: U,
}

/// Type, parent, and rank of a description.
///
/// # Safety
/// `at` is a description of this version's.
pub unsafe fn head(version: u32, at: *const c_void) -> (u64, *const c_void, c_int) {
    // SAFETY: the caller's premise; the three lie alike in all versions.
    let head = unsafe { &*at.cast::<Description<[u64; 0]>>() };
    let kind = match version {
        0..=4 => u64::from(head.kind[0]),
        _ => u64::from_ne_bytes(head.kind),
    };
    (kind, head.parent, head.rank)
}

#[repr(C)]
struct Coll1 {
    name: *const c_char,
    hash: u64,
    sequence: u64,
    function: u8,
    send: *const c_void,
    receive: *const c_void,
    count: usize,
    root: c_int,
    data_type: u8,
    reduction: u32,
    traffic: usize,
    channels: u8,
    warps: u8,
    algorithm: u8,
    protocol: u8,
}

#[repr(C)]
struct Coll2 {
    name: *const c_char,
    hash: u64,
    sequence: u64,
    function: *const c_char,
    send: *const c_void,
    receive: *const c_void,
    count: usize,
    root: c_int,
    data_type: *const c_char,
    traffic: usize,
    channels: u8,
    warps: u8,
    algorithm: *const c_char,
    protocol: *const c_char,
}

#[repr(C)]
struct Coll3 {
    name: *const c_char,
    hash: u64,
    sequence: u64,
    function: *const c_char,
    send: *const c_void,
    receive: *const c_void,
    count: usize,
    root: c_int,
    data_type: *const c_char,
    channels: u8,
    warps: u8,
    algorithm: *const c_char,
    protocol: *const c_char,
}

#[repr(C)]
struct Coll4 {
    sequence: u64,
    function: *const c_char,
    send: *const c_void,
    receive: *const c_void,
    count: usize,
    root: c_int,
    data_type: *const c_char,
    channels: u8,
    warps: u8,
    algorithm: *const c_char,
    protocol: *const c_char,
}

#[repr(C)]
struct Coll5 {
    as_before: Coll4,
    group: *const c_void,
}

#[repr(C)]
struct P2p1 {
    name: *const c_char,
    hash: u64,
    function: u8,
    buffer: *const c_void,
    data_type: u8,
    count: usize,
    peer: c_int,
}

#[repr(C)]
struct P2p2 {
    name: *const c_char,
    hash: u64,
    function: *const c_char,
    buffer: *const c_void,
    data_type: *const c_char,
    count: usize,
    peer: c_int,
}

#[repr(C)]
struct P2p4 {
    function: *const c_char,
    buffer: *const c_void,
    data_type: *const c_char,
    count: usize,
    peer: c_int,
    channels: u8,
}

#[repr(C)]
struct P2p5 {
    as_before: P2p4,
    group: *const c_void,
}

#[repr(C)]
struct CeColl {
    sequence: u64,
    function: *const c_char,
    send: *const c_void,
    receive: *const c_void,
    count: usize,
    root: c_int,
    data_type: *const c_char,
    strategy: *const c_char,
}

/// A call, from version 5 on.
#[repr(C)]
pub struct CollApi {
    /// Operation.
    pub function: *const c_char,
    /// Elements.
    pub count: usize,
    /// Type of an element.
    pub data_type: *const c_char,
    /// Root.
    pub root: c_int,
    /// Stream.
    pub stream: *const c_void,
    /// Whether a graph captures it.
    pub captured: bool,
}

/// A call that sends or receives.
#[repr(C)]
pub struct P2pApi {
    /// Operation.
    pub function: *const c_char,
    /// Elements.
    pub count: usize,
    /// Type of an element.
    pub data_type: *const c_char,
    /// Stream.
    pub stream: *const c_void,
    /// Whether a graph captures it.
    pub captured: bool,
}

/// What the proxy does for an operation on a channel.
#[repr(C)]
pub struct ProxyOp {
    /// Process that the operation is of.
    pub pid: c_int,
    /// Channel.
    pub channel: u8,
    /// The other rank.
    pub peer: c_int,
    /// Steps that it will take.
    pub steps: c_int,
    /// Bytes of a step.
    pub chunk: c_int,
    /// Whether it sends.
    pub sends: c_int,
}

/// A kernel's part on a channel.
#[repr(C)]
pub struct KernelCh {
    /// Channel.
    pub channel: u8,
    /// The device's clock, from version 4 on.
    pub device_ns: u64,
}

/// An operation as enqueued, of any version.
pub struct Operation {
    /// Operation, type of an element, algorithm, protocol: texts of NCCL's, or null.
    pub function: *const c_char,
    /// See `function`.
    pub data_type: *const c_char,
    /// See `function`.
    pub algorithm: *const c_char,
    /// See `function`.
    pub protocol: *const c_char,
    /// Name of the communicator; null from version 4 on.
    pub name: *const c_char,
    /// Number of the communicator; 0 from version 4 on.
    pub hash: u64,
    /// Number among those of its function.
    pub sequence: u64,
    /// Elements.
    pub count: u64,
    /// Root or other rank plus one; 0 for none.
    pub peer: u32,
    /// Channels; 0 if not given.
    pub channels: u8,
    /// What is handed over with it.
    pub group: *const c_void,
    /// The call; null before version 5.
    pub call: *const c_void,
}

/// Functions of version 1, which numbers them.
const FUNCTIONS: [&CStr; 8] = [
    c"Broadcast",
    c"Reduce",
    c"AllGather",
    c"ReduceScatter",
    c"AllReduce",
    c"SendRecv",
    c"Send",
    c"Recv",
];
/// Its algorithms.
const ALGORITHMS: [&CStr; 7] =
    [c"TREE", c"RING", c"COLLNET_DIRECT", c"COLLNET_CHAIN", c"NVLS", c"NVLS_TREE", c"PAT"];
/// Its protocols.
const PROTOCOLS: [&CStr; 3] = [c"LL", c"LL128", c"SIMPLE"];
/// `ncclDataType_t`.
const DATA_TYPES: [&CStr; 12] = [
    c"ncclInt8",
    c"ncclUint8",
    c"ncclInt32",
    c"ncclUint32",
    c"ncclInt64",
    c"ncclUint64",
    c"ncclFloat16",
    c"ncclFloat32",
    c"ncclFloat64",
    c"ncclBfloat16",
    c"ncclFloat8e4m3",
    c"ncclFloat8e5m2",
];

fn text(of: &[&'static CStr], number: u8) -> *const c_char {
    of.get(usize::from(number)).map_or(core::ptr::null(), |text| text.as_ptr())
}

/// Of operations without a root NCCL gives that of the arguments, which is 0.
fn peer(rank: c_int) -> u32 {
    u32::try_from(rank).map_or(0, |rank| rank.saturating_add(1))
}

/// Reads a collective.
///
/// # Safety
/// `at` is a description of a collective's in this version.
pub unsafe fn collective(version: u32, at: *const c_void) -> Operation {
    /// The description's union.
    ///
    /// # Safety
    /// As the caller's: `at` is a description with this union.
    unsafe fn of<'a, U>(at: *const c_void) -> &'a Description<U> {
        // SAFETY: the caller's premise.
        unsafe { &*at.cast() }
    }
    macro_rules! named {
        ($of:expr) => {
            Operation {
                function: $of.function,
                data_type: $of.data_type,
                algorithm: $of.algorithm,
                protocol: $of.protocol,
                name: core::ptr::null(),
                hash: 0,
                sequence: $of.sequence,
                count: $of.count as u64,
                peer: peer($of.root),
                channels: $of.channels,
                group: core::ptr::null(),
                call: core::ptr::null(),
            }
        };
    }
    match version {
        1 => {
            // SAFETY: the caller's premise, of version 1.
            let event = unsafe { of::<Coll1>(at) };
            let coll = &event.of;
            Operation {
                function: text(&FUNCTIONS, coll.function),
                data_type: text(&DATA_TYPES, coll.data_type),
                algorithm: text(&ALGORITHMS, coll.algorithm),
                protocol: text(&PROTOCOLS, coll.protocol),
                name: coll.name,
                hash: coll.hash,
                sequence: coll.sequence,
                count: coll.count as u64,
                peer: peer(coll.root),
                channels: coll.channels,
                group: event.parent,
                call: core::ptr::null(),
            }
        }
        2 => {
            // SAFETY: the caller's premise, of version 2.
            let event = unsafe { of::<Coll2>(at) };
            let coll = &event.of;
            Operation { name: coll.name, hash: coll.hash, group: event.parent, ..named!(coll) }
        }
        3 => {
            // SAFETY: the caller's premise, of version 3.
            let event = unsafe { of::<Coll3>(at) };
            let coll = &event.of;
            Operation { name: coll.name, hash: coll.hash, group: event.parent, ..named!(coll) }
        }
        4 => {
            // SAFETY: the caller's premise, of version 4.
            let event = unsafe { of::<Coll4>(at) };
            Operation { group: event.parent, ..named!(event.of) }
        }
        _ => {
            // SAFETY: the caller's premise, of version 5 or 6.
            let event = unsafe { of::<Coll5>(at) };
            let coll = &event.of.as_before;
            Operation { group: event.of.group, call: event.parent, ..named!(coll) }
        }
    }
}

/// Reads half of an exchange.
///
/// # Safety
/// `at` is a description of one in this version.
pub unsafe fn point_to_point(version: u32, at: *const c_void) -> Operation {
    let none = Operation {
        function: core::ptr::null(),
        data_type: core::ptr::null(),
        algorithm: core::ptr::null(),
        protocol: core::ptr::null(),
        name: core::ptr::null(),
        hash: 0,
        sequence: 0,
        count: 0,
        peer: 0,
        channels: 0,
        group: core::ptr::null(),
        call: core::ptr::null(),
    };
    match version {
        1 => {
            // SAFETY: the caller's premise, of version 1.
            let event = unsafe { &*at.cast::<Description<P2p1>>() };
            let p2p = &event.of;
            Operation {
                function: text(&FUNCTIONS, p2p.function),
                data_type: text(&DATA_TYPES, p2p.data_type),
                name: p2p.name,
                hash: p2p.hash,
                count: p2p.count as u64,
                peer: peer(p2p.peer),
                group: event.parent,
                ..none
            }
        }
        2 | 3 => {
            // SAFETY: the caller's premise, of version 2 or 3.
            let event = unsafe { &*at.cast::<Description<P2p2>>() };
            let p2p = &event.of;
            Operation {
                function: p2p.function,
                data_type: p2p.data_type,
                name: p2p.name,
                hash: p2p.hash,
                count: p2p.count as u64,
                peer: peer(p2p.peer),
                group: event.parent,
                ..none
            }
        }
        _ => {
            // SAFETY: the caller's premise, of version 4 to 6, which begin alike.
            let event = unsafe { &*at.cast::<Description<P2p4>>() };
            let p2p = &event.of;
            let (group, call) = match version {
                4 => (event.parent, core::ptr::null()),
                // SAFETY: the caller's premise, of version 5 or 6.
                _ => (unsafe { &*at.cast::<Description<P2p5>>() }.of.group, event.parent),
            };
            Operation {
                function: p2p.function,
                data_type: p2p.data_type,
                count: p2p.count as u64,
                peer: peer(p2p.peer),
                channels: p2p.channels,
                group,
                call,
                ..none
            }
        }
    }
}

/// Reads a collective by copy engines, of version 6.
///
/// # Safety
/// `at` is a description of one.
pub unsafe fn copy_engine(at: *const c_void) -> Operation {
    // SAFETY: the caller's premise.
    let event = unsafe { &*at.cast::<Description<CeColl>>() };
    let coll = &event.of;
    Operation {
        function: coll.function,
        data_type: coll.data_type,
        algorithm: c"CE".as_ptr(),
        protocol: coll.strategy,
        name: core::ptr::null(),
        hash: 0,
        sequence: coll.sequence,
        count: coll.count as u64,
        peer: peer(coll.root),
        channels: 0,
        group: core::ptr::null(),
        call: event.parent,
    }
}

/// What an event's type makes of it here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// What is handed over together.
    Group,
    /// A collective, an exchange, a collective by copy engines.
    Collective,
    /// See `Collective`.
    PointToPoint,
    /// See `Collective`.
    CopyEngine,
    /// A call.
    CollectiveCall,
    /// A call that sends or receives.
    PointToPointCall,
    /// Work of the proxy, a step of it, a kernel's part.
    ProxyOp,
    /// See `ProxyOp`.
    ProxyStep,
    /// See `ProxyOp`.
    KernelPart,
}

/// The event of a type, if it is of use.
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

    /// Offsets that gcc gives for the headers of NCCL's profiler_v1.h to profiler_v6.h.
    #[test]
    fn structures_lie_as_in_nccls_headers() {
        type D<U> = Description<U>;
        assert_eq!((offset_of!(D<u64>, parent), offset_of!(D<u64>, rank)), (8, 16));
        assert_eq!((offset_of!(D<u64>, of), offset_of!(D<ProxyOp>, of)), (24, 24));
        macro_rules! at {
            ($of:ty, $($field:ident),*) => { [$(offset_of!($of, $field)),*] };
        }
        assert_eq!(
            at!(
                Coll1, hash, sequence, function, count, root, data_type, channels, algorithm,
                protocol
            ),
            [8, 16, 24, 48, 56, 60, 80, 82, 83]
        );
        assert_eq!(
            at!(
                Coll2, hash, sequence, function, count, root, data_type, channels, algorithm,
                protocol
            ),
            [8, 16, 24, 48, 56, 64, 80, 88, 96]
        );
        assert_eq!(
            at!(
                Coll3, hash, sequence, function, count, root, data_type, channels, algorithm,
                protocol
            ),
            [8, 16, 24, 48, 56, 64, 72, 80, 88]
        );
        assert_eq!(
            at!(Coll4, sequence, function, count, root, data_type, channels, algorithm, protocol),
            [0, 8, 32, 40, 48, 56, 64, 72]
        );
        assert_eq!(offset_of!(Coll5, group), 80);
        assert_eq!(at!(P2p1, hash, function, data_type, count, peer), [8, 16, 32, 40, 48]);
        assert_eq!(at!(P2p2, hash, function, data_type, count, peer), [8, 16, 32, 40, 48]);
        assert_eq!(at!(P2p4, function, data_type, count, peer, channels), [0, 16, 24, 32, 36]);
        assert_eq!(offset_of!(P2p5, group), 40);
        assert_eq!(
            at!(CeColl, sequence, function, count, root, data_type, strategy),
            [0, 8, 32, 40, 48, 56]
        );
        assert_eq!(
            at!(CollApi, function, count, data_type, root, stream, captured),
            [0, 8, 16, 24, 32, 40]
        );
        assert_eq!(at!(P2pApi, function, count, data_type, stream, captured), [0, 8, 16, 24, 32]);
        assert_eq!(at!(ProxyOp, pid, channel, peer, steps, chunk, sends), [0, 4, 8, 12, 16, 20]);
        assert_eq!(at!(KernelCh, channel, device_ns), [0, 8]);
    }
}
