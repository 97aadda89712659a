//! A minimal HTTP server on 127.0.0.1, which serves a few files to one browser.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Longest request in bytes. A browser sends a few hundred.
const MAX_REQUEST_BYTES: u64 = 16 << 10;
/// Time limit for a client to send its request.
const PATIENCE: Duration = Duration::from_secs(10);

/// Serves files under names that cannot be guessed.
pub struct Server {
    listener: TcpListener,
    /// Files to serve. The first is the page or trace that the browser opens, and it links to the
    /// others.
    files: Vec<PathBuf>,
    /// The only foreign origin whose pages may read the answers.
    origin: Option<String>,
    /// Prefix of all paths; it contains a random token.
    folder: String,
}

impl Server {
    /// Creates a server for `files`. Pages of the site `ui` may read them too.
    pub fn new(listener: TcpListener, files: Vec<PathBuf>, ui: Option<&str>) -> io::Result<Server> {
        let mut random = [0u8; 16];
        File::open("/dev/urandom")?.read_exact(&mut random)?;
        let token: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
        // The origin, scheme and host, is the part before the third slash.
        let origin = ui.map(|ui| ui.splitn(4, '/').take(3).collect::<Vec<_>>().join("/"));
        Ok(Server { listener, files, origin, folder: format!("/{token}/") })
    }

    /// Returns the URL of the first file.
    pub fn url(&self, port: u16) -> String {
        let name = self.files.first().map(|file| name(file)).unwrap_or_default();
        format!("http://127.0.0.1:{port}{}{name}", self.folder)
    }

    /// Returns the file for a request's path, and whether it is the first one.
    fn file(&self, path: &str) -> Option<(&Path, bool)> {
        let wanted = path.strip_prefix(&self.folder)?;
        let at = self.files.iter().position(|file| name(file) == wanted)?;
        Some((&self.files[at], at == 0))
    }

    /// Answers requests, one at a time. With `once`, returns when the first file has been fetched.
    pub fn run(&self, once: bool) -> io::Result<()> {
        for stream in self.listener.incoming() {
            // A failed request concerns only its client, so the server continues.
            if self.answer(stream?).unwrap_or(false) && once {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Answers one request, and returns whether it fetched the first file.
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
            // A site can make its domain name resolve to this address (DNS rebinding) to read the
            // files. The requests of its pages have that name as `Host`, so they are refused.
            if let Some((name, value)) = header.split_once(':')
                && name.eq_ignore_ascii_case("host")
            {
                let host = value.trim().split(':').next().unwrap_or_default();
                is_local = host == "127.0.0.1" || host == "localhost";
            }
        }
        let Some((file, is_first)) = self.file(path).filter(|_| is_local) else {
            self.head(&stream, "404 Not Found", "", 0)?;
            return Ok(false);
        };
        let kind = match file.extension().is_some_and(|extension| extension == "html") {
            true => "text/html; charset=utf-8",
            false => "application/octet-stream",
        };
        match method {
            "GET" | "HEAD" => {
                let mut file = File::open(file)?;
                self.head(&stream, "200 OK", kind, file.metadata()?.len())?;
                if method == "GET" {
                    io::copy(&mut file, &mut &stream)?;
                }
                Ok(method == "GET" && is_first)
            }
            "OPTIONS" => self.head(&stream, "204 No Content", "", 0).map(|()| false),
            _ => self.head(&stream, "405 Method Not Allowed", "", 0).map(|()| false),
        }
    }

    fn head(&self, mut to: &TcpStream, status: &str, kind: &str, length: u64) -> io::Result<()> {
        let mut head = format!(
            "HTTP/1.1 {status}\r\n\
             Content-Length: {length}\r\n\
             Cache-Control: no-store\r\n\
             Connection: close\r\n"
        );
        if !kind.is_empty() {
            head += &format!("Content-Type: {kind}\r\n");
        }
        if let Some(origin) = &self.origin {
            head += &format!(
                "Access-Control-Allow-Origin: {origin}\r\n\
                 Access-Control-Allow-Methods: GET, HEAD, OPTIONS\r\n\
                 Access-Control-Allow-Headers: *\r\n\
                 Access-Control-Allow-Private-Network: true\r\n"
            );
        }
        to.write_all(format!("{head}\r\n").as_bytes())
    }
}

fn name(file: &Path) -> String {
    file.file_name().unwrap_or_default().to_string_lossy().into_owned()
}
