//! Decodes the records in the ring of a counter, without copying them.
//!
//! The samples of tprof's counters have one of four layouts ([`Layout`]). A sample begins with the
//! id of its counter, which tells the layout.

use perf_event_open_sys::bindings::*;

/// Fields in samples of counted events, in the order of the kernel's documentation. The counter's
/// id comes first.
pub const EVENT_FIELDS: u64 = (PERF_SAMPLE_IDENTIFIER
    | PERF_SAMPLE_IP
    | PERF_SAMPLE_TID
    | PERF_SAMPLE_TIME
    | PERF_SAMPLE_CPU) as u64;
/// Fields in samples with a call chain. Samples for unwinding have [`WITH_STACK`] in addition.
pub const FIELDS: u64 = EVENT_FIELDS | PERF_SAMPLE_CALLCHAIN as u64;
/// The field with the number of events, after [`EVENT_FIELDS`].
pub const WITH_COUNT: u64 = PERF_SAMPLE_PERIOD as u64;
/// The fields with registers and stack, in samples that tprof unwinds.
pub const WITH_STACK: u64 = (PERF_SAMPLE_REGS_USER | PERF_SAMPLE_STACK_USER) as u64;
/// The registers in a sample: that of a function's first argument, and those that unwinding needs
/// (frame pointer, stack pointer and pc).
#[cfg(target_arch = "x86_64")]
pub const REGISTERS: u64 =
    1 << PERF_REG_X86_DI | 1 << PERF_REG_X86_BP | 1 << PERF_REG_X86_SP | 1 << PERF_REG_X86_IP;
/// The same registers on aarch64: x0, x29, stack pointer, pc.
#[cfg(target_arch = "aarch64")]
pub const REGISTERS: u64 = 1 << 0 | 1 << 29 | 1 << 31 | 1 << 32;

/// Bytes at the end of every record that isn't a sample: pid, tid, time, cpu, identifier.
const TRAILER: usize = 32;

/// The registers of user code in a sample.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Registers {
    /// The first argument of the system call, if the thread is in one.
    pub argument: u64,
    /// The frame pointer.
    pub fp: u64,
    /// The stack pointer.
    pub sp: u64,
    /// The program counter.
    pub pc: u64,
}

/// The layout of a counter's samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// The fields of [`FIELDS`].
    Chain,
    /// The fields of [`FIELDS`] and [`WITH_STACK`].
    Stack,
    /// The fields of [`EVENT_FIELDS`], then the number of events.
    Counted,
    /// The fields of [`EVENT_FIELDS`]; each sample stands for this many events.
    Every(u64),
}

/// One decoded record.
#[derive(Debug, PartialEq, Eq)]
pub enum Record<'a> {
    /// A sample of a stack.
    Sample(Sample<'a>),
    /// A number of events since the counter's last such record.
    Events {
        /// Id of the counter.
        id: u64,
        /// Address of the last event.
        address: u64,
        /// Whether the address is in the kernel.
        kernel: bool,
        /// Number of events.
        count: u64,
    },
    /// A process has mapped code.
    Mapped {
        /// Pid of the process.
        pid: u32,
        /// First address of the mapping.
        start: u64,
        /// Length in bytes.
        len: u64,
        /// Offset in the file.
        offset: u64,
        /// The file's inode; 0 if no file is mapped.
        inode: u64,
        /// Path of the file.
        path: &'a [u8],
    },
    /// A thread has a new name, because it was set or because its process runs another program.
    Named {
        /// Pid of the process.
        pid: u32,
        /// Tid of the thread.
        tid: u32,
        /// The new name.
        name: &'a [u8],
        /// Whether the process runs another program now.
        exec: bool,
    },
    /// A thread began, or the main thread of a new process.
    Began {
        /// The process that the new thread belongs to.
        pid: u32,
        /// The process that created the thread.
        parent: u32,
        /// Tid of the new thread.
        tid: u32,
    },
    /// A thread ended.
    Ended {
        /// Pid of the process.
        pid: u32,
        /// Tid of the thread.
        tid: u32,
    },
    /// A thread left its processor, or came back to one.
    Switch {
        /// Whether the thread left its processor.
        out: bool,
        /// Whether the thread was preempted, so that it was still ready.
        preempted: bool,
    },
    /// This many records were lost because the ring was full.
    Lost(u64),
    /// The kernel has stopped sampling for a moment, because there were too many interrupts.
    Throttled,
}

/// A sample of a stack.
#[derive(Debug, PartialEq, Eq)]
pub struct Sample<'a> {
    /// Id of the counter.
    pub id: u64,
    /// The call chain: the kernel's frames, and the user's frames if the kernel unwinds those. It
    /// consists of native-endian words, with markers between kernel and user.
    pub chain: &'a [u8],
    /// Registers of user code; `None` for kernel threads and without [`WITH_STACK`].
    pub registers: Option<Registers>,
    /// The user stack from the stack pointer on; empty without [`WITH_STACK`].
    pub stack: &'a [u8],
}

/// What every record tells about its origin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Origin {
    /// Pid of the process.
    pub pid: u32,
    /// Tid of the thread.
    pub tid: u32,
    /// Time of the record on the counter's clock, ns.
    pub time_ns: u64,
    /// Number of the processor.
    pub cpu: u32,
}

/// A record's words that were not read yet.
struct Words<'a>(&'a [u8]);

impl<'a> Words<'a> {
    fn u64(&mut self) -> Option<u64> {
        let (word, rest) = self.0.split_first_chunk::<8>()?;
        self.0 = rest;
        Some(u64::from_ne_bytes(*word))
    }
    fn pair(&mut self) -> Option<(u32, u32)> {
        let word = self.u64()?.to_ne_bytes();
        let half =
            |at: usize| u32::from_ne_bytes([word[at], word[at + 1], word[at + 2], word[at + 3]]);
        Some((half(0), half(4)))
    }
    fn bytes(&mut self, len: usize) -> Option<&'a [u8]> {
        let (bytes, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(bytes)
    }
}

/// Whether a bit is set in a record's `misc`.
fn has(misc: u16, bit: u32) -> bool {
    u32::from(misc) & bit != 0
}

/// Decodes a record; `None` if tprof doesn't use its kind or if it is malformed. `layout` returns
/// the layout of samples for a counter's id.
pub fn decode(
    kind: u32,
    misc: u16,
    body: &[u8],
    layout: impl Fn(u64) -> Layout,
) -> Option<(Origin, Record<'_>)> {
    if kind == PERF_RECORD_SAMPLE {
        return decode_sample(misc, body, layout);
    }
    let (body, trailer) = body.split_at_checked(body.len().checked_sub(TRAILER)?)?;
    let mut end = Words(trailer);
    let ((pid, tid), time_ns, (cpu, _)) = (end.pair()?, end.u64()?, end.pair()?);
    let origin = Origin { pid, tid, time_ns, cpu };
    let mut words = Words(body);
    let record = match kind {
        PERF_RECORD_LOST => {
            words.u64()?;
            Record::Lost(words.u64()?)
        }
        PERF_RECORD_LOST_SAMPLES => Record::Lost(words.u64()?),
        PERF_RECORD_COMM => {
            let (pid, tid) = words.pair()?;
            Record::Named {
                pid,
                tid,
                name: text(words.0),
                exec: has(misc, PERF_RECORD_MISC_COMM_EXEC),
            }
        }
        PERF_RECORD_EXIT => {
            let ((pid, _), (tid, _)) = (words.pair()?, words.pair()?);
            Record::Ended { pid, tid }
        }
        PERF_RECORD_THROTTLE => Record::Throttled,
        PERF_RECORD_FORK => {
            let ((pid, parent), (tid, _)) = (words.pair()?, words.pair()?);
            Record::Began { pid, parent, tid }
        }
        PERF_RECORD_MMAP2 => {
            let (pid, _) = words.pair()?;
            let (start, len, offset) = (words.u64()?, words.u64()?, words.u64()?);
            words.u64()?; // device
            let inode = words.u64()?;
            words.u64()?; // generation of the inode
            words.u64()?; // protection, flags
            Record::Mapped { pid, start, len, offset, inode, path: text(words.0) }
        }
        PERF_RECORD_SWITCH | PERF_RECORD_SWITCH_CPU_WIDE => Record::Switch {
            out: has(misc, PERF_RECORD_MISC_SWITCH_OUT),
            preempted: has(misc, PERF_RECORD_MISC_SWITCH_OUT_PREEMPT),
        },
        _ => return None,
    };
    Some((origin, record))
}

fn decode_sample(
    misc: u16,
    body: &[u8],
    layout: impl Fn(u64) -> Layout,
) -> Option<(Origin, Record<'_>)> {
    let mut words = Words(body);
    let id = words.u64()?;
    // `FIELDS` begins with `EVENT_FIELDS`, so all layouts have these fields.
    let address = words.u64()?;
    let (pid, tid) = words.pair()?;
    let time_ns = words.u64()?;
    let (cpu, _) = words.pair()?;
    let origin = Origin { pid, tid, time_ns, cpu };
    let layout = layout(id);
    let count = match layout {
        Layout::Counted => Some(words.u64()?),
        Layout::Every(events) => Some(events),
        Layout::Chain | Layout::Stack => None,
    };
    if let Some(count) = count {
        let mode = u32::from(misc) & PERF_RECORD_MISC_CPUMODE_MASK;
        let kernel = mode == PERF_RECORD_MISC_KERNEL;
        return Some((origin, Record::Events { id, address, kernel, count }));
    }
    let frames = usize::try_from(words.u64()?).ok()?;
    let chain = words.bytes(frames.checked_mul(8)?)?;
    let (mut registers, mut stack) = (None, &[][..]);
    if layout == Layout::Stack {
        let abi = words.u64()?;
        if abi != 0 {
            let (argument, fp) = (words.u64()?, words.u64()?);
            let (sp, pc) = (words.u64()?, words.u64()?);
            registers = (abi == u64::from(PERF_SAMPLE_REGS_ABI_64)).then_some(Registers {
                argument,
                fp,
                sp,
                pc,
            });
        }
        let len = usize::try_from(words.u64()?).ok()?;
        let dump = words.bytes(len)?;
        if len > 0 {
            let used = usize::try_from(words.u64()?).ok()?;
            stack = dump.get(..used)?;
        }
    }
    let sample = Sample { id, chain, registers, stack };
    Some((origin, Record::Sample(sample)))
}

fn text(bytes: &[u8]) -> &[u8] {
    bytes.split(|b| *b == 0).next().unwrap_or_default()
}

/// Calls `take` for each address of a call chain, with whether it is in the kernel. Kernel frames
/// come first.
pub fn chain(bytes: &[u8], mut take: impl FnMut(bool, u64)) {
    let mut words = Words(bytes);
    let mut kernel = false;
    while let Some(word) = words.u64() {
        match word {
            PERF_CONTEXT_KERNEL => kernel = true,
            PERF_CONTEXT_USER => kernel = false,
            marker if marker >= PERF_CONTEXT_MAX => return, // a guest's context
            address => take(kernel, address),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(words: &[u64]) -> Vec<u8> {
        words.iter().flat_map(|w| w.to_ne_bytes()).collect()
    }

    #[test]
    fn a_sample_has_chain_registers_and_the_used_part_of_the_stack() {
        let pair = |low: u64, high: u64| low | high << 32;
        let mut body = words(&[7, 0x1234, pair(10, 11), 99, pair(3, 0)]);
        body.extend(words(&[3, -128i64 as u64, 0xffff_ffff_8100_0000, -512i64 as u64]));
        body.extend(words(&[2, 0x50, 0x100, 0x200, 0x300]));
        body.extend(words(&[24, 1, 2, 3, 16]));
        let (origin, record) = decode(9, 0, &body, |_| Layout::Stack).unwrap();
        assert_eq!(origin, Origin { pid: 10, tid: 11, time_ns: 99, cpu: 3 });
        let Record::Sample(sample) = record else { panic!() };
        assert_eq!(sample.id, 7);
        let registers = Registers { argument: 0x50, fp: 0x100, sp: 0x200, pc: 0x300 };
        assert_eq!(sample.registers, Some(registers));
        assert_eq!(sample.stack, words(&[1, 2]));
        let mut seen = Vec::new();
        chain(sample.chain, |kernel, address| seen.push((kernel, address)));
        assert_eq!(seen, [(true, 0xffff_ffff_8100_0000)]);
    }

    #[test]
    fn the_layout_of_a_sample_depends_on_its_counter() {
        let pair = |low: u64, high: u64| low | high << 32;
        let body = words(&[7, 0x1234, pair(10, 11), 99, pair(3, 0), 5000]);
        let layout = |id| if id == 7 { Layout::Counted } else { Layout::Chain };
        for (misc, kernel) in [(1, true), (2, false)] {
            let (origin, record) = decode(9, misc, &body, layout).unwrap();
            assert_eq!(origin, Origin { pid: 10, tid: 11, time_ns: 99, cpu: 3 });
            assert_eq!(record, Record::Events { id: 7, address: 0x1234, kernel, count: 5000 });
        }
        assert_eq!(decode(9, 2, &body[..40], layout), None);
        let (_, record) = decode(9, 2, &body[..40], |_| Layout::Every(16)).unwrap();
        let (id, address) = (7, 0x1234);
        assert_eq!(record, Record::Events { id, address, kernel: false, count: 16 });
    }

    #[test]
    fn cut_records_are_rejected() {
        let body = words(&[7, 0x1234, 0, 99, 0, 1 << 60]);
        assert_eq!(decode(9, 0, &body, |_| Layout::Stack), None);
        for len in 0..body.len() {
            assert_eq!(decode(9, 0, &body[..len], |_| Layout::Stack), None, "{len}");
            for kind in [2, 3, 4, 7, 8, 10, 13] {
                decode(kind, 0, &body[..len], |_| Layout::Chain);
            }
        }
    }
}
