//! The layout of the records about calls on files, pipes and sockets.
//!
//! A hook gives each open file a number, which the process uses once. So a record doesn't depend on
//! when the descriptor was closed or used again, and the collector needs no order between threads.
//! A forked child and the next program of a process begin with no numbers.

/// What a call did.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Operation {
    /// Opened a file.
    Open = 0,
    /// Read from a file or pipe, or received from a socket.
    Read = 1,
    /// Wrote to a file or pipe, or sent to a socket.
    Write = 2,
    /// Waited until what was written is on the disk (`fsync` and its kin).
    Sync = 3,
    /// Moved the offset of an open file. The result is the new offset.
    Seek = 4,
    /// Mapped a file. Its pages are read later, without a call.
    Map = 5,
    /// Connected a socket to its peer.
    Connect = 6,
    /// Closed a descriptor. Later records don't use the file's number.
    Close = 7,
    /// Accepted a peer's connection, whose socket the file is.
    Accept = 8,
}

impl Operation {
    /// The operation of a number; `None` for an unknown one.
    pub fn of(number: u32) -> Option<Operation> {
        use Operation::*;
        [Open, Read, Write, Sync, Seek, Map, Connect, Close, Accept].get(number as usize).copied()
    }
}

/// How a file's name is known: part of [`crate::record::ExtKind::FileNamed`].
pub mod naming {
    /// The name isn't known.
    pub const UNKNOWN: u32 = 0;
    /// The path as the program gave it.
    pub const PATH: u32 = 1;
    /// The end of such a path, which was longer than [`super::MAX_NAME_BYTES`], or begins at a
    /// directory that has no number.
    pub const END_OF_PATH: u32 = 2;
    /// A `struct sockaddr`: the peer's address.
    pub const PEER: u32 = 3;
    /// What the kernel says of a descriptor that a hook didn't see opened, by its link in
    /// `/proc/self/fd`: a path, `socket:[INODE]`, `pipe:[INODE]` or `anon_inode:[KIND]`.
    pub const LINK: u32 = 4;
}

/// Most bytes of a name in a record. Hooks keep two of them on the stack, which may be a small one of
/// a coroutine or signal handler.
pub const MAX_NAME_BYTES: usize = 512;
/// Words of a [`crate::record::ExtKind::FileNamed`] before the name.
pub const NAMED_WORDS: usize = 2;
/// Words of a [`crate::record::ExtKind::FileCall`].
pub const CALL_WORDS: usize = 4;
/// Words of one without a stack and an offset, as most are.
pub const SHORT_CALL_WORDS: usize = 2;
/// The offset of a call that used and moved the open file's own offset, or that has none.
pub const NO_OFFSET: u64 = u64::MAX;

/// A file that got its number: [`crate::record::ExtKind::FileNamed`], whose argument is the number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Named {
    /// The descriptor that the file has now.
    pub descriptor: u32,
    /// One of [`naming`].
    pub naming: u32,
    /// Length of the name in bytes.
    pub bytes: u32,
    /// The number of the directory that a relative path begins at; 0 for the working directory.
    pub directory: u32,
}

impl Named {
    /// Packs it into the first words of a payload.
    #[inline(always)]
    pub const fn pack(&self) -> [u64; NAMED_WORDS] {
        [
            self.descriptor as u64 | (self.naming as u64) << 32,
            self.bytes as u64 | (self.directory as u64) << 32,
        ]
    }

    /// Unpacks a payload; returns the name's words too.
    pub fn unpack(words: &[u64]) -> Option<(Named, &[u64])> {
        let (&[first, second], name) = words.split_first_chunk()?;
        let bytes = (second as u32).min(MAX_NAME_BYTES as u32);
        let named = Named {
            descriptor: first as u32,
            naming: (first >> 32) as u32,
            bytes,
            directory: (second >> 32) as u32,
        };
        Some((named, name.get(..(bytes as usize).div_ceil(8))?))
    }
}

/// A call that returned: [`crate::record::ExtKind::FileCall`], whose argument is the [`Operation`].
/// The record's clock is when it returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    /// The file's number; 0 if it has none.
    pub file: u32,
    /// The stack; 0 if none was taken.
    pub stack: u32,
    /// The function's result: bytes, a new offset, or a negative number if the call failed.
    pub result: i64,
    /// Ticks of the clock from the beginning to the return.
    pub ticks: u64,
    /// Offset in the file at which the call began, or [`NO_OFFSET`].
    pub offset: u64,
}

impl Call {
    /// Packs it into a payload.
    #[inline(always)]
    pub const fn pack(&self) -> [u64; CALL_WORDS] {
        [self.file as u64 | (self.stack as u64) << 32, self.result as u64, self.ticks, self.offset]
    }

    /// Packs it into a short payload; `None` if it has a stack or an offset, or took more than 2³²
    /// ticks.
    #[inline(always)]
    pub const fn pack_short(&self) -> Option<[u64; SHORT_CALL_WORDS]> {
        if self.stack != 0 || self.offset != NO_OFFSET || self.ticks >> 32 != 0 {
            return None;
        }
        Some([self.file as u64 | self.ticks << 32, self.result as u64])
    }

    /// Unpacks a payload.
    pub fn unpack(words: &[u64]) -> Option<Call> {
        let &[place, result] = words.first_chunk()?;
        let (file, high, result) = (place as u32, (place >> 32) as u32, result as i64);
        let (stack, ticks, offset) = match words.get(SHORT_CALL_WORDS..) {
            Some(&[ticks, offset, ..]) => (high, ticks, offset),
            Some([]) => (0, u64::from(high), NO_OFFSET),
            _ => return None,
        };
        Some(Call { file, stack, result, ticks, offset })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_unpacked_as_they_were_packed() {
        let call = Call { file: 7, stack: 9, result: -1, ticks: 1 << 60, offset: NO_OFFSET };
        assert_eq!(Call::unpack(&call.pack()), Some(call));
        assert_eq!(Call::unpack(&call.pack()[..3]), None);
        assert_eq!(call.pack_short(), None);
        let short = Call { stack: 0, ticks: (1 << 32) - 1, ..call };
        assert_eq!(Call::unpack(&short.pack_short().unwrap()), Some(short));
        assert_eq!(Call { ticks: 1 << 32, ..short }.pack_short(), None);
        assert_eq!(Call { offset: 0, ..short }.pack_short(), None);
        let named = Named { descriptor: 3, naming: naming::PATH, bytes: 9, directory: 4 };
        let [first, second] = named.pack();
        assert_eq!(Named::unpack(&[first, second, 1, 2, 3]), Some((named, &[1, 2][..])));
        assert_eq!(Named::unpack(&[first, second, 1]), None, "the name is cut");
    }

    #[test]
    fn operations_have_their_numbers() {
        for number in 0..9 {
            assert_eq!(Operation::of(number).map(|operation| operation as u32), Some(number));
        }
        assert_eq!(Operation::of(9), None);
    }
}
