//! Payloads of the records that the CUPTI agent writes: the work of devices, the calls that started
//! the work, and ranges that the program named.
//!
//! Their times are on CUPTI's clock, which differs from process to process and can be set back. The
//! collector converts them to the records' clock with the help of [`ClockJoin`] records. A payload
//! consists of words: 64-bit values first, then pairs of 32-bit values.

/// Declares a payload with its fields, and defines how it is packed into words and unpacked.
macro_rules! payload {
    (
        $(#[$doc:meta])* $name:ident {
            wide { $($(#[$wide_doc:meta])* $wide:ident),* $(,)? }
            narrow { $($(#[$narrow_doc:meta])* $narrow:ident),* $(,)? }
        }
    ) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct $name {
            $($(#[$wide_doc])* pub $wide: u64,)*
            $($(#[$narrow_doc])* pub $narrow: u32,)*
        }

        impl $name {
            const WIDE: usize = <[&str]>::len(&[$(stringify!($wide)),*]);
            const NARROW: usize = <[&str]>::len(&[$(stringify!($narrow)),*]);
            /// Number of words of its payload.
            pub const WORDS: usize = Self::WIDE + Self::NARROW.div_ceil(2);

            /// Packs it into a payload.
            #[inline(always)]
            pub fn pack(&self) -> [u64; Self::WORDS] {
                let whole: [u64; Self::WIDE] = [$(self.$wide),*];
                let halves: [u32; Self::NARROW] = [$(self.$narrow),*];
                let mut words = [0; Self::WORDS];
                let (wide, pairs) = words.split_at_mut(Self::WIDE);
                wide.copy_from_slice(&whole);
                for (word, pair) in pairs.iter_mut().zip(halves.chunks(2)) {
                    for (place, half) in pair.iter().enumerate() {
                        *word |= u64::from(*half) << (32 * place);
                    }
                }
                words
            }

            /// Unpacks a payload, which may be longer than needed.
            #[inline]
            #[allow(unused_mut, unused_variables)] // either sort may be missing
            pub fn unpack(words: &[u64]) -> Option<Self> {
                let (wide, pairs) = words.get(..Self::WORDS)?.split_at(Self::WIDE);
                let mut whole = wide.iter().copied();
                let mut halves = pairs.iter().flat_map(|word| [*word as u32, (*word >> 32) as u32]);
                Some(Self {
                    $($wide: whole.next().unwrap_or_default(),)*
                    $($narrow: halves.next().unwrap_or_default(),)*
                })
            }
        }
    };
}
pub(crate) use payload;

payload! {
    /// One moment on both clocks. The agent reads its own clock, then CUPTI's, then its own again.
    /// The record's clock is the middle of the two readings.
    ClockJoin {
        wide {
            /// CUPTI's clock, ns.
            foreign_ns,
            /// Ticks of the record's clock between the two readings.
            width_ticks,
        }
        narrow {}
    }
}

payload! {
    /// A kernel ran.
    Kernel {
        wide {
            /// Time when it began.
            start,
            /// Time when it ended.
            end,
            /// Time when it was queued; 0 if not measured.
            queued,
            /// Time when it was submitted; 0 if not measured.
            submitted,
            /// The node's id, if the kernel is part of a graph; otherwise 0.
            node,
        }
        narrow {
            /// Correlation id of the launch.
            correlation,
            /// Number of the stream.
            stream,
            /// Text id of the name.
            name,
            /// The graph's id; 0 if there is none.
            graph,
            /// Number of the device.
            device,
            /// Number of the context.
            context,
            /// Number of blocks in x.
            grid_x,
            /// Number of blocks in y.
            grid_y,
            /// Number of blocks in z.
            grid_z,
            /// Number of threads of a block in x.
            block_x,
            /// Number of threads of a block in y.
            block_y,
            /// Number of threads of a block in z.
            block_z,
            /// Number of registers of a thread.
            registers,
            /// Bytes of static shared memory.
            shared_static,
            /// Bytes of dynamic shared memory.
            shared_dynamic,
        }
    }
}

payload! {
    /// A copy or a fill ran.
    Copy {
        wide {
            /// Time when it began.
            start,
            /// Time when it ended.
            end,
            /// Number of bytes.
            bytes,
            /// The node's id, if this is part of a graph; otherwise 0.
            node,
        }
        narrow {
            /// Correlation id of the call.
            correlation,
            /// Number of the stream.
            stream,
            /// The graph's id; 0 if there is none.
            graph,
            /// Number of the device.
            device,
            /// Number of the context.
            context,
            /// `CUpti_ActivityMemcpyKind`, or [`FILL`].
            kind,
            /// The `CUpti_ActivityMemoryKind` that was read, or the value of a fill.
            from,
            /// The `CUpti_ActivityMemoryKind` that was written.
            to,
            /// `CUpti_ActivityFlag`: bit 0 is set if the call could return before the copy was
            /// complete.
            flags,
            /// Number of the other device of a peer copy plus one; 0 if there is none.
            peer,
        }
    }
}

/// [`Copy::kind`] of a fill.
pub const FILL: u32 = 100;

payload! {
    /// A call of the runtime or driver API returned.
    Call {
        wide {
            /// Time when it began.
            start,
            /// Time when it returned.
            end,
        }
        narrow {
            /// The correlation id, which the call shares with the work that it started.
            correlation,
            /// The kernel's id of the thread.
            thread,
            /// Text id of the name.
            name,
            /// Value that it returned.
            result,
            /// 0 for the runtime, 1 for the driver.
            driver,
        }
    }
}

payload! {
    /// The host or a stream waited for a device.
    Wait {
        wide {
            /// Time when it began.
            start,
            /// Time when it ended.
            end,
        }
        narrow {
            /// Correlation id of the call that waited.
            correlation,
            /// Number of the stream; all ones if there is none.
            stream,
            /// Number of the context.
            context,
            /// Kind of the wait, a `CUpti_ActivitySynchronizationType`.
            kind,
            /// Number of the event; all ones if there is none.
            event,
        }
    }
}

payload! {
    /// The innermost external id of one kind that a thread had pushed when it made a call.
    External {
        wide {
            /// The external id.
            id,
        }
        narrow {
            /// Correlation id of the call.
            correlation,
            /// `CUpti_ExternalCorrelationKind`: says whose ids these are.
            kind,
        }
    }
}

payload! {
    /// Device memory was allocated or freed.
    Memory {
        wide {
            /// Time of the change.
            time,
            /// Address of the memory.
            address,
            /// Number of bytes.
            bytes,
            /// Address of the stream-ordered pool that the memory belongs to; 0 if it doesn't
            /// belong to a pool of this process.
            pool,
            /// Bytes in this pool.
            pool_held,
            /// The part of the pool's bytes that is in use.
            pool_given,
        }
        narrow {
            /// Correlation id of the call.
            correlation,
            /// The operation, a `CUpti_ActivityMemoryOperationType`.
            operation,
            /// Kind of memory, a `CUpti_ActivityMemoryKind`.
            kind,
            /// Number of the device.
            device,
            /// Number of the context.
            context,
            /// Number of the stream.
            stream,
            /// Whether the operation is ordered in a stream.
            asynchronous,
        }
    }
}

payload! {
    /// CUPTI or the driver spent time on its own work.
    Overhead {
        wide {
            /// Time when it began.
            start,
            /// Time when it ended.
            end,
        }
        narrow {
            /// Kind of overhead, a `CUpti_ActivityOverheadKind`.
            kind,
            /// The kernel's id of the thread; 0 if there is none.
            thread,
        }
    }
}

payload! {
    /// Properties of a device.
    Device {
        wide {
            /// Memory of the device, in bytes.
            memory,
            /// Bandwidth of the memory, in KB/s.
            bandwidth,
            /// First half of the UUID, as bytes.
            uuid_low,
            /// Second half of the UUID, as bytes.
            uuid_high,
        }
        narrow {
            /// Number of the device.
            device,
            /// Text id of the name.
            name,
            /// Number of multiprocessors.
            processors,
            /// Compute capability, major.
            major,
            /// Compute capability, minor.
            minor,
            /// Clock of the cores, in kHz.
            clock,
            /// Size of the level-2 cache, in bytes.
            cache,
            /// Number of threads of a warp.
            warp,
            /// Maximum number of threads of a block.
            threads,
            /// Maximum number of warps of a multiprocessor.
            warps,
            /// Maximum number of blocks of a multiprocessor.
            blocks,
            /// Shared memory of a multiprocessor, in bytes.
            shared,
            /// Shared memory of a block, in bytes.
            shared_block,
            /// Number of registers of a multiprocessor.
            registers,
            /// Maximum number of registers of a block.
            registers_block,
        }
    }
}

payload! {
    /// Properties of a stream.
    Stream {
        wide {}
        narrow {
            /// Number of the context.
            context,
            /// Number of the stream.
            stream,
            /// Priority of the stream.
            priority,
        }
    }
}

payload! {
    /// Properties of a context.
    Context {
        wide {}
        narrow {
            /// Number of the context.
            context,
            /// Number of the device.
            device,
            /// Number of its default stream.
            null_stream,
        }
    }
}

payload! {
    /// An NVTX event, at the record's own clock.
    Range {
        wide {
            /// For a push or pop, the number of ranges of its domain around it on its thread, or
            /// [`NO_LEVEL`]; for a start or end, the range's number; for a thread's name, the
            /// thread's id.
            id,
            /// The payload's 64 bits.
            value,
        }
        narrow {
            /// Text id of the message.
            name,
            /// Text id of the domain's name; 0 for the default domain.
            domain,
            /// Category of the range.
            category,
            /// Text id of the category's name; 0 if it has none.
            category_name,
            /// Colour as ARGB; 0 if none was given.
            colour,
            /// NVTX's number for the payload's type; 0 if there is no payload.
            value_type,
        }
    }
}

/// [`Range::id`] in a domain whose ranges are not counted.
pub const NO_LEVEL: u64 = u64::MAX;

payload! {
    /// The instruction of a kernel that was sampled. In an [`ExtKind::PcSamples`] record, it is
    /// followed by as many words as the record's argument says, each packed by [`pack_reason`].
    ///
    /// [`ExtKind::PcSamples`]: crate::record::ExtKind::PcSamples
    PcSamples {
        wide {
            /// Number of the module's code: that of a [`Cubin`] if it has [`CUBIN_NUMBERED`], else
            /// what CUPTI itself computed.
            cubin,
            /// Distance of the instruction from the function's beginning, bytes.
            offset,
        }
        narrow {
            /// Device that the kernel ran on.
            device,
            /// Text id of the function's mangled name.
            function,
        }
    }
}

/// Packs a reason's text id and the number of samples with this reason.
pub const fn pack_reason(reason: u32, samples: u32) -> u64 {
    reason as u64 | (samples as u64) << 32
}

/// The text id and the number of samples that [`pack_reason`] packed.
pub const fn unpack_reason(word: u64) -> (u32, u32) {
    (word as u32, (word >> 32) as u32)
}

payload! {
    /// What CUPTI says of the samples that one of its answers contains.
    PcTotals {
        wide {
            /// All samples, including the dropped ones and those of the driver's own kernels.
            total,
            /// Samples that the device dropped.
            dropped,
            /// Samples of kernels that are not the program's.
            other,
            /// Samples in the records that this answer consists of.
            recorded,
        }
        narrow {
            /// CUPTI's number of the device.
            device,
            /// CUPTI's number of the context.
            context,
            /// The period in cycles is 2 to the power of this.
            period,
            /// 1 if the device's buffer was full.
            full,
        }
    }
}

payload! {
    /// The code of a loaded module, which the agent saved to a file in the session's directory
    /// because it has line information. Its file is named `cubin-KEY-NUMBER`, with sixteen hexadecimal
    /// digits each, and the number without [`CUBIN_NUMBERED`].
    Cubin {
        wide {
            /// The module's number, with [`CUBIN_NUMBERED`].
            number,
            /// Length of the code, bytes.
            bytes,
            /// Number of the process, which its files have in their names.
            key,
        }
        narrow {
            /// 1 if the file is whole; 0 if it could not be written or the limit was reached.
            is_saved,
        }
    }
}

/// Bits that mark a number of a module's code as one that the agent assigned. The bits below count
/// the modules of a process.
pub const CUBIN_NUMBERED: u64 = 0x7470_726f_0000_0000;
/// Most bytes of the code of all modules that a process saves.
pub const MAX_CUBIN_BYTES: u64 = 256 << 20;

/// Errors and facts that the reader must know. These are arguments of an agent's note, whose
/// payload is a count and a text id.
pub mod trouble {
    /// CUPTI could not be used. The text has the reason.
    pub const NO_CUPTI: u32 = 1;
    /// CUPTI refused a kind of record. The text says which, and why.
    pub const REFUSED: u32 = 2;
    /// CUPTI dropped records.
    pub const DROPPED: u32 = 3;
    /// Records had no times.
    pub const NO_TIMES: u32 = 4;
    /// There were records of kinds that were not enabled, or are unknown.
    pub const UNKNOWN_KIND: u32 = 5;
    /// Some bytes of buffers could not be read.
    pub const UNREADABLE: u32 = 6;
    /// The injection library that the job itself had named did not load.
    pub const NOT_CHAINED: u32 = 7;
    /// The CUPTI that is used: its version is the count, its path the text.
    pub const USES: u32 = 8;
    /// Requests for a buffer were refused. CUPTI itself counts the records that it lost because of
    /// that ([`DROPPED`]).
    pub const NO_BUFFER: u32 = 9;
    /// Names were cut.
    pub const NAMES_CUT: u32 = 10;
    /// CUPTI is newer than any that the agent supports. The count is its version.
    pub const NEWER: u32 = 14;
    /// Another client of CUPTI registered, and gets its records through the agent.
    pub const SHARED: u32 = 20;
    /// A forced flush gave a buffer with a record of work that had not ended. The count is the
    /// number of bytes from this record on, which are lost.
    pub const NOT_ENDED: u32 = 21;
    /// There were bytes of records in spare buffers, which are lent where a refusal would crash
    /// CUPTI.
    pub const SPARE_BUFFERS: u32 = 22;
    /// Another client detached CUPTI from the process. The count is the number of buffers that were
    /// lost by it.
    pub const DETACHED: u32 = 23;
    /// CUPTI records again after it was detached.
    pub const ATTACHED: u32 = 24;
    /// CUPTI records again after recording was off, and it was not a hooked call that resumed it.
    /// The count is the time in ns for which recording may have been on before.
    pub const RESUMED: u32 = 26;
    /// There were records of kernels that kernels launched.
    pub const NESTED_KERNELS: u32 = 25;
    /// NCCL's profiler plugin is another library, which the text names.
    pub const OTHER_PROFILER: u32 = 40;
    /// From now on CUPTI records the CUDA runtime's calls: all of them (count 0), or only those
    /// that do not start work by a hooked function (1).
    pub const RECORDS_CALLS: u32 = 13;
    /// CUPTI records the calls that start work, although the user wanted the hooks to record them.
    /// The text has the reason.
    pub const NOT_BY_HOOKS: u32 = 27;
    /// The instructions of kernels are not sampled. The text has the reason.
    pub const NO_STALLS: u32 = 28;
    /// The instructions of kernels are no longer sampled. The text has the reason.
    pub const STALLS_END: u32 = 29;
    /// Samples of instructions could not be read. The count is the number of places that CUPTI
    /// still had.
    pub const STALLS_UNREAD: u32 = 30;
}

/// Longest text of one record, in bytes.
pub const MAX_TEXT_BYTES: usize = 3_800;
/// Maximum number of words of a text.
pub const TEXT_WORDS: usize = 1 + MAX_TEXT_BYTES / 8;

/// Packs a text, cut at [`MAX_TEXT_BYTES`]: its length in bytes, then the bytes. Returns the number
/// of words.
pub fn pack_text(text: &[u8], words: &mut [u64]) -> usize {
    let kept = text.get(..MAX_TEXT_BYTES).unwrap_or(text);
    let Some((len, rest)) = words.split_first_mut() else { return 0 };
    *len = kept.len() as u64;
    for (word, bytes) in rest.iter_mut().zip(kept.chunks(8)) {
        let mut whole = [0u8; 8];
        for (to, from) in whole.iter_mut().zip(bytes) {
            *to = *from;
        }
        *word = u64::from_ne_bytes(whole);
    }
    1 + kept.len().div_ceil(8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_round_trip() {
        assert_eq!(unpack_reason(pack_reason(7, u32::MAX)), (7, u32::MAX));
        let place = PcSamples { cubin: CUBIN_NUMBERED | 3, offset: 0x40, device: 1, function: 9 };
        assert_eq!(PcSamples::unpack(&place.pack()), Some(place));
    }

    #[test]
    fn payloads_round_trip() {
        let kernel = Kernel {
            start: 1,
            end: 2,
            queued: 3,
            submitted: u64::MAX,
            node: 5,
            correlation: 6,
            stream: 7,
            name: u32::MAX,
            shared_dynamic: 9,
            ..Kernel::default()
        };
        let words = kernel.pack();
        assert_eq!(words.len(), 5 + 8);
        assert_eq!(Kernel::unpack(&words), Some(kernel));
        assert_eq!(Kernel::unpack(&words[1..]), None);
        let stream = Stream { context: 1, stream: 2, priority: 3 };
        assert_eq!(Stream::unpack(&stream.pack()), Some(stream));
        assert_eq!(Stream::unpack(&[1 | 2 << 32, 3, 99]), Some(stream));
    }
}
