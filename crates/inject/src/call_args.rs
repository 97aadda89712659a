//! The arguments of a call of an intercepted function, as the caller passed them.

use tprof_wire::calls::ArgumentAt;

/// A call in progress, as the hook laid it out on the stack just below the caller's arguments. Only
/// the hooks make frames, so a frame always contains the arguments of a real call: six in
/// registers, and the others in the memory after the frame.
#[repr(C)]
pub struct Frame {
    /// Clock before the real call; 0 if the call is not recorded.
    pub(crate) start: u64,
    /// Result of the real function.
    pub(crate) result: u64,
    /// The six argument registers.
    registers: [u64; 6],
    /// The caller's frame pointer.
    pub(crate) fp: usize,
    /// Return address of the call.
    caller: usize,
    // Arguments in memory follow.
}

impl Frame {
    /// Return address of the call.
    pub fn caller(&self) -> usize {
        self.caller
    }

    /// Sets the call's result if there is no real function.
    pub fn set_result(&mut self, result: u64) {
        self.result = result;
    }

    /// Makes a frame with these argument registers, for tests.
    #[cfg(test)]
    pub(crate) fn of_registers(registers: [u64; 6]) -> Frame {
        Frame { start: 1, result: 0, registers, fp: 0, caller: 0 }
    }

    /// Clock before the real call, read from the frame whose stack pointer is `sp`.
    ///
    /// # Safety
    /// [`Frame::sp`] returned `sp` on this thread, and that memory still belongs to its stack.
    pub(crate) unsafe fn start_of(sp: usize) -> u64 {
        let start = (sp - core::mem::offset_of!(Frame, caller)) as *const u64;
        // SAFETY: the caller guarantees that the memory is this thread's stack. It may no longer
        // contain the frame, so the value may be arbitrary.
        unsafe { start.add(core::mem::offset_of!(Frame, start) / 8).read_volatile() }
    }

    pub(crate) fn register(&self, at: u8) -> u64 {
        self.registers.get(usize::from(at)).copied().unwrap_or(0)
    }

    /// A word of the arguments in memory.
    pub(crate) fn stack(&self, at: u8) -> u64 {
        // They are not a part of `self`, so they are not reached by its pointer.
        let behind = (&raw const *self).addr() + size_of::<Frame>();
        let words = core::ptr::with_exposed_provenance::<u64>(behind);
        // SAFETY: the call's arguments in memory follow the frame. The callers take word numbers
        // from the table of functions, which contains only words that the function has.
        unsafe { words.add(usize::from(at)).read() }
    }

    pub(crate) fn at(&self, place: ArgumentAt) -> u64 {
        match place {
            ArgumentAt::Register(at) => self.register(at),
            ArgumentAt::Stack(at) => self.stack(at),
            // SAFETY: the real function succeeded, so it has read the same structure.
            ArgumentAt::Field(offset) => unsafe { word(self.register(0), usize::from(offset)) },
            // SAFETY: the real function succeeded, so it has read or written through this pointer.
            ArgumentAt::Pointee(at) => unsafe { word(self.register(at), 0) },
        }
    }

    /// The stack pointer at the hook's entry, which points at the return address.
    pub(crate) fn sp(&self) -> usize {
        &raw const self.caller as usize
    }
}

/// Reads a word in memory that belongs to the caller; returns 0 for a null pointer.
///
/// # Safety
/// `address` is 0, or a pointer that the caller passed to a function that reads or writes there.
pub(crate) unsafe fn word(address: u64, offset: usize) -> u64 {
    if address == 0 {
        return 0;
    }
    // SAFETY: the caller guarantees that the word can be read; the read needs no alignment.
    unsafe { ((address as usize + offset) as *const u64).read_unaligned() }
}

/// Reads a 32-bit number, for the last element of a list with an odd length; returns 0 for a null
/// pointer.
///
/// # Safety
/// The same premises as [`word`], for four bytes.
pub(crate) unsafe fn half(address: u64, offset: usize) -> u64 {
    if address == 0 {
        return 0;
    }
    // SAFETY: the caller guarantees that the four bytes can be read; the read needs no alignment.
    u64::from(unsafe { ((address as usize + offset) as *const u32).read_unaligned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A frame with two arguments in memory.
    #[repr(C)]
    struct Whole {
        frame: Frame,
        behind: [u64; 2],
    }

    fn whole() -> Whole {
        let mut frame = Frame::of_registers([10, 11, 12, 13, 14, 15]);
        (frame.start, frame.caller) = (77, 0x1234);
        Whole { frame, behind: [20, 21] }
    }

    #[test]
    fn arguments_beyond_the_registers_are_in_memory() {
        let whole = whole();
        core::hint::black_box((&raw const whole).expose_provenance());
        assert_eq!([0, 5, 6, 255].map(|at| whole.frame.register(at)), [10, 15, 0, 0]);
        assert_eq!([0, 1].map(|at| whole.frame.stack(at)), whole.behind);
        assert_eq!(whole.frame.at(ArgumentAt::Register(3)), 13);
        assert_eq!(whole.frame.at(ArgumentAt::Stack(1)), 21);
    }

    #[test]
    fn fields_and_pointees_are_read_through_the_argument() {
        let pointed = [1u64, 2, 3];
        let address = (&raw const pointed).expose_provenance() as u64;
        let frame = Frame::of_registers([address, 0, address + 16, 0, 0, 0]);
        assert_eq!(frame.at(ArgumentAt::Field(8)), 2);
        assert_eq!(frame.at(ArgumentAt::Pointee(2)), 3);
        assert_eq!(frame.at(ArgumentAt::Pointee(1)), 0, "null has no value");
    }

    #[test]
    fn words_need_no_alignment_and_null_is_zero() {
        let bytes: [u8; 16] = core::array::from_fn(|at| at as u8);
        let address = (&raw const bytes).expose_provenance() as u64;
        // SAFETY: all bytes that are read are in the array.
        unsafe {
            assert_eq!(word(address, 3), 0x0a09_0807_0605_0403);
            assert_eq!(half(address + 1, 2), 0x0605_0403);
            assert_eq!((word(0, 8), half(0, 8)), (0, 0));
        }
    }

    #[test]
    fn a_frames_beginning_is_found_by_its_stack_pointer() {
        let whole = whole();
        core::hint::black_box((&raw const whole).expose_provenance());
        assert_eq!(whole.frame.caller(), 0x1234);
        let sp = whole.frame.sp();
        // SAFETY: the frame is live.
        unsafe {
            assert_eq!((sp as *const usize).read(), 0x1234, "it points at the return address");
            assert_eq!(Frame::start_of(sp), 77);
        }
    }
}
