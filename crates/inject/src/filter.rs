//! Predicts what a seccomp filter will return for a system call, by interpreting the filter.
//!
//! A filter is a loop-free program over a call's number and arguments. If an argument isn't known
//! beforehand, the interpreter follows both branches. So the answer "permitted" holds for every
//! value of the argument.

use crate::sys;

/// One instruction, as the kernel reads it (`struct sock_filter`).
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Instruction {
    code: u16,
    if_true: u8,
    if_false: u8,
    k: u32,
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

/// A seccomp filter that the program is about to install.
pub struct Filter {
    at: *const Instruction,
    len: usize,
}

impl Filter {
    /// The filter of the `struct sock_fprog` at `program`; `None` if the kernel could not read it
    /// either.
    pub fn at(program: usize) -> Option<Filter> {
        if !sys::is_readable(program) || !sys::is_readable(program.wrapping_add(8)) {
            return None;
        }
        // SAFETY: both words were found readable; the unaligned reads need no alignment.
        let (len, at) = unsafe {
            (
                (program as *const u16).read_unaligned(),
                ((program + 8) as *const usize).read_unaligned(),
            )
        };
        let (len, bytes) = (usize::from(len), usize::from(len) * size_of::<Instruction>());
        if len == 0 || len > MOST {
            return None;
        }
        let last = at.checked_add(bytes - size_of::<Instruction>())?;
        let mut page = at;
        while page < last {
            if !sys::is_readable(page) {
                return None;
            }
            page = (page & !4095) + 4096;
        }
        sys::is_readable(last).then_some(Filter { at: at as *const Instruction, len })
    }

    fn instruction(&self, index: usize) -> Option<Instruction> {
        // SAFETY: `at` has checked that `len` instructions are readable; the read needs no
        // alignment.
        (index < self.len).then(|| unsafe { self.at.add(index).read_unaligned() })
    }

    /// Whether the filter permits all of these calls for every value of their unknown arguments.
    pub fn permits(&self, calls: &[SystemCall]) -> bool {
        let bytes = MOST * size_of::<Known>();
        let Some(room) = sys::map_anonymous(bytes) else { return false };
        // SAFETY: the memory was just mapped with room for `MOST` values, and is used only here. It
        // is zeroed, which is a valid value of every field.
        let reached = unsafe { core::slice::from_raw_parts_mut(room.cast::<Known>(), MOST) };
        let permitted = calls.iter().all(|call| self.permits_one(call, reached) == Some(true));
        // SAFETY: `reached` is not used after this.
        unsafe { sys::unmap(room, bytes) };
        permitted
    }

    /// Whether the filter permits the call; `None` if the filter has an instruction that this
    /// interpreter doesn't know.
    fn permits_one(&self, call: &SystemCall, reached: &mut [Known]) -> Option<bool> {
        const ALLOW: u32 = 0x7fff_0000;
        const ACTION: u32 = 0xffff_0000;
        reached.fill(Known::NEVER);
        *reached.first_mut()? = Known::value(0);
        for index in 0..self.len {
            let now = *reached.get(index)?;
            if now == Known::NEVER {
                continue;
            }
            let Instruction { code, if_true, if_false, k } = self.instruction(index)?;
            let mut go = |by: usize, with: Known| -> Option<()> {
                // The kernel accepts no jump past the end.
                let next = index.checked_add(1 + by).filter(|next| *next < self.len)?;
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
mod tests {
    use super::*;

    const ALLOW: u32 = 0x7fff_0000;
    const KILL: u32 = 0x8000_0000;

    fn op(code: u16, if_true: u8, if_false: u8, k: u32) -> Instruction {
        Instruction { code, if_true, if_false, k }
    }

    fn permits(program: &[Instruction], call: SystemCall) -> bool {
        Filter { at: program.as_ptr(), len: program.len() }.permits(&[call])
    }

    fn call(number: u32, first: Option<u64>) -> SystemCall {
        SystemCall { number, arguments: [first, None, None, None, None, None] }
    }

    #[test]
    fn a_filter_that_lists_permitted_calls_is_interpreted() {
        let program = [
            op(0x20, 0, 0, 4),
            op(0x15, 1, 0, AUDIT_ARCH),
            op(0x06, 0, 0, KILL),
            op(0x20, 0, 0, 0),
            op(0x35, 0, 1, 0x4000_0000), // x32
            op(0x06, 0, 0, KILL),
            op(0x15, 1, 0, 39),
            op(0x06, 0, 0, KILL),
            op(0x06, 0, 0, ALLOW),
        ];
        assert!(permits(&program, call(39, None)));
        assert!(!permits(&program, call(40, None)));
        assert!(!permits(&program, call(0x4000_0000 + 39, None)));
    }

    #[test]
    fn a_known_argument_decides_and_an_unknown_one_must_pass_on_both_branches() {
        let program = [
            op(0x20, 0, 0, 16), // the first argument's low word
            op(0x54, 0, 0, 0xff),
            op(0x15, 0, 3, 7),
            op(0x20, 0, 0, 20), // and its high one
            op(0x15, 0, 1, 0),
            op(0x06, 0, 0, ALLOW),
            op(0x06, 0, 0, 0x0005_0001), // an error
        ];
        assert!(permits(&program, call(1, Some(0x107))));
        assert!(!permits(&program, call(1, Some(8))));
        assert!(!permits(&program, call(1, Some(1 << 32 | 7))));
        assert!(!permits(&program, call(1, None)));
        // If both branches permit the call, the argument need not be known.
        let either =
            [op(0x20, 0, 0, 16), op(0x45, 1, 0, 6), op(0x06, 0, 0, ALLOW), op(0x06, 0, 0, ALLOW)];
        assert!(permits(&either, call(1, None)));
    }

    #[test]
    fn branches_that_meet_keep_only_what_holds_on_both() {
        // The accumulator is set to one of two actions, depending on an unknown argument, and is
        // then returned.
        let program = |one: u32, other: u32| {
            [
                op(0x20, 0, 0, 16),
                op(0x15, 0, 2, 5),
                op(0x00, 0, 0, one),
                op(0x05, 0, 0, 1),
                op(0x00, 0, 0, other),
                op(0x16, 0, 0, 0),
            ]
        };
        assert!(permits(&program(ALLOW, ALLOW), call(1, None)));
        assert!(!permits(&program(ALLOW, KILL), call(1, None)));
        assert!(permits(&program(ALLOW, KILL), call(1, Some(5))));
    }

    #[test]
    fn filters_that_cannot_be_interpreted_permit_nothing() {
        assert!(!permits(&[op(0x20, 0, 0, 0)], call(1, None)), "no return");
        assert!(
            !permits(&[op(0x05, 0, 0, 9), op(0x06, 0, 0, ALLOW)], call(1, None)),
            "jump past the end"
        );
        assert!(!permits(&[op(0x05, 0, 0, u32::MAX), op(0x06, 0, 0, ALLOW)], call(1, None)));
        assert!(
            !permits(&[op(0xff, 0, 0, 0), op(0x06, 0, 0, ALLOW)], call(1, None)),
            "unknown opcode"
        );
        let by_x =
            [op(0x01, 0, 0, 1), op(0x1d, 0, 1, 0), op(0x06, 0, 0, ALLOW), op(0x06, 0, 0, KILL)];
        assert!(!permits(&by_x, call(1, None)), "jump that compares with X");
        assert!(!permits(&[op(0x06, 0, 0, 0x7ffc_0000)], call(1, None)), "SECCOMP_RET_LOG");
    }

    #[test]
    fn a_filter_that_cannot_be_read_is_none() {
        assert!(Filter::at(0).is_none());
        assert!(Filter::at(8).is_none());
        let empty = [0usize, 4096];
        assert!(Filter::at(empty.as_ptr() as usize).is_none(), "empty program");
        let nowhere = [3usize, 8];
        assert!(Filter::at(nowhere.as_ptr() as usize).is_none());
        let one = [op(0x06, 0, 0, ALLOW)];
        let whole = [1usize, one.as_ptr() as usize];
        let filter = Filter::at(whole.as_ptr() as usize).expect("a readable program");
        assert!(filter.permits(&[call(1, None)]));
    }
}
