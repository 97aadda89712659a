//! Unix sockets that send whole messages (SOCK_SEQPACKET) with descriptors, and tell which process
//! is at their other end.
#![allow(unsafe_code)] // system calls that the standard library lacks

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{
    AddressFamily, Backlog, ControlMessage, MsgFlags, SockFlag, SockType, UnixAddr, accept4, bind,
    getsockopt, recv, sendmsg, setsockopt, socket, sockopt,
};
use nix::sys::time::TimeVal;
use nix::unistd::geteuid;
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::path::Path;
use std::time::Duration;

fn address_of(path: &Path) -> io::Result<UnixAddr> {
    let too_long = |_| io::Error::new(io::ErrorKind::InvalidInput, "socket path too long");
    UnixAddr::new(path).map_err(too_long)
}

fn open(flags: SockFlag) -> io::Result<OwnedFd> {
    let flags = flags | SockFlag::SOCK_CLOEXEC;
    Ok(socket(AddressFamily::Unix, SockType::SeqPacket, flags, None)?)
}

/// Creates a listening SOCK_SEQPACKET socket at `path`. Fails if `path` exists.
pub fn listen(path: &Path) -> io::Result<OwnedFd> {
    let address = address_of(path)?;
    let fd = open(SockFlag::SOCK_NONBLOCK)?;
    bind(fd.as_raw_fd(), &address)?;
    // The directory is already closed to other users. The socket is closed to them as well.
    std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o600))?;
    nix::sys::socket::listen(&fd, Backlog::MAXCONN)?;
    Ok(fd)
}

/// Returns a SOCK_SEQPACKET socket that is connected to `path`.
pub fn connect(path: &Path) -> io::Result<OwnedFd> {
    let address = address_of(path)?;
    let fd = open(SockFlag::empty())?;
    nix::sys::socket::connect(fd.as_raw_fd(), &address)?;
    set_timeout(&fd, Duration::from_secs(5))?;
    Ok(fd)
}

/// Accepts a connection; `None` if no client waits.
pub fn accept(listener: &OwnedFd) -> io::Result<Option<OwnedFd>> {
    match accept4(listener.as_raw_fd(), SockFlag::SOCK_CLOEXEC) {
        // SAFETY: the call above has just returned this descriptor, so nothing else owns it.
        Ok(fd) => Ok(Some(unsafe { OwnedFd::from_raw_fd(fd) })),
        Err(Errno::EWOULDBLOCK) => Ok(None),
        Err(e) => Err(e.into()),
    }
}

/// Limits how long reads and writes of a socket may wait.
pub fn set_timeout(fd: &OwnedFd, time: Duration) -> io::Result<()> {
    let time = TimeVal::new(time.as_secs() as i64, time.subsec_micros().into());
    setsockopt(fd, sockopt::ReceiveTimeout, &time)?;
    Ok(setsockopt(fd, sockopt::SendTimeout, &time)?)
}

/// Returns pid and user id of the process at the other end. The pid is 0 if it is in another pid
/// namespace.
pub fn peer(fd: &OwnedFd) -> io::Result<(u32, u32)> {
    let who = getsockopt(fd, sockopt::PeerCredentials)?;
    Ok((who.pid().max(0) as u32, who.uid()))
}

/// Returns this process's effective user id.
pub fn user() -> u32 {
    geteuid().as_raw()
}

/// Receives a message into `buffer`, and returns its length; 0 if the other end was closed.
pub fn receive(fd: &OwnedFd, buffer: &mut [u8]) -> io::Result<usize> {
    Ok(recv(fd.as_raw_fd(), buffer, MsgFlags::empty())?)
}

/// Whether the other end of a socket was closed.
pub fn is_hung_up(fd: &OwnedFd) -> bool {
    let mut asked = [PollFd::new(fd.as_fd(), PollFlags::empty())];
    poll(&mut asked, PollTimeout::ZERO) == Ok(1)
        && asked[0].revents().is_some_and(|got| got.contains(PollFlags::POLLHUP))
}

/// Sends a message, together with descriptors.
pub fn send(fd: &OwnedFd, bytes: &[u8], descriptors: &[RawFd]) -> io::Result<()> {
    let rights = [ControlMessage::ScmRights(descriptors)];
    let control = if descriptors.is_empty() { &[][..] } else { &rights };
    let parts = [IoSlice::new(bytes)];
    // The kernel sends a message as a whole or not at all, so nothing is left to send.
    sendmsg::<()>(fd.as_raw_fd(), &parts, control, MsgFlags::MSG_NOSIGNAL, None)?;
    Ok(())
}
