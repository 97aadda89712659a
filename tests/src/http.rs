//! Sends HTTP/1.1 requests as they are, valid or not, and reads the answers.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use serde_json::Value;

/// A server that is silent for this long counts as hung.
const SILENT: Duration = Duration::from_secs(60);

/// A request whose text is sent unchanged, valid or not.
#[derive(Clone, Debug)]
pub struct Request {
    head: String,
    body: Vec<u8>,
}

impl Request {
    /// A request with only its first line.
    pub fn new(method: &str, path: &str) -> Request {
        Request { head: format!("{method} {path} HTTP/1.1\r\n"), body: Vec::new() }
    }

    /// Adds a header.
    #[must_use]
    pub fn header(mut self, name: &str, value: &str) -> Request {
        self.head += &format!("{name}: {value}\r\n");
        self
    }

    /// Adds a body, with its length.
    #[must_use]
    pub fn body(mut self, body: impl Into<Vec<u8>>) -> Request {
        self.body = body.into();
        self.head += &format!("Content-Length: {}\r\n", self.body.len());
        self
    }

    /// Returns the bytes to send.
    pub fn bytes(&self) -> Vec<u8> {
        [self.head.as_bytes(), b"\r\n", &self.body].concat()
    }
}

/// The answer of the server.
#[derive(Clone, Debug)]
pub struct Answer {
    /// Status code; 0 if the server closed the connection without a response.
    pub status: u16,
    headers: Vec<(String, String)>,
    /// The body, with its chunks joined.
    pub body: Vec<u8>,
}

impl Answer {
    /// Returns a header by its name in lower case.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(own, _)| own == name).map(|(_, value)| value.as_str())
    }

    /// Returns the body as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// Returns the body as JSON.
    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|error| panic!("{error}: {} {}", self.status, self.text()))
    }

    /// Fails unless the status is this one.
    #[track_caller]
    pub fn expect(self, status: u16) -> Answer {
        assert_eq!(self.status, status, "{:?} {}", self.headers, self.text());
        self
    }

    /// Fails unless this is an error of this status that says what failed, why, and what to try.
    #[track_caller]
    pub fn expect_failure(self, status: u16) -> Value {
        let value = self.expect(status).json();
        for part in ["error", "why", "try"] {
            assert!(value[part].is_string(), "no {part}: {value}");
        }
        assert_ne!(value["error"], "", "{value}");
        value
    }
}

/// An answer whose body has not been read yet.
pub struct Reading {
    /// Status code of the response.
    pub status: u16,
    headers: Vec<(String, String)>,
    body: Body,
}

impl Reading {
    /// Sends bytes and reads the head of the answer.
    pub fn begin(address: &str, bytes: &[u8]) -> io::Result<Reading> {
        let mut stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(SILENT))?;
        stream.set_write_timeout(Some(SILENT))?;
        // The server may answer before it has received everything.
        let _ = stream.write_all(bytes);
        Reading::of(stream)
    }

    /// Reads the head of the answer to what was sent.
    pub fn of(stream: TcpStream) -> io::Result<Reading> {
        let mut stream = BufReader::new(stream);
        let mut line = String::new();
        stream.read_line(&mut line)?;
        let status = line.split(' ').nth(1).and_then(|status| status.parse().ok());
        let status = status.ok_or(io::ErrorKind::UnexpectedEof)?;
        let mut headers = Vec::new();
        loop {
            line.clear();
            stream.read_line(&mut line)?;
            let Some((name, value)) = line.trim_end().split_once(':') else { break };
            headers.push((name.to_lowercase(), value.trim().to_owned()));
        }
        let is_chunked = headers.iter().any(|(name, value)| {
            name == "transfer-encoding" && value.eq_ignore_ascii_case("chunked")
        });
        Ok(Reading { status, headers, body: Body { stream, is_chunked, left: 0, is_first: true } })
    }

    /// Reads the rest of the answer, until the server closes the connection.
    pub fn whole(mut self) -> Answer {
        let mut body = Vec::new();
        // A connection that was reset counts as ended.
        if let Err(error) = self.body.read_to_end(&mut body) {
            assert_ne!(error.kind(), io::ErrorKind::WouldBlock, "the server hangs");
        }
        Answer { status: self.status, headers: self.headers, body }
    }

    /// Returns the name and the JSON of the next server-sent event, or `None` at the end.
    pub fn event(&mut self) -> Option<(String, Value)> {
        let mut name = String::new();
        loop {
            let line = self.body.line().expect("the server hangs or has ended")?;
            if let Some(given) = line.strip_prefix("event: ") {
                given.clone_into(&mut name);
            } else if let Some(data) = line.strip_prefix("data: ") {
                return Some((name, serde_json::from_str(data).expect("data is JSON")));
            }
        }
    }
}

/// Sends bytes and reads to the end of the connection. The request should ask the server to close
/// it.
#[track_caller]
pub fn exchange(address: &str, bytes: &[u8]) -> Answer {
    match Reading::begin(address, bytes) {
        Ok(reading) => reading.whole(),
        Err(error) => {
            let kind = error.kind();
            assert!(kind != io::ErrorKind::WouldBlock, "the server does not answer: {error}");
            assert!(kind != io::ErrorKind::ConnectionRefused, "the server has ended: {error}");
            Answer { status: 0, headers: Vec::new(), body: Vec::new() }
        }
    }
}

/// Reads a body, and removes the framing of its chunks if it has any.
struct Body {
    stream: BufReader<TcpStream>,
    is_chunked: bool,
    left: u64,
    is_first: bool,
}

impl Body {
    /// Returns a line without its end, or `None` at the end of the body.
    fn line(&mut self) -> io::Result<Option<String>> {
        let mut line = Vec::new();
        let mut byte = [0];
        while self.read(&mut byte)? == 1 {
            if byte[0] == b'\n' {
                return Ok(Some(String::from_utf8_lossy(&line).into_owned()));
            }
            line.push(byte[0]);
        }
        Ok(None)
    }

    fn next_chunk(&mut self) -> io::Result<()> {
        let mut line = String::new();
        if !self.is_first {
            self.stream.read_line(&mut line)?;
            line.clear();
        }
        self.is_first = false;
        self.stream.read_line(&mut line)?;
        let size = u64::from_str_radix(line.trim(), 16);
        self.left = size.map_err(|_| io::ErrorKind::UnexpectedEof)?;
        Ok(())
    }
}

impl Read for Body {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if !self.is_chunked {
            return self.stream.read(into);
        }
        if self.left == 0 {
            self.next_chunk()?;
        }
        let most = into.len().min(self.left as usize);
        let count = self.stream.read(&mut into[..most])?;
        self.left -= count as u64;
        Ok(count)
    }
}
