//! Reads an operation that NCCL enqueued from its description, in any version of the interface.

use super::layout::*;
use core::ffi::{CStr, c_char, c_int, c_void};

/// An enqueued operation, of any version.
#[derive(Clone, Copy)]
pub struct Operation {
    /// Name of the function; NCCL's text, or null.
    pub function: *const c_char,
    /// Type of an element; NCCL's text, or null.
    pub data_type: *const c_char,
    /// Name of the algorithm; NCCL's text, or null.
    pub algorithm: *const c_char,
    /// Name of the protocol; NCCL's text, or null.
    pub protocol: *const c_char,
    /// Name of the communicator; null from version 4 on, where `init` passes it.
    pub name: *const c_char,
    /// Number of the communicator; 0 from version 4 on, where `init` passes it.
    pub hash: u64,
    /// Sequence number among the operations of the same function.
    pub sequence: u64,
    /// Number of elements.
    pub count: u64,
    /// Root or other rank plus one; 0 if there is none.
    pub peer: u32,
    /// Number of channels; 0 if NCCL did not pass it.
    pub channels: u8,
    /// Handle of the group of operations that NCCL passes to the device together.
    pub group: *const c_void,
    /// Handle of the call that requested the operation; null before version 5.
    pub call: *const c_void,
}

/// Names of functions by their numbers in version 1.
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
/// Names of algorithms by their numbers in version 1.
const ALGORITHMS: [&CStr; 7] =
    [c"TREE", c"RING", c"COLLNET_DIRECT", c"COLLNET_CHAIN", c"NVLS", c"NVLS_TREE", c"PAT"];
/// Names of protocols by their numbers in version 1.
const PROTOCOLS: [&CStr; 3] = [c"LL", c"LL128", c"SIMPLE"];
/// Names of the values of `ncclDataType_t`.
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

/// The rank of the root or of the other rank, plus one. For an operation without a root, NCCL
/// passes the value in the call's arguments, which is 0.
fn peer(rank: c_int) -> u32 {
    u32::try_from(rank).map_or(0, |rank| rank.saturating_add(1))
}

/// An operation of which no field is known.
const NONE: Operation = Operation {
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

fn asked(of: &Asked) -> Operation {
    Operation {
        function: of.function,
        data_type: of.data_type,
        sequence: of.sequence,
        count: of.count as u64,
        peer: peer(of.root),
        ..NONE
    }
}

fn chosen(of: &Asked, chosen: &Chosen) -> Operation {
    Operation {
        algorithm: chosen.algorithm,
        protocol: chosen.protocol,
        channels: chosen.channels,
        ..asked(of)
    }
}

fn exchange(of: &Exchange) -> Operation {
    Operation {
        function: of.function,
        data_type: of.data_type,
        count: of.count as u64,
        peer: peer(of.peer),
        ..NONE
    }
}

/// Adds the name and number of the communicator to an operation of versions 1 to 3.
fn named<O>(of: &WithCommunicator<O>, group: *const c_void, operation: Operation) -> Operation {
    Operation { name: of.name, hash: of.hash, group, ..operation }
}

/// Reads a description whose union has the type `U`.
///
/// # Safety
/// `at` is NCCL's description of an event whose union has this type.
unsafe fn description<'a, U>(at: *const c_void) -> &'a Description<U> {
    // SAFETY: the caller guarantees a description whose union has this type.
    unsafe { &*at.cast() }
}

/// Reads a collective.
///
/// # Safety
/// `at` is NCCL's description of a collective, in this version.
pub unsafe fn collective(version: u32, at: *const c_void) -> Operation {
    match version {
        1 => {
            // SAFETY: the caller guarantees a collective's description of version 1, which has
            // these fields.
            let event = unsafe { description::<WithCommunicator<NumberedCollective>>(at) };
            let of = &event.of.of;
            let operation = Operation {
                function: text(&FUNCTIONS, of.function),
                data_type: text(&DATA_TYPES, of.data_type),
                algorithm: text(&ALGORITHMS, of.algorithm),
                protocol: text(&PROTOCOLS, of.protocol),
                sequence: of.sequence,
                count: of.count as u64,
                peer: peer(of.root),
                channels: of.channels,
                ..NONE
            };
            named(&event.of, event.parent, operation)
        }
        2 => {
            // SAFETY: the caller guarantees a collective's description of version 2, which has
            // these fields.
            let event = unsafe { description::<WithCommunicator<TrafficCollective>>(at) };
            let of = &event.of.of;
            named(&event.of, event.parent, chosen(&of.asked, &of.chosen))
        }
        3 => {
            // SAFETY: the caller guarantees a collective's description of version 3, which has
            // these fields.
            let event = unsafe { description::<WithCommunicator<PlainCollective>>(at) };
            let of = &event.of.of;
            named(&event.of, event.parent, chosen(&of.asked, &of.chosen))
        }
        4 => {
            // SAFETY: the caller guarantees a collective's description of version 4, which has
            // these fields.
            let event = unsafe { description::<PlainCollective>(at) };
            Operation { group: event.parent, ..chosen(&event.of.asked, &event.of.chosen) }
        }
        _ => {
            // SAFETY: the caller guarantees a collective's description of version 5 or 6, which has
            // these fields.
            let event = unsafe { description::<Grouped<PlainCollective>>(at) };
            let (of, group) = (&event.of.of, event.of.group);
            Operation { group, call: event.parent, ..chosen(&of.asked, &of.chosen) }
        }
    }
}

/// Reads one side of an exchange, a send or a receive.
///
/// # Safety
/// `at` is NCCL's description of a send or a receive, in this version.
pub unsafe fn point_to_point(version: u32, at: *const c_void) -> Operation {
    match version {
        1 => {
            // SAFETY: the caller guarantees an exchange's description of version 1, which has these
            // fields.
            let event = unsafe { description::<WithCommunicator<NumberedExchange>>(at) };
            let of = &event.of.of;
            let operation = Operation {
                function: text(&FUNCTIONS, of.function),
                data_type: text(&DATA_TYPES, of.data_type),
                count: of.count as u64,
                peer: peer(of.peer),
                ..NONE
            };
            named(&event.of, event.parent, operation)
        }
        2 | 3 => {
            // SAFETY: the caller guarantees an exchange's description of version 2 or 3, which has
            // these fields.
            let event = unsafe { description::<WithCommunicator<Exchange>>(at) };
            named(&event.of, event.parent, exchange(&event.of.of))
        }
        4 => {
            // SAFETY: the caller guarantees an exchange's description of version 4, which has these
            // fields.
            let event = unsafe { description::<Exchange>(at) };
            // SAFETY: the description is of version 4, which has the number of channels.
            let channels = unsafe { event.of.channels() };
            Operation { group: event.parent, channels, ..exchange(&event.of) }
        }
        _ => {
            // SAFETY: the caller guarantees an exchange's description of version 5 or 6, which has
            // these fields.
            let event = unsafe { description::<Grouped<Exchange>>(at) };
            let (of, group) = (&event.of.of, event.of.group);
            // SAFETY: the description is of version 5 or 6, which have the number of channels.
            let channels = unsafe { of.channels() };
            Operation { group, call: event.parent, channels, ..exchange(of) }
        }
    }
}

/// Reads a collective that copy engines carry out. Such collectives exist from version 6 on.
///
/// # Safety
/// `at` is NCCL's description of such a collective.
pub unsafe fn copy_engine(at: *const c_void) -> Operation {
    // SAFETY: the caller guarantees such a description, which has these fields.
    let event = unsafe { description::<CopyCollective>(at) };
    Operation {
        algorithm: c"CE".as_ptr(),
        protocol: event.of.strategy,
        call: event.parent,
        ..asked(&event.of.asked)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_root_of_nobody_is_no_peer() {
        assert_eq!([-1, 0, 7].map(peer), [0, 1, 8]);
    }

    #[test]
    fn numbers_of_version_1_are_texts_and_unknown_ones_are_none() {
        let of = |number| match text(&FUNCTIONS, number) {
            at if at.is_null() => None,
            // SAFETY: the texts are constants.
            at => Some(unsafe { CStr::from_ptr(at) }),
        };
        assert_eq!([0, 4, 7].map(of), [Some(c"Broadcast"), Some(c"AllReduce"), Some(c"Recv")]);
        assert_eq!([8, 255].map(of), [None, None]);
    }

    /// Zeroes, as many as any description has.
    type Zeroes = [u64; 32];

    #[test]
    fn each_version_finds_the_group_and_the_call_where_it_has_them() {
        // The parent is at offset 8. A group follows the union's fields, which end at offset 24 + 80.
        let mut zeroes: Zeroes = [0; 32];
        zeroes[1] = 0x1111;
        zeroes[(24 + 80) / 8] = 0x2222;
        let at = (&raw const zeroes).cast();
        // SAFETY: zeroes are a description of any version.
        let of = unsafe { [1, 2, 3, 4, 5, 6].map(|version| collective(version, at)) };
        let places = of.map(|of| (of.group as usize, of.call as usize));
        assert_eq!(places[..4], [(0x1111, 0); 4]);
        assert_eq!(places[4..], [(0x2222, 0x1111); 2]);
        // SAFETY: as above.
        let of = unsafe { copy_engine(at) };
        assert_eq!((of.call as usize, of.group as usize), (0x1111, 0));
        // SAFETY: the text is a constant.
        assert_eq!(unsafe { CStr::from_ptr(of.algorithm) }, c"CE");
    }

    #[test]
    fn channels_of_an_exchange_are_read_only_where_they_are() {
        let zeroes: Zeroes = [u64::MAX; 32];
        let at = (&raw const zeroes).cast();
        // SAFETY: the descriptions' integers may have any value, and pointers aren't followed.
        let channels = unsafe { [2, 3, 4, 5].map(|version| point_to_point(version, at).channels) };
        assert_eq!(channels, [0, 0, 255, 255]);
    }
}
