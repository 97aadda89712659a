//! Sources of snapshots: a follower of local files, or `tprof top --json` on another host.

use std::ffi::{OsStr, OsString};
use std::io::{BufRead, BufReader, Read};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tprof_facts::far_run::host_and_run;
use tprof_trace::is_info_name;

use super::asking::Asking;
use super::error::TopError;
use crate::files::{PlainFiles, RunFiles};
use crate::follower::Follower;
use crate::snapshot::Snapshot;

/// Time between two snapshots.
const EVERY: Duration = Duration::from_secs(1);
/// Longest line of a snapshot, in bytes.
const MOST_LINE: u64 = 256 << 20;
/// Number of bytes to keep of the messages that ssh prints.
const MOST_MESSAGE: usize = 4 << 10;

/// A source of one snapshot per second.
pub(super) enum Source {
    /// Follows files on this host.
    LocalRun(Box<LocalRun>),
    /// Reads snapshots from another host.
    RemoteRun(Box<RemoteRun>),
}

/// A follower, and the time of its last poll.
pub(super) struct LocalRun {
    follower: Follower<PlainFiles>,
    polled: Option<Instant>,
    asking: Asking,
    waits: bool,
}

/// An ssh client whose standard output has one snapshot per line.
pub(super) struct RemoteRun {
    host: String,
    run: String,
    child: Child,
    lines: BufReader<ChildStdout>,
    message: Arc<Mutex<Vec<u8>>>,
    message_ended: Receiver<()>,
    has_any: bool,
}

impl Source {
    /// Opens the run at a path on this host. A path that does not exist here may be `HOST:RUN`, a
    /// run on another host. `program` is the path of tprof, which tells why ranks stand still; with
    /// `waits`, snapshots wait for that.
    pub fn open(run: &OsStr, program: &Path, waits: bool) -> Result<Source, TopError> {
        let remote = host_and_run(run).filter(|_| !Path::new(run).exists());
        match remote {
            Some((host, path)) => Source::remote(OsStr::new("ssh"), &host, &path),
            None => Source::local(run, program, waits),
        }
    }

    fn local(run: &OsStr, program: &Path, waits: bool) -> Result<Source, TopError> {
        let failed = |error| TopError::unreadable(run, &error);
        let files = PlainFiles::of(Path::new(run)).map_err(failed)?;
        let entries = files.list().map_err(failed)?;
        let is_own = |name: &str| name.ends_with(".tprof") || is_info_name(name);
        let is_trace =
            Path::new(run).is_dir() || entries.iter().any(|of| is_tprof(&files, &of.name));
        if !entries.iter().any(|entry| is_own(&entry.name)) || !is_trace {
            return Err(TopError::not_a_run(run));
        }
        let follower = Follower::new(files);
        let asking = Asking::new(program.to_owned(), run.to_owned());
        Ok(Source::LocalRun(Box::new(LocalRun { follower, polled: None, asking, waits })))
    }

    /// Starts an ssh client that runs `tprof top --json` on the other host. The run's path is
    /// quoted, so that the shell there takes it as one word.
    pub fn remote(program: &OsStr, host: &str, run: &OsStr) -> Result<Source, TopError> {
        if host.starts_with('-') {
            return Err(TopError::bad_host(host));
        }
        let mut command = OsString::from("tprof top --json -- ");
        command.push(quoted(run));
        let child = Command::new(program)
            .args(["-T", "--", host])
            .arg(command)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn();
        let mut child = child.map_err(|error| TopError::no_ssh(program, &error))?;
        let message = Arc::new(Mutex::new(Vec::new()));
        let of_thread = Arc::clone(&message);
        let (out, errors) = (child.stdout.take(), child.stderr.take());
        let (ended, message_ended) = mpsc::channel();
        std::thread::spawn(move || {
            keep_end(errors, &of_thread);
            let _ = ended.send(());
        });
        let Some(out) = out else { return Err(TopError::remote(host, "it has no output", "RUN")) };
        Ok(Source::RemoteRun(Box::new(RemoteRun {
            host: host.to_owned(),
            run: quoted(run).to_string_lossy().into_owned(),
            child,
            lines: BufReader::new(out),
            message,
            message_ended,
            has_any: false,
        })))
    }

    /// Returns the next snapshot, a second after the last one; `None` if there are no more. The
    /// first snapshot contains the history.
    pub fn next(&mut self) -> Result<Option<Snapshot>, TopError> {
        match self {
            Source::LocalRun(local) => Ok(Some(local.next())),
            Source::RemoteRun(remote) => remote.next(),
        }
    }
}

impl LocalRun {
    fn next(&mut self) -> Snapshot {
        let first = self.polled.is_none();
        if let Some(polled) = self.polled {
            std::thread::sleep(EVERY.saturating_sub(polled.elapsed()));
        }
        self.polled = Some(Instant::now());
        let mut snapshot = self.follower.poll();
        if first {
            // All data that is already written is read before the first snapshot, however long that
            // takes.
            while self.follower.has_more() {
                self.follower.poll();
            }
            snapshot = self.follower.with_history();
        }
        self.asking.tell(&mut snapshot, self.waits);
        snapshot
    }
}

impl RemoteRun {
    fn next(&mut self) -> Result<Option<Snapshot>, TopError> {
        let mut line = Vec::new();
        let read = (&mut self.lines).take(MOST_LINE).read_until(b'\n', &mut line);
        if matches!(read, Ok(1..)) && line.ends_with(b"\n") {
            let snapshot = serde_json::from_slice(&line);
            self.has_any = true;
            let said = |error| format!("the answer is not a snapshot: {error}");
            return snapshot.map(Some).map_err(|error| self.failed(&said(error)));
        }
        let _ = self.child.wait();
        if self.has_any {
            return Ok(None);
        }
        // If ssh shares its connection, its background process never closes the pipe, so the wait
        // has a limit.
        let _ = self.message_ended.recv_timeout(EVERY);
        let message = self.message.lock().map(|bytes| bytes.clone()).unwrap_or_default();
        let text = String::from_utf8_lossy(&message).trim().to_owned();
        Err(self.failed(text.lines().last().unwrap_or_default()))
    }

    fn failed(&self, why: &str) -> TopError {
        TopError::remote(&self.host, why, &self.run)
    }
}

impl Drop for RemoteRun {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Keeps the last bytes that an ssh client writes to stderr, in `to`.
fn keep_end(errors: Option<impl Read>, to: &Mutex<Vec<u8>>) {
    let Some(mut errors) = errors else { return };
    let mut bytes = [0; 1024];
    while let Ok(count @ 1..) = errors.read(&mut bytes) {
        if let Ok(mut kept) = to.lock() {
            kept.extend_from_slice(&bytes[..count]);
            let surplus = kept.len().saturating_sub(MOST_MESSAGE);
            kept.drain(..surplus);
        }
    }
}

/// Quotes a word for any POSIX shell.
fn quoted(text: &OsStr) -> OsString {
    let inner =
        text.as_bytes().split(|byte| *byte == b'\'').collect::<Vec<_>>().join(&b"'\\''"[..]);
    OsString::from_vec([b"'", &inner[..], b"'"].concat())
}

/// Whether a file begins with the magic number of a trace file.
fn is_tprof(files: &PlainFiles, name: &str) -> bool {
    let mut bytes = [0; 5];
    let read = files.open(name).and_then(|mut file| file.read_exact(&mut bytes));
    read.is_ok() && bytes == *b"TPROF"
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn fake_ssh(directory: &Path, script: &str) -> OsString {
        let program = directory.join("ssh");
        std::fs::write(&program, format!("#!/bin/sh\n{script}\n")).unwrap();
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
        program.into_os_string()
    }

    #[test]
    fn the_remote_shell_gets_the_path_as_one_word() {
        let directory = tempfile::tempdir().unwrap();
        // The fake ssh does what sshd does: it passes the command as one text to a shell. There,
        // `tprof` is a function that prints its arguments.
        let script = r#"[ "$1 $2 $3" = "-T -- host" ] || exit 9
            sh -c "tprof() { printf '%s|' \"\$@\" >&2; }; $4"; exit 1"#;
        let program = fake_ssh(directory.path(), script);
        let awkward = OsStr::new("a 'b' $(id) `id` \"c\"; ls");
        let mut source = Source::remote(&program, "host", awkward).unwrap();
        let error = source.next().unwrap_err();
        assert_eq!(error.why, "top|--json|--|a 'b' $(id) `id` \"c\"; ls|");
        assert!(Source::remote(&program, "-oProxyCommand=x", awkward).is_err());
    }

    #[test]
    fn remote_snapshots_are_read_by_line_until_ssh_ends() {
        let directory = tempfile::tempdir().unwrap();
        let line = serde_json::to_string(&Snapshot { time_ns: 7, ..Snapshot::default() }).unwrap();
        let program = fake_ssh(directory.path(), &format!("echo '{line}'; echo '{line}'"));
        let mut source = Source::remote(&program, "host", OsStr::new("run")).unwrap();
        assert_eq!(source.next().unwrap().unwrap().time_ns, 7);
        assert!(source.next().unwrap().is_some() && source.next().unwrap().is_none());
    }

    #[test]
    fn paths_without_a_run_are_refused() {
        let directory = tempfile::tempdir().unwrap();
        let program = Path::new("tprof");
        let error = |path: &Path| Source::open(path.as_os_str(), program, false).err().unwrap();
        assert!(error(directory.path()).what.ends_with("is not a run"));
        assert!(error(&directory.path().join("absent")).what.starts_with("cannot open"));
        let file = directory.path().join("notes.txt");
        std::fs::write(&file, "a").unwrap();
        assert!(error(&file).what.ends_with("is not a run"));
    }
}
