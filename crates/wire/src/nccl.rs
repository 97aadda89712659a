//! Payloads of the records that NCCL's profiler plugin writes: communicators, the calls that
//! ask for operations, operations as NCCL enqueued them, and their work on channels.
//!
//! Texts (operation, data type, algorithm, protocol) are ids of
//! [`Text`](crate::record::ExtKind::Text) records, 0 for none. Ids of calls, tasks, groups
//! and contexts are unique in their process, and 0 stands for none.

use crate::gpu::payload;

payload! {
    /// A communicator for which NCCL set the plugin up.
    Context {
        wide {
            /// Id of the communicator.
            context,
            /// NCCL's number of the communicator, the same in all ranks; 0 if it gave none
            /// (before version 4 of the interface it comes with each operation).
            hash,
        }
        narrow {
            /// Version of the plugin interface.
            version,
            /// Hosts; 0 if NCCL gave no sizes.
            nodes,
            /// Number of ranks.
            ranks,
            /// This process's rank.
            rank,
            /// Name that the program gave it.
            name,
        }
    }
}

payload! {
    /// A call of one of NCCL's functions, from version 5 on. The record's clock is its beginning.
    Call {
        wide {
            /// Id of the operation.
            id,
            /// Id of its communicator.
            context,
            /// Number of elements.
            count,
            /// Handle of the stream.
            stream,
        }
        narrow {
            /// Text id of the operation's name.
            function,
            /// Type of an element.
            data_type,
            /// Root plus one; 0 where there is none.
            root,
            /// 1 if a graph captures it: it is not run now.
            captured,
        }
    }
}

payload! {
    /// An operation that NCCL hands to the device. The record's clock is that moment.
    Task {
        wide {
            /// Id; 0 unless its work on channels is recorded.
            id,
            /// The call that asked for it, from version 5 on.
            call,
            /// Id that operations handed over together share.
            group,
            /// Id of its communicator.
            context,
            /// NCCL's number of the communicator, before version 4.
            hash,
            /// Number of this operation among those of its function on the communicator.
            sequence,
            /// Number of elements.
            count,
        }
        narrow {
            /// One of [`task_kind`].
            kind,
            /// Text id of the operation's name.
            function,
            /// Type of an element.
            data_type,
            /// Text id of the algorithm.
            algorithm,
            /// Text id of the protocol.
            protocol,
            /// The other rank, or the root, plus one; 0 where there is none.
            peer,
            /// Channels; 0 if NCCL gave none.
            channels,
            /// This process's rank in the communicator.
            rank,
            /// Name of the communicator, before version 4.
            name,
        }
    }
}

/// Values of [`Task::kind`].
pub mod task_kind {
    /// A collective in a kernel.
    pub const COLLECTIVE: u32 = 0;
    /// Half of an exchange between two ranks.
    pub const POINT_TO_POINT: u32 = 1;
    /// A collective by copy engines.
    pub const COPY_ENGINE: u32 = 2;
}

payload! {
    /// Work on one channel. The record's clock is its beginning.
    Transfer {
        wide {
            /// The operation; 0 if it is another process's.
            task,
            /// Id of its communicator.
            context,
            /// Clock at its end.
            end,
            /// The device's clock at the beginning of a kernel's part, in ns; 0 if there is none.
            device_start_ns,
            /// The device's clock at its end, in ns.
            device_end_ns,
            /// Ticks that steps waited for the device.
            device_wait,
            /// Ticks that steps waited for the other rank to make room.
            peer_wait,
            /// Ticks that steps were on the network.
            network,
            /// Bytes that the steps moved; 0 if NCCL gave none.
            bytes,
        }
        narrow {
            /// One of [`transfer_kind`].
            kind,
            /// Number of the channel.
            channel,
            /// The other rank plus one; 0 for a kernel's part.
            peer,
            /// Steps that ended.
            steps,
        }
    }
}

/// Values of [`Transfer::kind`].
pub mod transfer_kind {
    /// A kernel's part.
    pub const KERNEL: u32 = 0;
    /// The proxy sends.
    pub const SEND: u32 = 1;
    /// The proxy receives.
    pub const RECEIVE: u32 = 2;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn payloads_come_back() {
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
