//! Starts `tprof serve` with this `tprof-sql`, and sends requests to it.
//!
//! `tprof` itself belongs to another workspace: TPROF_TEST_BIN names it, otherwise it is the newest
//! build in the target directory. Without one, these tests only print that they are skipped.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::Value;

/// How long a test waits for a condition before it fails.
const PATIENCE: Duration = Duration::from_secs(60);

/// Returns `tprof`, if there is one.
pub fn tprof() -> Option<PathBuf> {
    let own = Path::new(env!("CARGO_BIN_EXE_tprof-sql"));
    let target = own.ancestors().nth(3)?;
    let built = ["release", "debug"].map(|profile| target.join(profile).join("tprof"));
    let newest = built
        .into_iter()
        .max_by_key(|path| std::fs::metadata(path).and_then(|about| about.modified()).ok());
    let named = std::env::var_os("TPROF_TEST_BIN").map(PathBuf::from);
    let found = named.or(newest).filter(|program| program.is_file());
    if found.is_none() {
        let is_forbidden = std::env::var_os("TPROF_TEST_SKIP").is_some_and(|of| of == "forbid");
        assert!(!is_forbidden, "there is no tprof, and TPROF_TEST_SKIP=forbid wants it");
        eprintln!("skipped: there is no tprof; `scripts/check.sh build` makes it");
    }
    found
}

/// Runs `tprof` with these arguments so that it finds this `tprof-sql`.
pub fn command(tprof: &Path, words: &[&str]) -> Command {
    let own = Path::new(env!("CARGO_BIN_EXE_tprof-sql")).parent().unwrap();
    let path = std::env::var("PATH").unwrap_or_default();
    let mut command = Command::new(tprof);
    command.args(words).env("PATH", format!("{}:{path}", own.display())).stdin(Stdio::null());
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("AWS_") {
            command.env_remove(name);
        }
    }
    command
}

/// A process, which is killed when this is dropped.
pub struct Process(pub Child);

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

impl Process {
    /// Kills the process by SIGKILL.
    pub fn kill(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }

    /// Returns the command lines of all processes that it started, directly or indirectly.
    pub fn descendants(&self) -> Vec<(u32, String)> {
        let mut found = Vec::new();
        let mut parents = vec![self.0.id()];
        while let Some(parent) = parents.pop() {
            for (pid, of) in processes() {
                if of == parent {
                    let line = std::fs::read_to_string(format!("/proc/{pid}/cmdline"));
                    found.push((pid, line.unwrap_or_default().replace('\0', " ")));
                    parents.push(pid);
                }
            }
        }
        found
    }
}

/// A server, which is ended when this is dropped.
pub struct Served {
    process: Process,
    address: String,
    token: String,
}

/// Answer of the server.
pub struct Answer {
    pub status: u16,
    pub head: String,
    pub text: String,
}

impl Answer {
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error}: {}", self.text))
    }

    /// Fails unless the answer is an error. Returns what failed, why, and what to try.
    #[track_caller]
    pub fn error(&self) -> (String, String, String) {
        let value = self.json();
        let text = |key: &str| value[key].as_str().unwrap_or_else(|| panic!("{value}")).to_owned();
        let (what, why, hint) = (text("error"), text("why"), text("try"));
        assert!(!what.is_empty() && !why.is_empty() && !hint.is_empty(), "{value}");
        (what, why, hint)
    }
}

impl Served {
    /// Starts a command of [`command`] for `tprof serve`, and waits for its address.
    #[track_caller]
    pub fn start(mut command: Command) -> Served {
        command.args(["--no-browser", "--port", "0"]);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let mut parts = line.trim().split('/').skip(2);
        let (Some(address), Some(token)) = (parts.next(), parts.next()) else {
            panic!("no address: {line:?}, {:?}", child.wait());
        };
        Served { process: Process(child), address: address.to_owned(), token: token.to_owned() }
    }

    /// Sends a request and reads nothing.
    pub fn begin(&self, path: &str) -> TcpStream {
        self.asked("GET", path, "")
    }

    fn asked(&self, method: &str, path: &str, head: &str) -> TcpStream {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let request = format!(
            "{method} {path} HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {}\r\n\
             Content-Length: 0\r\nConnection: close\r\n{head}\r\n",
            self.address, self.token
        );
        stream.write_all(request.as_bytes()).unwrap();
        stream
    }

    pub fn send(&self, method: &str, path: &str, head: &str) -> Answer {
        let mut stream = self.asked(method, path, head);
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        let answer = String::from_utf8(answer).unwrap();
        let (head, text) = answer.split_once("\r\n\r\n").unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        Answer { status, head: head.to_owned(), text: text.to_owned() }
    }

    pub fn get(&self, path: &str) -> Answer {
        self.send("GET", path, "")
    }

    /// Returns a document that must exist.
    #[track_caller]
    pub fn json(&self, path: &str) -> Value {
        let answer = self.get(path);
        assert_eq!(answer.status, 200, "{path}: {}", answer.text);
        answer.json()
    }

    /// Returns the list once it fulfils a condition.
    #[track_caller]
    pub fn list(&self, is_right: impl Fn(&Value) -> bool) -> Value {
        let begun = std::time::Instant::now();
        loop {
            let list = self.json("/api/v1/runs");
            if is_right(&list) {
                return list;
            }
            assert!(begun.elapsed() < PATIENCE, "never so: {list}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Returns the list with the figures of all its runs.
    #[track_caller]
    pub fn whole_list(&self, runs: usize) -> Vec<Value> {
        let is_whole =
            |list: &Value| list["pending"] == 0 && list["runs"].as_array().unwrap().len() == runs;
        let list = self.list(is_whole);
        list["runs"].as_array().unwrap().clone()
    }

    /// Returns the command lines of all processes that it started, directly or indirectly.
    pub fn descendants(&self) -> Vec<(u32, String)> {
        self.process.descendants()
    }

    /// Kills the server.
    pub fn kill(&mut self) {
        self.process.kill();
    }
}

/// Returns all processes with their parents.
fn processes() -> Vec<(u32, u32)> {
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    let one = |name: &str| {
        let pid = name.parse().ok()?;
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        Some((pid, stat.rsplit_once(") ")?.1.split(' ').nth(1)?.parse().ok()?))
    };
    entries.filter_map(|entry| one(entry.file_name().to_str()?)).collect()
}

/// Waits until a condition holds.
#[track_caller]
pub fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = std::time::Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < PATIENCE, "never: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}
