//! Names the file or peer that a thread waits for, by the descriptor of its system call.
//!
//! The name becomes the innermost frame of the wait's stack, such as `(waits for /data/a.bin)`, so
//! times per file and peer need no separate table. The descriptor is read during the wait, so some
//! short waits lack this frame.

use std::collections::HashMap;
use std::fs::{read_link, read_to_string};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Number of sockets and of files that are cached.
const MAX_KNOWN: usize = 4096;
/// Least time between two readings of the kernel's lists of sockets. The time is longer if a
/// reading takes long: readings may take at most one part in `SHARE` of the time.
const EVERY: Duration = Duration::from_millis(500);
const SHARE: u32 = 50;
/// The texts before and after the name in a frame.
const BEFORE: &str = "(waits for ";
const AFTER: &str = ")";
/// The state of a listening TCP socket, as `/proc/net/tcp` shows it.
const LISTENS: &str = "0A";

/// Caches the frames of sockets by inode, and those of files by path.
#[derive(Debug, Default)]
pub struct Descriptors {
    sockets: HashMap<u64, Arc<str>>,
    files: HashMap<String, Arc<str>>,
    next: Option<Instant>,
}

impl Descriptors {
    /// Returns a frame that names the file or peer of a thread's descriptor; `None` if there is no
    /// name for it.
    pub fn frame(&mut self, pid: u32, tid: u32, descriptor: u32) -> Option<Arc<str>> {
        let link = read_link(format!("/proc/{pid}/task/{tid}/fd/{descriptor}")).ok()?;
        self.frame_of_link(pid, &link.to_string_lossy())
    }

    /// Returns the file or peer in words that a link in a process's `/proc/PID/fd` names; `None` if
    /// there is no name for it.
    pub fn name_of_link(&mut self, pid: u32, link: &str) -> Option<String> {
        let frame = self.frame_of_link(pid, link)?;
        Some(frame.strip_prefix(BEFORE)?.strip_suffix(AFTER)?.to_owned())
    }

    fn frame_of_link(&mut self, pid: u32, link: &str) -> Option<Arc<str>> {
        if let Some(inode) = link.strip_prefix("socket:[").and_then(|rest| rest.strip_suffix(']')) {
            return self.socket(pid, inode.parse().ok()?);
        }
        if let Some(known) = self.files.get(link) {
            return Some(Arc::clone(known));
        }
        let what = match link.split_once(':') {
            _ if link.starts_with('/') => link.trim_end_matches(" (deleted)"),
            Some(("pipe", _)) => "a pipe",
            // If the call waits for several descriptors by epoll, it is unknown which one will end
            // the wait.
            _ => return None,
        };
        let frame: Arc<str> = frame(what).into();
        if self.files.len() >= MAX_KNOWN {
            self.files.clear();
        }
        self.files.insert(link.to_owned(), Arc::clone(&frame));
        Some(frame)
    }

    /// Returns the file or peer of a thread's descriptor in words; `None` if there is no name for it.
    pub fn name(&mut self, pid: u32, tid: u32, descriptor: u32) -> Option<String> {
        let frame = self.frame(pid, tid, descriptor)?;
        Some(frame.strip_prefix(BEFORE)?.strip_suffix(AFTER)?.to_owned())
    }

    fn socket(&mut self, pid: u32, inode: u64) -> Option<Arc<str>> {
        if !self.sockets.contains_key(&inode) {
            let now = Instant::now();
            if self.next.is_some_and(|next| now < next) {
                return Some(frame("socket").into());
            }
            if self.sockets.len() >= MAX_KNOWN {
                self.sockets.clear();
            }
            self.list(pid);
            self.next = Some(Instant::now() + EVERY.max(now.elapsed() * SHARE));
        }
        let known = self.sockets.get(&inode).cloned();
        Some(known.unwrap_or_else(|| frame("socket").into()))
    }

    /// Lists the sockets in a process's network namespace.
    fn list(&mut self, pid: u32) {
        let read = |name: &str| read_to_string(format!("/proc/{pid}/net/{name}"));
        for name in ["tcp", "tcp6", "udp", "udp6"] {
            let text = read(name).unwrap_or_default();
            for (inode, peer) in text.lines().skip(1).filter_map(internet).take(MAX_KNOWN) {
                self.sockets.insert(inode, frame(&peer).into());
            }
        }
        let text = read("unix").unwrap_or_default();
        for (inode, path) in text.lines().skip(1).filter_map(unix).take(MAX_KNOWN) {
            self.sockets.insert(inode, frame(&path).into());
        }
    }
}

fn frame(what: &str) -> String {
    format!("{BEFORE}{what}{AFTER}")
}

/// Parses a line of `/proc/net/tcp` or a file like it: returns inode and peer.
fn internet(line: &str) -> Option<(u64, String)> {
    let words: Vec<&str> = line.split_ascii_whitespace().collect();
    let [_, local, remote, state, _, _, _, _, _, inode, ..] = words.as_slice() else { return None };
    let text = match *state {
        LISTENS => format!("socket, connections to {}", address(local)?),
        _ => format!("socket {}", address(remote)?),
    };
    Some((inode.parse().ok()?, text))
}

/// Parses an address like `0100007F:1F90`. It consists of words of four bytes in the machine's byte
/// order, and a port.
fn address(text: &str) -> Option<String> {
    let (address, port) = text.split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    let word = |at: usize| {
        let word = u32::from_str_radix(address.get(at..at + 8)?, 16).ok()?;
        Some(word.to_ne_bytes())
    };
    if address.len() == 8 {
        return Some(format!("{}:{port}", Ipv4Addr::from(word(0)?)));
    }
    let mut bytes = [0; 16];
    for (at, part) in bytes.chunks_mut(4).enumerate() {
        part.copy_from_slice(&word(8 * at)?);
    }
    let address = Ipv6Addr::from(bytes);
    Some(match address.to_ipv4_mapped() {
        Some(address) => format!("{address}:{port}"),
        None => format!("[{address}]:{port}"),
    })
}

/// Parses a line of `/proc/net/unix`: returns inode and path. If the socket has no path, its peer
/// can't be named.
fn unix(line: &str) -> Option<(u64, String)> {
    let mut words = line.split_ascii_whitespace();
    let inode = words.nth(6)?.parse().ok()?;
    Some((inode, words.next().map_or("socket".to_owned(), |path| format!("socket {path}"))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsRawFd;
    use std::os::unix::net::UnixStream;

    fn own(descriptor: &impl AsRawFd) -> Option<Arc<str>> {
        let pid = std::process::id();
        Descriptors::default().frame(pid, pid, descriptor.as_raw_fd() as u32)
    }

    #[test]
    fn files_are_named_by_their_path_and_pipes_as_pipes() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let path = file.path().to_str().unwrap();
        assert_eq!(own(file.as_file()).as_deref(), Some(&*format!("(waits for {path})")));
        let (reader, _writer) = std::io::pipe().unwrap();
        assert_eq!(own(&reader).as_deref(), Some("(waits for a pipe)"));
        assert_eq!(Descriptors::default().frame(std::process::id(), 1, 1 << 20), None);
    }

    #[test]
    fn sockets_are_named_by_their_peer() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let here = listener.local_addr().unwrap();
        let client = TcpStream::connect(here).unwrap();
        assert_eq!(own(&client).as_deref(), Some(&*format!("(waits for socket {here})")));
        let waits = format!("(waits for socket, connections to {here})");
        assert_eq!(own(&listener).as_deref(), Some(&*waits));
        let (pair, _other) = UnixStream::pair().unwrap();
        assert_eq!(own(&pair).as_deref(), Some("(waits for socket)"));
    }

    #[test]
    fn ipv4_and_ipv6_addresses_are_parsed() {
        assert_eq!(address("0100007F:1F90").as_deref(), Some("127.0.0.1:8080"));
        let text = "00000000000000000000000001000000:0050";
        assert_eq!(address(text).as_deref(), Some("[::1]:80"));
        let mapped = "0000000000000000FFFF00000100007F:0050";
        assert_eq!(address(mapped).as_deref(), Some("127.0.0.1:80"));
        assert_eq!(address("xyz"), None);
    }
}
