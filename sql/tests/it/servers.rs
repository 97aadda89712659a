//! Starts servers of other programs on loopback, which `scripts/test-readers.sh` fetches.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// A server, which is ended when this is dropped.
pub struct Server {
    pub child: Child,
    pub port: u16,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Server {
    /// Starts the command made for a port, and waits until it listens.
    pub fn start(command: impl FnOnce(&str) -> Command) -> Server {
        Server::start_at(free_port(), command)
    }

    /// Does the same as [`Server::start`] at a given port.
    pub fn start_at(port: u16, command: impl FnOnce(&str) -> Command) -> Server {
        let mut command = command(&port.to_string());
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap_or_else(|error| panic!("{command:?}: {error}"));
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(child.try_wait().unwrap().is_none(), "{command:?} ended");
            std::thread::sleep(Duration::from_millis(50));
        }
        Server { child, port }
    }
}

/// Sends a request to a server on loopback, and returns its answer with the header.
pub fn request(port: u16, method: &str, path: &str, head: &str, body: &str) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    let request = format!(
        "{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Length: {}\r\n{head}\
         Connection: close\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    String::from_utf8_lossy(&answer).into_owned()
}

/// Returns the program that a variable names, otherwise one in the cache of downloads for tests.
pub fn fetched(variable: &str, inside: &str) -> Option<PathBuf> {
    let cache = || {
        let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
        cache.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache")))
    };
    let readers = std::env::var_os("TPROF_TEST_READERS").map(PathBuf::from);
    let readers = readers.or_else(|| Some(cache()?.join("tprof-test-readers")));
    let named = std::env::var_os(variable).map(PathBuf::from);
    named.or_else(|| Some(readers?.join(inside))).filter(|program| program.is_file())
}

/// Notes that a test is skipped because a program is missing; fails if that is forbidden.
pub fn skip(what: &str) {
    let is_forbidden = std::env::var_os("TPROF_TEST_SKIP").is_some_and(|of| of == "forbid");
    assert!(!is_forbidden, "there is no {what}, and TPROF_TEST_SKIP=forbid wants it");
    eprintln!("skipped: there is no {what}; scripts/test-readers.sh fetches it");
}

/// Returns a port on which nothing listens.
pub fn free_port() -> u16 {
    TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port()
}
