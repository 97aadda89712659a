//! Predicts what a seccomp filter will return for a system call, by interpreting the filter.
//!
//! A filter is a loop-free program over a call's number and arguments. If an argument isn't known
//! beforehand, the interpreter follows both branches. So the answer "permitted" holds for every
//! value of the argument.

use crate::seccomp::{CallClass, is_forbidden};
use crate::sys;
use tprof_wire::sync::{AtomicU32, Ordering::Relaxed};

/// One instruction, as the kernel reads it (`struct sock_filter`).
#[derive(Clone, Copy)]
struct Instruction {
    code: u16,
    if_true: u8,
    if_false: u8,
    k: u32,
}

impl From<u64> for Instruction {
    fn from(word: u64) -> Instruction {
        Instruction {
            code: word as u16,
            if_true: (word >> 16) as u8,
            if_false: (word >> 24) as u8,
            k: (word >> 32) as u32,
        }
    }
}

/// A system call to check against a filter: its number, and its constant arguments.
pub struct SystemCall {
    /// The system call's number.
    pub number: u32,
    /// The values of arguments; `None` if an argument differs from call to call.
    pub arguments: [Option<u64>; 6],
}

/// Maximum number of instructions in a filter that the kernel accepts.
const MOST: usize = 4096;
const AUDIT_ARCH: u32 = 0xc000_003e;

/// What is known about the filter's accumulator before an instruction runs.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(C)]
struct Known {
    /// 0: the instruction is not reached; 1: the value is known; 2: nothing is known.
    how: u32,
    value: u32,
}

impl Known {
    const NEVER: Known = Known { how: 0, value: 0 };
    const ANY: Known = Known { how: 2, value: 0 };

    fn value(value: u32) -> Known {
        Known { how: 1, value }
    }

    fn get(self) -> Option<u32> {
        (self.how == 1).then_some(self.value)
    }

    fn or(self, other: Known) -> Known {
        match (self.how, other.how) {
            (0, _) => other,
            (_, 0) => self,
            _ if self == other => self,
            _ => Known::ANY,
        }
    }
}

impl From<Option<u32>> for Known {
    fn from(value: Option<u32>) -> Known {
        value.map_or(Known::ANY, Known::value)
    }
}

/// A seccomp filter that the program is about to install. This is a copy, since another thread may
/// change or unmap the program's own.
pub struct Filter {
    /// `None` if there is no memory.
    room: Option<&'static mut Room>,
    len: usize,
}

/// Memory for a filter, in a mapping of its own.
struct Room {
    /// The instructions, one in each word.
    program: [u64; MOST],
    reached: [Known; MOST],
}

impl Filter {
    /// The filter of the `struct sock_fprog` at `program`; `None` if the kernel could not read it
    /// either.
    pub fn at(program: usize) -> Option<Filter> {
        let mut head = [0u64; 2];
        if !copy(program, &mut head) {
            return None;
        }
        let [len, at] = head;
        let len = usize::from(len as u16);
        if len == 0 || len > MOST {
            return None;
        }
        let mut filter = Filter::without_program(len);
        let is_whole = match &mut filter.room {
            Some(room) => copy(at as usize, room.program.get_mut(..len)?),
            None => true,
        };
        is_whole.then_some(filter)
    }

    fn without_program(len: usize) -> Filter {
        let room = sys::map_anonymous(size_of::<Room>());
        // SAFETY: the memory was just mapped, is zeroed (which every field's type allows), and is
        // used only by this filter, which unmaps it when it is dropped.
        Filter { room: room.map(|room| unsafe { &mut *room.cast::<Room>() }), len }
    }

    /// Whether the filter permits all of these calls for every value of their unknown arguments.
    /// False if there is no memory for finding out.
    pub fn permits(&mut self, calls: &[SystemCall]) -> bool {
        let Some(Room { program, reached }) = &mut self.room else { return false };
        let program = program.get(..self.len).unwrap_or_default();
        calls.iter().all(|call| permits_one(program, call, reached) == Some(true))
    }
}

impl Drop for Filter {
    fn drop(&mut self) {
        if let Some(room) = self.room.take() {
            // SAFETY: the room was mapped for this filter, and is not used after this.
            unsafe { sys::unmap(core::ptr::from_mut(room).cast(), size_of::<Room>()) };
        }
    }
}

/// Whether a filter applied to this process before its first own one. Such a filter isn't known
/// here, and may kill for a call. The kernel is asked once, when the first filter is about to be
/// installed: the program's own filters may forbid the question.
fn inherited_a_filter() -> bool {
    match INHERITED.load(Relaxed) {
        NOT_ASKED => {
            let is_filtered = sys::is_filtered();
            INHERITED.store(if is_filtered { YES } else { NO }, Relaxed);
            is_filtered
        }
        answer => answer == YES,
    }
}

/// The answer to [`inherited_a_filter`].
static INHERITED: AtomicU32 = AtomicU32::new(NOT_ASKED);
const NOT_ASKED: u32 = 0;
const NO: u32 = 1;
const YES: u32 = 2;

/// Copies words of this process's memory, by the kernel. Returns false if not all of them exist.
fn copy(at: usize, into: &mut [u64]) -> bool {
    if is_forbidden(CallClass::Reading) || inherited_a_filter() {
        return copy_here(at, into);
    }
    match sys::read_memory(sys::pid(), at as u64, into) {
        read @ 0.. => read as usize == size_of_val(into),
        sys::EFAULT => false,
        // Some containers refuse the call.
        _ => copy_here(at, into),
    }
}

/// Does what [`copy`] does, without a call that may be refused. A page that another thread unmaps
/// during this ends the process; the kernel would have refused the filter.
fn copy_here(at: usize, into: &mut [u64]) -> bool {
    let Some(last) = at.checked_add(size_of_val(into).saturating_sub(8)) else { return false };
    let mut page = at;
    while page < last {
        if !sys::is_readable(page) {
            return false;
        }
        page = (page & !4095) + 4096;
    }
    if !sys::is_readable(last) {
        return false;
    }
    for (to, from) in into.iter_mut().zip((at..=last).step_by(8)) {
        // SAFETY: all pages were found readable; the read needs no alignment.
        *to = unsafe { (from as *const u64).read_unaligned() };
    }
    true
}

/// Whether the filter permits the call; `None` if the filter has an instruction that this
/// interpreter doesn't know.
fn permits_one(program: &[u64], call: &SystemCall, reached: &mut [Known]) -> Option<bool> {
    const ALLOW: u32 = 0x7fff_0000;
    const ACTION: u32 = 0xffff_0000;
    reached.fill(Known::NEVER);
    *reached.first_mut()? = Known::value(0);
    for (index, word) in program.iter().enumerate() {
        let now = *reached.get(index)?;
        if now == Known::NEVER {
            continue;
        }
        let Instruction { code, if_true, if_false, k } = (*word).into();
        let mut go = |by: usize, with: Known| -> Option<()> {
            // The kernel accepts no jump past the end.
            let next = index.checked_add(1 + by).filter(|next| *next < program.len())?;
            let place = reached.get_mut(next)?;
            *place = place.or(with);
            Some(())
        };
        match code {
            // LD: a word of the call, a word of the scratch memory, a constant, or the length.
            0x20 => go(0, data(call, k).into())?,
            0x60 => go(0, Known::ANY)?,
            0x00 => go(0, Known::value(k))?,
            0x80 => go(0, Known::value(64))?,
            // LDX, ST, STX, TAX: these don't change the accumulator. What they write isn't
            // tracked.
            0x01 | 0x61 | 0x81 | 0x02 | 0x03 | 0x07 => go(0, now)?,
            // TXA, and arithmetic with X: X isn't tracked, so the result is unknown.
            0x87 => go(0, Known::ANY)?,
            0x04..=0xac if code & 0x0f == 0x0c => go(0, Known::ANY)?,
            0x04 | 0x14 | 0x24 | 0x34 | 0x44 | 0x54 | 0x64 | 0x74 | 0x84 | 0xa4 => {
                go(0, now.get().and_then(|value| arithmetic(code, value, k)).into())?;
            }
            0x05 => go(k as usize, now)?,
            0x15 | 0x25 | 0x35 | 0x45 => {
                let holds = now.get().map(|value| match code {
                    0x15 => value == k,
                    0x25 => value > k,
                    0x35 => value >= k,
                    _ => value & k != 0,
                });
                if holds != Some(false) {
                    go(usize::from(if_true), now)?;
                }
                if holds != Some(true) {
                    go(usize::from(if_false), now)?;
                }
            }
            // Comparisons with X, which isn't tracked, so both branches are followed.
            0x1d | 0x2d | 0x3d | 0x4d => {
                go(usize::from(if_true), now)?;
                go(usize::from(if_false), now)?;
            }
            0x06 if k & ACTION == ALLOW => {}
            0x16 if now.get().is_some_and(|value| value & ACTION == ALLOW) => {}
            0x06 | 0x16 => return Some(false),
            _ => return None,
        }
    }
    Some(true)
}

/// A word of `struct seccomp_data`.
fn data(call: &SystemCall, offset: u32) -> Option<u32> {
    match offset {
        0 => Some(call.number),
        4 => Some(AUDIT_ARCH),
        16..=60 => {
            let value = (*call.arguments.get((offset as usize - 16) / 8)?)?;
            Some(if offset.is_multiple_of(8) { value as u32 } else { (value >> 32) as u32 })
        }
        _ => None,
    }
}

fn arithmetic(code: u16, value: u32, k: u32) -> Option<u32> {
    Some(match code {
        0x04 => value.wrapping_add(k),
        0x14 => value.wrapping_sub(k),
        0x24 => value.wrapping_mul(k),
        0x34 => value.checked_div(k)?,
        0x44 => value | k,
        0x54 => value & k,
        0x64 => value.checked_shl(k)?,
        0x74 => value.checked_shr(k)?,
        0x84 => value.wrapping_neg(),
        0xa4 => value ^ k,
        _ => return None,
    })
}

#[cfg(test)]
mod tests;
