//! Finds the number of ranks and bytes of MPI calls.
//!
//! Only the library that made a handle of a type or communicator knows what it means, so this
//! module calls that library (`PMPI_Type_size`, `PMPI_Comm_size`). It does so only after the
//! recorded call has succeeded, since a bad handle would end the job. Both functions are local, and
//! take no lock that the recorded call does not take.

use crate::call_args::Frame;
use crate::callee;
use core::ffi::c_int;
use tprof_wire::calls::{FUNCTIONS, MpiMessage, NO_BYTES};

/// How the file names of MPI's libraries begin.
pub const LIBRARY: &[u8] = b"libmpi";

/// Number of `PMPI_Type_size` in [`callee`]'s cache, above the numbers of all hooked functions.
const TYPE_SIZE: u32 = FUNCTIONS.len() as u32;
const COMM_SIZE: u32 = TYPE_SIZE + 1;

/// Number of ranks in a communicator; 0 if it isn't known.
pub fn ranks(frame: &Frame, communicator: u64) -> u64 {
    ask(b"PMPI_Comm_size\0", COMM_SIZE, frame, communicator).unwrap_or(0)
}

/// Bytes of a message; [`NO_BYTES`] if they are not known.
pub fn bytes(frame: &Frame, message: Option<MpiMessage>, ranks: u64) -> u64 {
    let known = || {
        let MpiMessage { buffer, count, data_type, each } = message?;
        let count = u64::try_from(frame.register(count) as c_int).ok()?;
        if is_in_place(frame.register(buffer)) || each && ranks == 0 {
            return None;
        }
        // If the count is 0, the type may be invalid, so MPI must not be asked about it.
        if count == 0 {
            return Some(0);
        }
        let size = ask(b"PMPI_Type_size\0", TYPE_SIZE, frame, frame.register(data_type))?;
        count.checked_mul(size)?.checked_mul(if each { ranks } else { 1 })
    };
    known().unwrap_or(NO_BYTES)
}

/// Whether a buffer is `MPI_IN_PLACE`: 1 in Open MPI, -1 in MPICH and libraries that share its ABI.
fn is_in_place(buffer: u64) -> bool {
    matches!(buffer, 1 | u64::MAX)
}

/// Calls an MPI function that stores a number in its second argument for a handle; `None` if it
/// fails.
fn ask(name: &'static [u8], number: u32, frame: &Frame, handle: u64) -> Option<u64> {
    let address = callee::find_next(name, number, frame.caller(), LIBRARY, 0);
    if address == 0 {
        return None;
    }
    let mut size: c_int = -1;
    // SAFETY: `PMPI_Comm_size` and `PMPI_Type_size` have this type: a handle is an `int` or a
    // pointer, which are both passed in one register. The recorded call has just succeeded with the
    // handle, so it is valid.
    let error = unsafe {
        let function: unsafe extern "C" fn(u64, *mut c_int) -> c_int =
            core::mem::transmute(address);
        function(handle, &mut size)
    };
    u64::try_from(size).ok().filter(|_| error == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MESSAGE: MpiMessage = MpiMessage { buffer: 0, count: 1, data_type: 2, each: false };

    fn frame(buffer: u64, count: i32) -> Frame {
        Frame::of_registers([buffer, count as u32 as u64, 99, 0, 0, 0])
    }

    #[test]
    fn an_empty_message_has_no_bytes_and_its_type_is_not_asked_for() {
        assert_eq!(bytes(&frame(0x1000, 0), Some(MESSAGE), 8), 0);
    }

    #[test]
    fn a_message_that_says_nothing_of_its_size_has_unknown_bytes() {
        let each = MpiMessage { each: true, ..MESSAGE };
        assert_eq!(bytes(&frame(0x1000, 0), None, 8), NO_BYTES);
        assert_eq!(bytes(&frame(0x1000, -1), Some(MESSAGE), 8), NO_BYTES, "a bad count");
        assert_eq!(bytes(&frame(1, 5), Some(MESSAGE), 8), NO_BYTES, "Open MPI's MPI_IN_PLACE");
        assert_eq!(bytes(&frame(u64::MAX, 5), Some(MESSAGE), 8), NO_BYTES, "MPICH's");
        assert_eq!(bytes(&frame(0x1000, 0), Some(each), 0), NO_BYTES, "of unknown ranks");
    }

    #[test]
    fn without_mpi_neither_ranks_nor_types_are_known() {
        assert_eq!(ranks(&frame(0, 0), 7), 0);
        assert_eq!(bytes(&frame(0x1000, 5), Some(MESSAGE), 8), NO_BYTES);
    }
}
