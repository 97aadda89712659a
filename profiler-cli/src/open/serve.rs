//! The few lines of HTTP that give one file to one page.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Longest request that is read: a page sends a few hundred bytes.
const MAX_REQUEST_BYTES: u64 = 16 << 10;
/// How long a page may take to send it.
const PATIENCE: Duration = Duration::from_secs(10);

/// Serves a file under a name that cannot be guessed.
pub struct Server {
    listener: TcpListener,
    file: PathBuf,
    /// Where the page comes from; nobody else may read the answer.
    origin: String,
    path: String,
}

impl Server {
    /// Serves `file` to pages of `ui`.
    pub fn new(listener: TcpListener, file: &Path, ui: &str) -> io::Result<Server> {
        let mut random = [0u8; 16];
        File::open("/dev/urandom")?.read_exact(&mut random)?;
        let token: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        let path = format!("/{token}/{name}");
        // Scheme and host: everything before the third slash.
        let origin: Vec<&str> = ui.splitn(4, '/').take(3).collect();
        Ok(Server { listener, file: file.to_path_buf(), origin: origin.join("/"), path })
    }

    /// The file's address.
    pub fn url(&self, port: u16) -> String {
        format!("http://127.0.0.1:{port}{}", self.path)
    }

    /// Answers requests, one at a time; with `once` until the file was given out.
    pub fn run(&self, once: bool) -> io::Result<()> {
        for stream in self.listener.incoming() {
            // One request that fails is that page's trouble, not the next one's.
            if self.answer(stream?).unwrap_or(false) && once {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Answers one request; whether it got the file.
    fn answer(&self, stream: TcpStream) -> io::Result<bool> {
        stream.set_read_timeout(Some(PATIENCE))?;
        let mut reader = BufReader::new((&stream).take(MAX_REQUEST_BYTES));
        let mut line = String::new();
        reader.read_line(&mut line)?;
        let mut words = line.split_whitespace();
        let (method, path) = (words.next().unwrap_or(""), words.next().unwrap_or(""));
        let mut is_local = false;
        loop {
            let mut header = String::new();
            if reader.read_line(&mut header)? == 0 || header.trim().is_empty() {
                break;
            }
            // A page elsewhere that has its name point here sends its own name.
            if let Some((name, value)) = header.split_once(':')
                && name.eq_ignore_ascii_case("host")
            {
                let host = value.trim().split(':').next().unwrap_or_default();
                is_local = host == "127.0.0.1" || host == "localhost";
            }
        }
        if !is_local || path != self.path {
            self.head(&stream, "404 Not Found", 0)?;
            return Ok(false);
        }
        match method {
            "GET" | "HEAD" => {
                let mut file = File::open(&self.file)?;
                self.head(&stream, "200 OK", file.metadata()?.len())?;
                if method == "GET" {
                    io::copy(&mut file, &mut &stream)?;
                }
                Ok(method == "GET")
            }
            "OPTIONS" => self.head(&stream, "204 No Content", 0).map(|()| false),
            _ => self.head(&stream, "405 Method Not Allowed", 0).map(|()| false),
        }
    }

    fn head(&self, mut to: &TcpStream, status: &str, length: u64) -> io::Result<()> {
        let head = format!(
            "HTTP/1.1 {status}\r\n\
             Content-Length: {length}\r\n\
             Content-Type: application/octet-stream\r\n\
             Access-Control-Allow-Origin: {}\r\n\
             Access-Control-Allow-Methods: GET, HEAD, OPTIONS\r\n\
             Access-Control-Allow-Headers: *\r\n\
             Access-Control-Allow-Private-Network: true\r\n\
             Cache-Control: no-store\r\n\
             Connection: close\r\n\r\n",
            self.origin
        );
        to.write_all(head.as_bytes())
    }
}
