//! The socket calls that the handshake with the collector needs.

use super::{close, is_error};
use crate::arch::{number as n, syscall};

/// Number of descriptors that a `Welcome` message brings.
pub const FDS: usize = 3;

/// Connects a SOCK_SEQPACKET socket. Returns its descriptor, or the (negative) error.
pub fn connect(path: &[u8], timeout_ns: u64) -> Result<i32, isize> {
    const AF_UNIX: u16 = 1;
    const SEQPACKET_CLOEXEC: usize = 5 | 0o2000000;
    let mut address = [0u8; 110];
    address[..2].copy_from_slice(&AF_UNIX.to_ne_bytes());
    if path.len() + 3 > address.len() {
        return Err(-36);
    }
    address[2..2 + path.len()].copy_from_slice(path);
    let fd = call!(n::SOCKET, AF_UNIX, SEQPACKET_CLOEXEC, 0);
    if is_error(fd) {
        return Err(fd);
    }
    let time = [timeout_ns / 1_000_000_000, timeout_ns % 1_000_000_000 / 1000];
    for option in [20usize, 21] {
        // SO_RCVTIMEO and SO_SNDTIMEO of SOL_SOCKET
        call!(n::SETSOCKOPT, fd, 1, option, time.as_ptr(), 16);
    }
    let connected = call!(n::CONNECT, fd, address.as_ptr(), 3 + path.len());
    if connected < 0 {
        close(fd as i32);
        return Err(connected);
    }
    Ok(fd as i32)
}

/// Process id of the listener at the other end; 0 if it isn't in this pid namespace.
pub fn peer(fd: i32) -> u32 {
    const SOL_SOCKET: usize = 1;
    const SO_PEERCRED: usize = 17;
    let mut credentials = [0u32; 3];
    let mut len = size_of_val(&credentials) as u32;
    call!(n::GETSOCKOPT, fd, SOL_SOCKET, SO_PEERCRED, credentials.as_mut_ptr(), &raw mut len);
    credentials[0]
}

/// Sends one message that consists of these parts. Returns whether the whole message was sent.
pub fn send<const PARTS: usize>(fd: i32, message: [&[u8]; PARTS]) -> bool {
    const MSG_NOSIGNAL: usize = 0x4000;
    let parts = message.map(|part| [part.as_ptr() as usize, part.len()]);
    // struct msghdr, see `receive`
    let header = [0, 0, parts.as_ptr() as usize, PARTS, 0, 0, 0];
    let whole: usize = parts.iter().map(|[_, len]| len).sum();
    call!(n::SENDMSG, fd, header.as_ptr(), MSG_NOSIGNAL) == whole as isize
}

/// The reason why no message was received.
pub enum NoMessage {
    /// The other side closed the connection.
    Closed,
    /// No message arrived in time.
    Late,
    /// Something other than a message of the expected form arrived.
    Other,
}

/// Receives one message of exactly `message.len()` bytes, with [`FDS`] descriptors.
pub fn receive(fd: i32, message: &mut [u8]) -> Result<[i32; FDS], NoMessage> {
    const ECONNRESET: isize = -104;
    const EAGAIN: isize = -11;
    const MSG_CMSG_CLOEXEC: usize = 0x4000_0000;
    #[repr(C)]
    struct Control {
        len: usize,
        level: i32,
        kind: i32,
        fds: [i32; 4],
    }
    let mut control = Control { len: 0, level: 0, kind: 0, fds: [-1; 4] };
    let part = [message.as_mut_ptr() as usize, message.len()];
    // struct msghdr: name, namelen, iov, iovlen, control, controllen, flags
    let mut header = [0usize; 7];
    header[2] = part.as_ptr() as usize;
    header[3] = 1;
    header[4] = &raw mut control as usize;
    header[5] = size_of::<Control>();
    let got = call!(n::RECVMSG, fd, header.as_mut_ptr(), MSG_CMSG_CLOEXEC);
    let fds = [control.fds[0], control.fds[1], control.fds[2]];
    let whole = got == message.len() as isize && control.len == 16 + 4 * FDS && control.kind == 1;
    if !whole {
        for fd in fds {
            if fd >= 0 {
                close(fd);
            }
        }
        return Err(match got {
            0 | ECONNRESET => NoMessage::Closed,
            EAGAIN => NoMessage::Late,
            _ => NoMessage::Other,
        });
    }
    Ok(fds)
}
