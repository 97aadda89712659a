//! Runs a job while a test talks to it through its pipes.

use crate::job::{self, Job, Outcome};
use crate::sys;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

/// A running job. If it is dropped unfinished, it is killed with all processes that it started.
pub struct Live {
    child: Option<Child>,
    stdin: Option<ChildStdin>,
    lines: Receiver<String>,
    seen: Vec<String>,
    stderr: Receiver<String>,
    limit: Duration,
    name: String,
}

impl Live {
    /// Starts a job with a pipe to its standard input.
    pub fn start(job: &Job, cwd: &Path) -> Live {
        let mut command = job.command(cwd);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap_or_else(|error| panic!("{}: {error}", job.name()));
        let (line_sender, lines) = mpsc::channel();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        std::thread::spawn(move || {
            for line in stdout.lines().map_while(Result::ok) {
                let _ = line_sender.send(line);
            }
        });
        let (sender, stderr) = mpsc::channel();
        let mut pipe = child.stderr.take().unwrap();
        std::thread::spawn(move || {
            let mut text = String::new();
            let _ = pipe.read_to_string(&mut text);
            let _ = sender.send(text);
        });
        let stdin = child.stdin.take();
        Live {
            child: Some(child),
            stdin,
            lines,
            seen: Vec::new(),
            stderr,
            limit: job.limit_of(),
            name: job.name(),
        }
    }

    /// Returns the pid of the started process, which is tprof if the job is traced.
    pub fn pid(&self) -> u32 {
        self.child.as_ref().unwrap().id()
    }

    /// Waits for a line that begins with this text, and returns the line.
    #[track_caller]
    pub fn wait_for(&mut self, beginning: &str) -> String {
        let end = Instant::now() + self.limit;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            match self.lines.recv_timeout(left) {
                Ok(line) => {
                    self.seen.push(line.clone());
                    if line.starts_with(beginning) {
                        return line;
                    }
                }
                Err(why) => {
                    let stderr = self.stop();
                    panic!(
                        "{}: no line {beginning:?} ({why:?}); stdout {:?}; stderr {stderr}",
                        self.name, self.seen
                    )
                }
            }
        }
    }

    /// Writes to the job's standard input.
    pub fn send(&mut self, text: &str) {
        self.stdin.as_mut().unwrap().write_all(text.as_bytes()).unwrap();
    }

    /// Sends a command to the program `steady` and waits until it is done.
    #[track_caller]
    pub fn obey(&mut self, command: &str) {
        self.send(command);
        self.wait_for(command);
    }

    /// Closes the job's standard input.
    pub fn close_stdin(&mut self) {
        self.stdin = None;
    }

    /// Closes the job's standard input and waits for the end of the job and of its output.
    #[track_caller]
    pub fn finish(mut self) -> Outcome {
        self.close_stdin();
        self.ended()
    }

    /// Waits for an end that the standard input does not cause: the input stays open, so a job that
    /// reads it can't end by itself.
    #[track_caller]
    pub fn ended(mut self) -> Outcome {
        let mut child = self.child.take().unwrap();
        let end = Instant::now() + self.limit;
        let Some(status) = job::wait_until(&mut child, end) else {
            sys::kill_tree(child.id());
            let _ = child.wait();
            panic!("{}: still running after {:?}; stdout {:?}", self.name, self.limit, self.seen)
        };
        let left = end.saturating_duration_since(Instant::now()).max(Duration::from_secs(5));
        let stderr = self.stderr.recv_timeout(left).unwrap_or_else(|_| {
            panic!("{}: ended, but something still holds its standard error", self.name)
        });
        self.drain(left);
        use std::os::unix::process::ExitStatusExt;
        let stdout = self.seen.iter().map(|line| format!("{line}\n")).collect();
        Outcome { stdout, stderr, code: status.code(), signal: status.signal() }
    }

    /// Reads on to the end of standard output.
    fn drain(&mut self, limit: Duration) {
        let end = Instant::now() + limit;
        loop {
            match self.lines.recv_timeout(end.saturating_duration_since(Instant::now())) {
                Ok(line) => self.seen.push(line),
                Err(mpsc::RecvTimeoutError::Disconnected) => return,
                Err(mpsc::RecvTimeoutError::Timeout) => {
                    panic!("{}: ended, but something still holds its standard output", self.name)
                }
            }
        }
    }

    fn stop(&mut self) -> String {
        if let Some(mut child) = self.child.take() {
            sys::kill_tree(child.id());
            let _ = child.wait();
        }
        self.stderr.recv_timeout(Duration::from_secs(2)).unwrap_or_default()
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        self.stop();
    }
}
