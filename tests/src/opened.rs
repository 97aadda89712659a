//! Runs `tprof open` in the background, and reads the address that it prints.

use crate::tprof::tprof_at;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};

/// The server, which is killed at the end of its test.
pub struct Opened {
    child: Child,
    /// The printed address.
    pub url: String,
}

impl Opened {
    /// Opens a run, with these options and variables, and waits for the address.
    #[track_caller]
    pub fn start(run: &Path, options: &[&str], variables: &[(&str, &Path)]) -> Opened {
        let mut child = Command::new(tprof_at())
            .arg("open")
            .args(options)
            .arg(run)
            .envs(variables.iter().copied())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        Opened { child, url: line.trim().to_owned() }
    }

    /// Id of the process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits until the server's process has ended.
    pub fn ended(&mut self) -> ExitStatus {
        self.child.wait().unwrap()
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
