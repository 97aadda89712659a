//! Unix sockets of whole messages (SOCK_SEQPACKET) that carry descriptors, and who is
//! at their other end.
#![allow(unsafe_code)] // system calls that the standard library lacks

use super::sys::{check, own};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

fn unix_address(path: &Path) -> io::Result<(libc::sockaddr_un, libc::socklen_t)> {
    let bytes = path.as_os_str().as_bytes();
    // SAFETY: all-zero is a valid sockaddr_un.
    let mut address: libc::sockaddr_un = unsafe { std::mem::zeroed() };
    if bytes.len() >= address.sun_path.len() || bytes.contains(&0) {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "socket path too long"));
    }
    address.sun_family = libc::AF_UNIX as libc::sa_family_t;
    for (to, from) in address.sun_path.iter_mut().zip(bytes) {
        *to = *from as libc::c_char;
    }
    Ok((address, (2 + bytes.len() + 1) as libc::socklen_t))
}

const SEQPACKET: libc::c_int = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC;

/// A listening SOCK_SEQPACKET socket at `path`, which must not exist.
pub fn listen(path: &Path) -> io::Result<OwnedFd> {
    let (address, len) = unix_address(path)?;
    // SAFETY: plain call.
    let fd = own(unsafe { libc::socket(libc::AF_UNIX, SEQPACKET | libc::SOCK_NONBLOCK, 0) })?;
    // SAFETY: `address` is valid for `len` bytes.
    check(unsafe { libc::bind(fd.as_raw_fd(), (&raw const address).cast(), len) })?;
    // The directory is closed to others already; say it of the socket too.
    std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o600))?;
    // SAFETY: a descriptor of ours.
    check(unsafe { libc::listen(fd.as_raw_fd(), 4096) })?;
    Ok(fd)
}

/// A connected SOCK_SEQPACKET socket.
pub fn connect(path: &Path) -> io::Result<OwnedFd> {
    let (address, len) = unix_address(path)?;
    // SAFETY: plain call.
    let fd = own(unsafe { libc::socket(libc::AF_UNIX, SEQPACKET, 0) })?;
    // SAFETY: `address` is valid for `len` bytes.
    check(unsafe { libc::connect(fd.as_raw_fd(), (&raw const address).cast(), len) })?;
    set_timeout(&fd, Duration::from_secs(5))?;
    Ok(fd)
}

/// Accepts one connection; `None` if none waits.
pub fn accept(listener: &OwnedFd) -> io::Result<Option<OwnedFd>> {
    // SAFETY: no address is asked for.
    let fd = unsafe {
        libc::accept4(
            listener.as_raw_fd(),
            std::ptr::null_mut(),
            std::ptr::null_mut(),
            libc::SOCK_CLOEXEC,
        )
    };
    match own(fd) {
        Ok(fd) => Ok(Some(fd)),
        Err(e) if e.kind() == io::ErrorKind::WouldBlock => Ok(None),
        Err(e) => Err(e),
    }
}

/// Bounds how long a socket's reads and writes may take.
pub fn set_timeout(fd: &OwnedFd, time: Duration) -> io::Result<()> {
    let value = libc::timeval {
        tv_sec: time.as_secs() as libc::time_t,
        tv_usec: time.subsec_micros().into(),
    };
    for option in [libc::SO_RCVTIMEO, libc::SO_SNDTIMEO] {
        // SAFETY: `value` is valid for its size.
        check(unsafe {
            libc::setsockopt(
                fd.as_raw_fd(),
                libc::SOL_SOCKET,
                option,
                (&raw const value).cast(),
                size_of_val(&value) as libc::socklen_t,
            )
        })?;
    }
    Ok(())
}

/// Who is at the other end: pid as this namespace sees it (0: it does not), user id.
pub fn peer(fd: &OwnedFd) -> io::Result<(u32, u32)> {
    let mut who = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut len = size_of_val(&who) as libc::socklen_t;
    // SAFETY: `who` is valid for `len` bytes.
    check(unsafe {
        libc::getsockopt(
            fd.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut who).cast(),
            &raw mut len,
        )
    })?;
    Ok((who.pid.max(0) as u32, who.uid))
}

/// This process's effective user id.
pub fn user() -> u32 {
    // SAFETY: never fails.
    unsafe { libc::geteuid() }
}

/// Receives one message; its length (0: the peer is gone).
pub fn receive(fd: &OwnedFd, buffer: &mut [u8]) -> io::Result<usize> {
    // SAFETY: `buffer` is valid for its length.
    let got = unsafe { libc::recv(fd.as_raw_fd(), buffer.as_mut_ptr().cast(), buffer.len(), 0) };
    if got < 0 { Err(io::Error::last_os_error()) } else { Ok(got as usize) }
}

/// Whether the other end was closed.
pub fn is_hung_up(fd: &OwnedFd) -> bool {
    let mut asked = libc::pollfd { fd: fd.as_raw_fd(), events: 0, revents: 0 };
    // SAFETY: one valid pollfd; returns at once.
    let said = unsafe { libc::poll(&raw mut asked, 1, 0) };
    said == 1 && asked.revents & libc::POLLHUP != 0
}

/// Sends one message with descriptors.
pub fn send(fd: &OwnedFd, bytes: &[u8], descriptors: &[RawFd]) -> io::Result<()> {
    let mut part = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    let mut control = [0u64; 8];
    // SAFETY: all-zero is a valid msghdr.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    if !descriptors.is_empty() {
        let payload = size_of_val(descriptors) as u32;
        // SAFETY: CMSG_SPACE and friends compute sizes; `control` is aligned and
        // large enough for the few descriptors sent here.
        unsafe {
            message.msg_control = control.as_mut_ptr().cast();
            message.msg_controllen = libc::CMSG_SPACE(payload) as usize;
            assert!(
                message.msg_controllen <= size_of_val(&control),
                "more descriptors than foreseen"
            );
            let head = libc::CMSG_FIRSTHDR(&raw const message);
            (*head).cmsg_level = libc::SOL_SOCKET;
            (*head).cmsg_type = libc::SCM_RIGHTS;
            (*head).cmsg_len = libc::CMSG_LEN(payload) as usize;
            std::ptr::copy_nonoverlapping(
                descriptors.as_ptr(),
                libc::CMSG_DATA(head).cast(),
                descriptors.len(),
            );
        }
    }
    // SAFETY: every pointer in `message` is valid for the call.
    let sent = unsafe { libc::sendmsg(fd.as_raw_fd(), &raw const message, libc::MSG_NOSIGNAL) };
    if sent == bytes.len() as isize { Ok(()) } else { Err(io::Error::last_os_error()) }
}
