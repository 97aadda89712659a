//! The layout of the records about calls of intercepted functions.

/// [`crate::record::ExtKind::HostCall`]: a call returned. The record's clock is the time when the
/// call began, its argument the function's number. Words:
///
/// - Clock when the call returned.
/// - The call's result. The high half is `cudaMemcpyKind` plus one, or 0.
/// - Stream.
/// - Bytes, the kernel (its stub or handle), or the device.
///
/// For [`super::Effect::Meets`] the words are:
///
/// - Clock when the call returned.
/// - The call's result. The high half is the root or the other rank plus one, or 0.
/// - Number of ranks of the communicator, or 0.
/// - Bytes, or [`NO_BYTES`].
///
/// Some calls that take long, and those that failed for lack of memory, have the stack's id as a
/// fifth word.
pub const HOST_CALL_WORDS: usize = 4;
/// Stands for a message's bytes if their number is not known.
pub const NO_BYTES: u64 = u64::MAX;
/// [`crate::record::ExtKind::HostStream`]: CUPTI's number of a stream, written at the first call
/// that starts work in the stream. Words:
///
/// - The stream's handle, from [`super::stream_of`]. For a default stream, the number is valid for
///   this thread from now on.
/// - CUPTI's number of the stream in the low half and of its context in the high half; all ones if
///   they are not known.
pub const HOST_STREAM_WORDS: usize = 2;
/// [`crate::record::ExtKind::HostMemory`]: memory was allocated (the clock is read after the call)
/// or is about to be freed (the clock is read before the call). The argument is the function's
/// number. Words:
///
/// - Address; 0 for all live memory of a device.
/// - Bytes; 0 for a free, or if not known.
/// - Stream. For a reset, the device plus one, or 0 for the thread's device.
/// - Stack id, with bit 32 set for a free.
///
/// For [`super::Effect::Maps`], the record is written once the call succeeded. Its words are:
///
/// - Address or handle.
/// - Bytes.
/// - For a creation, the kind of location in the low half and the location's id in the high half.
///   For a mapping, the handle.
/// - Stack id.
///
/// In a process that made its own context, allocations have two more words: the context, and its
/// device plus one.
pub const HOST_MEMORY_WORDS: usize = 4;
/// [`crate::record::ExtKind::Reported`]: PyTorch's allocator reported a change
/// ([`super::Effect::Reports`]). The argument is the function's number. Words:
///
/// - Address of the block; 0 if not known.
/// - Bytes of the block, as a signed number: negative if it was taken back. For a lack of memory,
///   the bytes that were asked for.
/// - Bytes that are given out after the change; all ones if not known.
/// - Bytes that are reserved after the change; all ones if not known.
/// - Stack id | type of the device << 32 | index of the device << 40.
/// - For a lack of memory, the bytes that were free on the device when the thread last measured
///   them; all ones if it never did. Other reports lack this word.
pub const REPORTED_WORDS: usize = 5;
/// [`crate::record::ExtKind::Collective`]: a collective, with clock and argument as in a host call.
/// Words:
///
/// - Clock when the call returned.
/// - The call's result. The high half is the `ncclDataType_t`.
/// - Communicator.
/// - Number of elements.
/// - Stream.
/// - Root or other rank plus one, or 0.
pub const COLLECTIVE_WORDS: usize = 6;
/// [`crate::record::ExtKind::Communicator`]: a communicator was made or ended. The argument is the
/// function's number. Words:
///
/// - Communicator; 0 if it could not be made.
/// - A number that is the same in all ranks, or 0.
/// - Number of ranks.
/// - Rank.
/// - The communicator that was split, shrunk or grown; otherwise 0.
/// - For a split, colour | key << 32. Otherwise, how many ranks the communicator lost.
pub const COMMUNICATOR_WORDS: usize = 6;
