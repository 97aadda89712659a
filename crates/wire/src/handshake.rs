//! The messages that a process and the collector exchange over the Unix socket `SESSION/sock`.
//!
//! A target sends one [`Hello`] with the [arguments and environment](ExecArguments) of its image.
//! It receives one [`Welcome`] with three file descriptors (SCM_RIGHTS): of the session page, of
//! its region, and of the unwind tables. The target maps all three and closes the descriptors.
//! Control clients send a [`Hello`] with [`Role::Control`], and then exchange JSON lines.

use crate::version::WIRE_VERSION;

/// First word of a [`Hello`] and a [`Welcome`].
pub const HELLO_MAGIC: u64 = 0x3168_6d73_666f_7270; // "profsmh1"

/// The kinds of processes that send a [`Hello`].
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// A process that loaded an injected library.
    Target = 1,
    /// `tprof ctl`: JSON lines follow.
    Control = 2,
}

/// Bits of [`Hello::flags`].
pub mod hello_flags {
    /// The image is a forked child of a process that was already attached.
    pub const FORKED: u32 = 1;
    /// The executable (or a library that is loaded earlier) has its own `malloc`, so the hooks
    /// can't record allocations.
    pub const OWN_MALLOC: u32 = 2;
    /// The library found no `malloc` after itself in the search order.
    pub const NO_REAL_MALLOC: u32 = 4;
    /// The sender is the CUPTI agent. If the process also has the hooks, it has attached before,
    /// and the agent's region is an additional one.
    pub const AGENT: u32 = 8;
    /// The process has sent a hello before, but the answer did not arrive in time.
    pub const LATE: u32 = 16;
    /// An [`ExecArguments`](super::ExecArguments) follows in the same message.
    pub const BEGAN_WITH: u32 = 32;
    /// A library of the process that isn't libc defines functions with names of calls on files. Their
    /// calls aren't recorded, since they may have other arguments.
    pub const OTHER_FILE_CALLS: u32 = 64;
}

/// The first message from a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hello {
    /// The constant [`HELLO_MAGIC`].
    pub magic: u64,
    /// The sender's [`crate::WIRE_VERSION`].
    pub version: u32,
    /// The sender's [`Role`].
    pub role: u32,
    /// The sender's pid in its own namespace.
    pub pid: u32,
    /// The parent's pid in the sender's namespace.
    pub parent: u32,
    /// Bits of [`hello_flags`].
    pub flags: u32,
    /// Id of the thread that attaches.
    pub tid: u32,
    /// The sender's clock (TSC ticks, or CLOCK_MONOTONIC nanoseconds).
    pub clock: u64,
    /// Address of a string at the top of the main thread's stack, from which the collector knows
    /// the stack's end.
    pub stack_top: u64,
}

impl Hello {
    /// Length of the message in bytes.
    pub const BYTES: usize = 48;

    /// Makes the first message of a control client; a target fills in the other fields.
    pub const fn new(role: Role, pid: u32) -> Hello {
        Hello {
            magic: HELLO_MAGIC,
            version: WIRE_VERSION,
            role: role as u32,
            pid,
            parent: 0,
            flags: 0,
            tid: 0,
            clock: 0,
            stack_top: 0,
        }
    }

    /// Whether the sender has this version of tprof. If not, only `magic` and `version` may be
    /// read.
    pub const fn is_of_this_version(&self) -> bool {
        self.magic == HELLO_MAGIC && self.version == WIRE_VERSION
    }

    /// Whether the sender belongs to another version of tprof. Then only `magic` and `version` may
    /// be read.
    pub const fn is_of_another_version(&self) -> bool {
        self.magic == HELLO_MAGIC && self.version != WIRE_VERSION
    }

    /// Encodes the message.
    pub fn to_bytes(&self) -> [u8; Hello::BYTES] {
        let mut message = Message { bytes: [0; Hello::BYTES], len: 0 };
        message.push(self.magic.to_ne_bytes());
        for word in [self.version, self.role, self.pid, self.parent, self.flags, self.tid] {
            message.push(word.to_ne_bytes());
        }
        message.push(self.clock.to_ne_bytes());
        message.push(self.stack_top.to_ne_bytes());
        message.bytes
    }

    /// Decodes a message; `None` if the length differs.
    pub fn from_bytes(bytes: &[u8]) -> Option<Hello> {
        let bytes: &[u8; Hello::BYTES] = bytes.try_into().ok()?;
        Some(Hello {
            magic: u64::from_ne_bytes(part(bytes, 0)?),
            version: u32::from_ne_bytes(part(bytes, 8)?),
            role: u32::from_ne_bytes(part(bytes, 12)?),
            pid: u32::from_ne_bytes(part(bytes, 16)?),
            parent: u32::from_ne_bytes(part(bytes, 20)?),
            flags: u32::from_ne_bytes(part(bytes, 24)?),
            tid: u32::from_ne_bytes(part(bytes, 28)?),
            clock: u64::from_ne_bytes(part(bytes, 32)?),
            stack_top: u64::from_ne_bytes(part(bytes, 40)?),
        })
    }
}

/// The arguments and environment of an image, as the kernel passed them. They follow a [`Hello`]
/// with [`hello_flags::BEGAN_WITH`] in the same message. Otherwise the process would have to wait
/// while the collector reads them from /proc.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExecArguments<'m> {
    /// The arguments, each with its NUL, as in /proc/PID/cmdline.
    pub arguments: &'m [u8],
    /// The variables, each with its NUL, as in /proc/PID/environ.
    pub environment: &'m [u8],
}

impl<'m> ExecArguments<'m> {
    /// Maximum bytes of arguments and environment that are sent.
    pub const MAX_BYTES: usize = 64 << 10;
    /// Length of the longest message in bytes.
    pub const MESSAGE: usize = Hello::BYTES + 4 + ExecArguments::MAX_BYTES;

    /// Returns the bytes that precede `arguments` and `environment` in the message: the length of
    /// `arguments`.
    pub fn head(&self) -> [u8; 4] {
        (self.arguments.len() as u32).to_ne_bytes()
    }

    /// Decodes the bytes that follow a hello; `None` if they are inconsistent.
    pub fn from_bytes(bytes: &'m [u8]) -> Option<ExecArguments<'m>> {
        let (head, rest) = bytes.split_first_chunk()?;
        let (arguments, environment) = rest.split_at_checked(u32::from_ne_bytes(*head) as usize)?;
        Some(ExecArguments { arguments, environment })
    }
}

/// The collector's answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Welcome {
    /// The constant [`HELLO_MAGIC`].
    pub magic: u64,
    /// The collector's [`crate::WIRE_VERSION`].
    pub version: u32,
    /// 1 if recording may begin, 0 if the target must not record.
    pub accepted: u32,
}

impl Welcome {
    /// Length of the message in bytes.
    pub const BYTES: usize = 16;

    /// Makes the answer of a collector of this version.
    pub const fn new(accepted: bool) -> Welcome {
        Welcome { magic: HELLO_MAGIC, version: WIRE_VERSION, accepted: accepted as u32 }
    }

    /// Whether recording may begin: a collector of this version has accepted the target.
    pub const fn admits(&self) -> bool {
        self.magic == HELLO_MAGIC && self.version == WIRE_VERSION && self.accepted == 1
    }

    /// Encodes the message.
    pub fn to_bytes(&self) -> [u8; Welcome::BYTES] {
        let mut message = Message { bytes: [0; Welcome::BYTES], len: 0 };
        message.push(self.magic.to_ne_bytes());
        message.push(self.version.to_ne_bytes());
        message.push(self.accepted.to_ne_bytes());
        message.bytes
    }

    /// Decodes a message; `None` if the length differs.
    pub fn from_bytes(bytes: &[u8]) -> Option<Welcome> {
        let bytes: &[u8; Welcome::BYTES] = bytes.try_into().ok()?;
        Some(Welcome {
            magic: u64::from_ne_bytes(part(bytes, 0)?),
            version: u32::from_ne_bytes(part(bytes, 8)?),
            accepted: u32::from_ne_bytes(part(bytes, 12)?),
        })
    }
}

/// A message that is being encoded.
struct Message<const BYTES: usize> {
    bytes: [u8; BYTES],
    len: usize,
}

impl<const BYTES: usize> Message<BYTES> {
    /// Appends a field. The fields together fill the message exactly; the tests check this.
    #[inline(always)]
    fn push<const N: usize>(&mut self, field: [u8; N]) {
        for (to, from) in self.bytes.iter_mut().skip(self.len).zip(field) {
            *to = from;
        }
        self.len += N;
    }
}

/// The bytes of one field; `None` if the message is too short.
#[inline(always)]
fn part<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at + N)?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hello() -> Hello {
        Hello {
            parent: 0x5152_5354,
            flags: hello_flags::FORKED | hello_flags::LATE,
            tid: 0x6162_6364,
            clock: 0x7172_7374_7576_7778,
            stack_top: 0x8182_8384_8586_8788,
            ..Hello::new(Role::Target, 0x4142_4344)
        }
    }

    #[test]
    fn messages_round_trip() {
        assert_eq!(Hello::from_bytes(&hello().to_bytes()), Some(hello()));
        for accepted in [false, true] {
            let welcome = Welcome::new(accepted);
            assert_eq!(Welcome::from_bytes(&welcome.to_bytes()), Some(welcome));
            assert_eq!(welcome.admits(), accepted);
        }
    }

    #[test]
    fn exec_arguments_round_trip_and_cut_ones_are_refused() {
        let began = ExecArguments { arguments: b"job\0-x\0", environment: b"A=1\0" };
        let mut bytes = began.head().to_vec();
        bytes.extend_from_slice(began.arguments);
        bytes.extend_from_slice(began.environment);
        assert_eq!(ExecArguments::from_bytes(&bytes), Some(began));
        // A message that is cut within the environment decodes with a shorter environment. One that
        // is cut earlier is refused.
        assert_eq!(ExecArguments::from_bytes(&bytes[..13]).unwrap().environment, b"A=");
        for length in 0..4 + began.arguments.len() {
            assert_eq!(ExecArguments::from_bytes(&bytes[..length]), None, "{length}");
        }
    }

    /// If a field moves, the wire's version must change.
    #[test]
    fn field_offsets_are_those_of_wire_version_29() {
        assert_eq!(WIRE_VERSION, 29);
        let bytes = hello().to_bytes();
        assert_eq!(bytes[..8], HELLO_MAGIC.to_ne_bytes());
        assert_eq!(bytes[8..12], 29u32.to_ne_bytes());
        assert_eq!(bytes[12..16], 1u32.to_ne_bytes());
        assert_eq!(bytes[16..20], 0x4142_4344u32.to_ne_bytes());
        assert_eq!(bytes[20..24], 0x5152_5354u32.to_ne_bytes());
        assert_eq!(bytes[24..28], 17u32.to_ne_bytes());
        assert_eq!(bytes[28..32], 0x6162_6364u32.to_ne_bytes());
        assert_eq!(bytes[32..40], 0x7172_7374_7576_7778u64.to_ne_bytes());
        assert_eq!(bytes[40..], 0x8182_8384_8586_8788u64.to_ne_bytes());
        let bytes = Welcome::new(true).to_bytes();
        assert_eq!(bytes[..8], HELLO_MAGIC.to_ne_bytes());
        assert_eq!((&bytes[8..12], &bytes[12..]), (&[29, 0, 0, 0][..], &[1, 0, 0, 0][..]));
    }

    /// Any process of the user can send the collector any bytes.
    #[test]
    fn any_bytes_of_the_right_length_round_trip() {
        let mut word = 7u64;
        for _ in 0..1_000 {
            let bytes = [(); Hello::BYTES].map(|()| {
                word = word.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
                (word >> 56) as u8
            });
            assert_eq!(Hello::from_bytes(&bytes).unwrap().to_bytes(), bytes);
            let bytes: [u8; Welcome::BYTES] = bytes[..Welcome::BYTES].try_into().unwrap();
            assert_eq!(Welcome::from_bytes(&bytes).unwrap().to_bytes(), bytes);
        }
    }

    #[test]
    fn messages_of_another_length_are_refused() {
        let (hello, welcome) = (hello().to_bytes(), Welcome::new(true).to_bytes());
        let longer = [[0; Hello::BYTES]; 2];
        for length in 0..2 * Hello::BYTES {
            let bytes = &longer.as_flattened()[..length];
            assert_eq!(Hello::from_bytes(bytes).is_some(), length == Hello::BYTES);
            assert_eq!(Welcome::from_bytes(bytes).is_some(), length == Welcome::BYTES);
        }
        assert_eq!(Hello::from_bytes(&hello[1..]), None);
        assert_eq!(Welcome::from_bytes(&welcome[..15]), None);
    }

    #[test]
    fn messages_of_another_magic_or_version_are_not_accepted() {
        let older = Hello { version: WIRE_VERSION - 1, ..hello() };
        assert!(hello().is_of_this_version() && !older.is_of_this_version());
        let mut bytes = Welcome::new(true).to_bytes();
        bytes[0] ^= 1;
        assert!(!Welcome::from_bytes(&bytes).unwrap().admits());
        // Only `accepted` = 1 admits.
        let odd = Welcome { accepted: 0x101, ..Welcome::new(true) };
        assert!(!odd.admits());
    }
}
