//! Payloads of the records that tprof's profiler plugin for NCCL writes: communicators, calls that
//! request operations, operations as NCCL enqueued them, and their work on channels.
//!
//! Operation, data type, algorithm and protocol are ids of [`Text`](crate::record::ExtKind::Text)
//! records, where 0 means none. Ids of calls, tasks, groups and contexts are unique in their
//! process, and 0 means none.

use crate::gpu::payload;

payload! {
    /// A communicator for which NCCL initialised the plugin.
    Context {
        wide {
            /// Id of the communicator.
            context,
            /// NCCL's number of the communicator, which is the same in all ranks; 0 if NCCL did not
            /// pass it. Before version 4 of the plugin interface, NCCL passes it with each
            /// operation instead.
            hash,
        }
        narrow {
            /// Version of the plugin interface.
            version,
            /// Number of hosts; 0 if NCCL did not pass it.
            nodes,
            /// Number of ranks.
            ranks,
            /// This process's rank.
            rank,
            /// Text id of the name that the program gave the communicator.
            name,
        }
    }
}

payload! {
    /// A call of an NCCL function. Only versions 5 and later of the interface report calls. The
    /// record's clock is the time when the call began.
    Call {
        wide {
            /// Id of the call.
            id,
            /// Id of the communicator.
            context,
            /// Number of elements.
            count,
            /// Handle of the stream.
            stream,
        }
        narrow {
            /// Text id of the operation's name.
            function,
            /// Text id of the type of an element.
            data_type,
            /// Root plus one; 0 if there is none.
            root,
            /// 1 if a graph captures the call, so that the operation doesn't run now.
            captured,
        }
    }
}

payload! {
    /// An operation that NCCL enqueued. The record's clock is the time of that.
    Task {
        wide {
            /// Id of the operation.
            id,
            /// Id of the call that requested the operation, from version 5 on.
            call,
            /// Id that operations share if NCCL passes them to the device together.
            group,
            /// Id of the communicator.
            context,
            /// NCCL's number of the communicator, before version 4.
            hash,
            /// Sequence number among the operations of the same function on the communicator.
            sequence,
            /// Number of elements.
            count,
        }
        narrow {
            /// One of [`task_kind`].
            kind,
            /// Text id of the operation's name.
            function,
            /// Text id of the type of an element.
            data_type,
            /// Text id of the algorithm.
            algorithm,
            /// Text id of the protocol.
            protocol,
            /// The other rank, or the root, plus one; 0 if there is none.
            peer,
            /// Number of channels; 0 if NCCL did not pass it.
            channels,
            /// This process's rank in the communicator.
            rank,
            /// Text id of the communicator's name, before version 4.
            name,
        }
    }
}

/// Values of [`Task::kind`].
pub mod task_kind {
    /// A collective that a kernel carries out.
    pub const COLLECTIVE: u32 = 0;
    /// One side of an exchange between two ranks.
    pub const POINT_TO_POINT: u32 = 1;
    /// A collective that copy engines carry out.
    pub const COPY_ENGINE: u32 = 2;
}

payload! {
    /// An operation's work on one channel. The record's clock is the time when the work began.
    Transfer {
        wide {
            /// Id of the operation; 0 if the operation belongs to another process.
            task,
            /// Id of the communicator.
            context,
            /// Clock at the work's end.
            end,
            /// The device's clock at the beginning of a kernel's part, in ns; 0 if there is none.
            device_start_ns,
            /// The device's clock at the end of a kernel's part, in ns.
            device_end_ns,
            /// Ticks that steps waited for the device.
            device_wait,
            /// Ticks that steps waited for the other rank to make room.
            peer_wait,
            /// Ticks that steps waited for the network.
            network,
            /// Bytes that the steps moved; 0 if NCCL did not pass them.
            bytes,
        }
        narrow {
            /// One of [`transfer_kind`].
            kind,
            /// Number of the channel.
            channel,
            /// The other rank plus one; 0 for a kernel's part.
            peer,
            /// Number of steps that ended.
            steps,
        }
    }
}

/// Values of [`Transfer::kind`].
pub mod transfer_kind {
    /// The part of a kernel.
    pub const KERNEL: u32 = 0;
    /// The proxy thread sends data.
    pub const SEND: u32 = 1;
    /// The proxy thread receives data.
    pub const RECEIVE: u32 = 2;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn payloads_round_trip() {
        let task = Task {
            id: 9,
            call: u64::MAX,
            sequence: 3,
            kind: task_kind::POINT_TO_POINT,
            peer: 8,
            name: 77,
            ..Task::default()
        };
        assert_eq!(Task::unpack(&task.pack()), Some(task));
        assert_eq!(Task::WORDS, 12);
        let transfer = Transfer { task: 1, bytes: 1 << 40, steps: 6, ..Transfer::default() };
        assert_eq!(Transfer::unpack(&transfer.pack()), Some(transfer));
        assert_eq!(Transfer::unpack(&transfer.pack()[1..]), None);
    }
}
