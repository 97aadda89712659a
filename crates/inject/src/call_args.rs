//! The arguments of a call of an intercepted function, as they came.

use tprof_wire::calls::ArgumentAt;

/// A call in progress, as the hook laid it out below its caller's frame. There is no other
/// way to get one: what it holds are the arguments of a real call, in registers and in the
/// memory that follows.
#[repr(C)]
pub struct Frame {
    /// Clock before the real call; 0 if nothing is recorded of it.
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

    /// Sets the result of the call where there is no real function.
    pub fn set_result(&mut self, result: u64) {
        self.result = result;
    }

    /// A frame with these registers, for tests.
    #[cfg(test)]
    pub(crate) fn of_registers(registers: [u64; 6]) -> Frame {
        Frame { start: 1, result: 0, registers, fp: 0, caller: 0 }
    }

    /// Clock before the real call, of the frame of a call with the stack pointer `sp`.
    ///
    /// # Safety
    /// `sp` is what [`Frame::sp`] returned on this thread, and that memory still belongs to its
    /// stack.
    pub(crate) unsafe fn start_of(sp: usize) -> u64 {
        let start = (sp - core::mem::offset_of!(Frame, caller)) as *const u64;
        // SAFETY: the caller's premise; the frame may be gone, and its memory is still there.
        unsafe { start.add(core::mem::offset_of!(Frame, start) / 8).read_volatile() }
    }

    pub(crate) fn register(&self, at: u8) -> u64 {
        self.registers.get(usize::from(at)).copied().unwrap_or(0)
    }

    /// A word of the arguments in memory.
    pub(crate) fn stack(&self, at: u8) -> u64 {
        let words = (&raw const *self).wrapping_add(1).cast::<u64>();
        // SAFETY: a frame is followed by the call's arguments, and the table names no word
        // beyond what the function's own type has.
        unsafe { words.add(usize::from(at)).read() }
    }

    pub(crate) fn at(&self, place: ArgumentAt) -> u64 {
        match place {
            ArgumentAt::Register(at) => self.register(at),
            ArgumentAt::Stack(at) => self.stack(at),
            // SAFETY: the real function has read the same structure, and it succeeded.
            ArgumentAt::Field(offset) => unsafe { word(self.register(0), usize::from(offset)) },
            // SAFETY: as above.
            ArgumentAt::Pointee(at) => unsafe { word(self.register(at), 0) },
        }
    }

    /// The stack pointer at the hook's entry, which points at the return address.
    pub(crate) fn sp(&self) -> usize {
        &raw const self.caller as usize
    }
}

/// A word in memory that belongs to the caller; 0 behind a null pointer.
///
/// # Safety
/// `address` is 0, or what the caller gave a function that reads or writes there.
pub(crate) unsafe fn word(address: u64, offset: usize) -> u64 {
    if address == 0 {
        return 0;
    }
    // SAFETY: the caller's premise; CUDA's interface aligns what it points at, and an
    // unaligned read is as good.
    unsafe { ((address as usize + offset) as *const u64).read_unaligned() }
}

/// The low half of a word at the end of a list, which may end with it; 0 behind a null pointer.
///
/// # Safety
/// As [`word`], of four bytes.
pub(crate) unsafe fn half(address: u64, offset: usize) -> u64 {
    if address == 0 {
        return 0;
    }
    // SAFETY: the caller's premise.
    u64::from(unsafe { ((address as usize + offset) as *const u32).read_unaligned() })
}
