//! Runs `tprof serve` in the background, and sends requests to it.

use std::ffi::OsStr;
use std::path::Path;

use serde_json::Value;

use crate::http::{Answer, Reading, Request, exchange};
use crate::job::{Job, Outcome};
use crate::live::Live;
use crate::scratch::Scratch;
use crate::sys::children_of;
use crate::tprof::tprof;
use crate::wait::wait_until;

/// A server with a folder of its own for temporary files. It is killed at the end of its test.
pub struct Served {
    live: Live,
    /// The printed URL.
    pub url: String,
    /// Address as `127.0.0.1:PORT`.
    pub address: String,
    /// The secret that requests must carry.
    pub token: String,
    temporary: Scratch,
}

impl Served {
    /// Serves a directory, with these options.
    #[track_caller]
    pub fn start(directory: &Path, options: &[&str]) -> Served {
        Served::of(Served::job(options).arg(directory))
    }

    /// Returns the command that serves, without the directory to serve.
    pub fn job<S: AsRef<OsStr>>(options: &[S]) -> Job {
        tprof(["serve", "--no-browser"]).args(options)
    }

    /// Starts a command of [`Self::job`] and waits for its address.
    #[track_caller]
    pub fn of(job: Job) -> Served {
        let temporary = Scratch::new();
        let job = job.env("TMPDIR", temporary.path());
        let mut live = Live::start(&job, temporary.path());
        let url = live.wait_for("http");
        let mut parts = url.split('/').skip(2);
        let (address, token) = (parts.next().unwrap().to_owned(), parts.next().unwrap().to_owned());
        Served { live, url, address, token, temporary }
    }

    /// Id of the server's process.
    pub fn pid(&self) -> u32 {
        self.live.pid()
    }

    /// The server's folder for temporary files.
    pub fn temporary(&self) -> &Path {
        self.temporary.path()
    }

    /// Makes a request as a script would send it, with the token.
    pub fn request(&self, method: &str, path: &str) -> Request {
        self.bare(method, path).header("Authorization", &format!("Bearer {}", self.token))
    }

    /// Makes a request without the token.
    pub fn bare(&self, method: &str, path: &str) -> Request {
        Request::new(method, path).header("Host", &self.address).header("Connection", "close")
    }

    /// Sends a request and reads all of the answer.
    #[track_caller]
    pub fn send(&self, request: &Request) -> Answer {
        exchange(&self.address, &request.bytes())
    }

    /// Gets a path.
    #[track_caller]
    pub fn get(&self, path: &str) -> Answer {
        self.send(&self.request("GET", path))
    }

    /// Gets a path that must exist, and returns the answer as JSON.
    #[track_caller]
    pub fn json(&self, path: &str) -> Value {
        self.get(path).expect(200).json()
    }

    /// Sends a request that changes something, as a script would.
    #[track_caller]
    pub fn change(&self, method: &str, path: &str, body: &str) -> Answer {
        self.send(&self.request(method, path).header("X-Tprof", "1").body(body))
    }

    /// Sends a request and returns the answer before its body is read.
    pub fn begin(&self, path: &str) -> Reading {
        Reading::begin(&self.address, &self.request("GET", path).bytes()).unwrap()
    }

    /// Returns the row of a run in the server's list. Waits until the list has it, because the
    /// server doesn't look for new runs all the time.
    #[track_caller]
    pub fn row(&self, name: &str) -> Value {
        let mut row = None;
        wait_until(name, || {
            let list = self.json("/api/v1/runs");
            let mut runs = list["runs"].as_array().unwrap().iter();
            row = runs.find(|one| one["name"] == name).cloned();
            row.is_some()
        });
        row.unwrap()
    }

    /// Returns the number of a run.
    #[track_caller]
    pub fn id_of(&self, run: &Path) -> u64 {
        self.row(&run.file_name().unwrap().to_string_lossy())["id"].as_u64().unwrap()
    }

    /// Fails unless the server still answers.
    #[track_caller]
    pub fn assert_answers(&self) {
        assert_eq!(self.json("/api/v1")["version"], 1);
    }

    /// Returns all processes that the server started, directly or indirectly.
    pub fn descendants(&self) -> Vec<u32> {
        let mut all = children_of(self.pid());
        let mut at = 0;
        while at < all.len() {
            all.extend(children_of(all[at]));
            at += 1;
        }
        all
    }

    /// Returns the largest memory use of the server so far, in bytes.
    pub fn peak_bytes(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
    }

    /// Sends a signal and waits for the end.
    pub fn end(self, signal: i32) -> Outcome {
        assert!(crate::sys::kill(self.pid(), signal));
        self.live.ended()
    }

    /// Kills the server and waits until all processes that it started are gone. Returns the names
    /// of the files left in its temporary folder.
    #[track_caller]
    pub fn killed(self) -> Vec<String> {
        let started = self.descendants();
        assert!(crate::sys::kill(self.pid(), 9));
        self.live.ended();
        wait_until("what it started ends", || {
            started.iter().all(|pid| matches!(crate::sys::state_of(*pid), None | Some('Z')))
        });
        let left = std::fs::read_dir(self.temporary.path()).unwrap().flatten();
        left.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
    }
}
