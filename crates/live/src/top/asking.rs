//! Asks why ranks stand still: `tprof where`, once each time that other ranks do.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::mpsc::{self, Receiver, TryRecvError};
use std::thread;

use crate::snapshot::{RunState, Snapshot, StallVerdict};

/// Asks about one run, in the background.
pub(super) struct Asking {
    program: PathBuf,
    run: OsString,
    /// Labels of the ranks about which was asked last.
    ranks: Vec<String>,
    answer: Option<Receiver<Option<StallVerdict>>>,
    verdict: Option<StallVerdict>,
}

impl Asking {
    /// Prepares to ask about a run. `program` is the path of tprof.
    pub fn new(program: PathBuf, run: OsString) -> Asking {
        Asking { program, run, ranks: Vec::new(), answer: None, verdict: None }
    }

    /// Adds the verdict to a snapshot with ranks that stand still, once it is known. With `waits`,
    /// waits for the answer.
    pub fn tell(&mut self, snapshot: &mut Snapshot, waits: bool) {
        let is_running = snapshot.state == RunState::Running;
        let stalls = snapshot.stalls.iter().filter(|_| is_running);
        let ranks: Vec<String> = stalls.map(|stall| stall.label.clone()).collect();
        if ranks != self.ranks {
            (self.verdict, self.answer) = (None, (!ranks.is_empty()).then(|| self.ask()));
            self.ranks = ranks;
        }
        if let Some(answer) = &self.answer {
            let told = match waits {
                true => answer.recv().map_err(|_| TryRecvError::Disconnected),
                false => answer.try_recv(),
            };
            match told {
                Ok(verdict) => (self.verdict, self.answer) = (verdict, None),
                Err(TryRecvError::Empty) => {}
                Err(TryRecvError::Disconnected) => self.answer = None,
            }
        }
        snapshot.verdict.clone_from(&self.verdict);
    }

    /// Begins to ask. If the collector is busy or gone, there is no verdict: the stalls are shown all
    /// the same.
    fn ask(&self) -> Receiver<Option<StallVerdict>> {
        let (to, from) = mpsc::channel();
        let mut command = Command::new(&self.program);
        command.args(["where", "--json", "--"]).arg(&self.run);
        command.stdin(Stdio::null()).stderr(Stdio::null());
        thread::spawn(move || {
            let output = command.output().ok().filter(|output| output.status.success());
            let answer = output.and_then(|of| serde_json::from_slice(&of.stdout).ok());
            // Who asked may have gone.
            let _ = to.send(answer.map(|Answer { verdict }| verdict));
        });
        from
    }
}

/// The part of the answer that is shown.
#[derive(serde::Deserialize)]
struct Answer {
    verdict: StallVerdict,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::Stall;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn the_verdict_is_asked_for_once_for_the_same_ranks() {
        let directory = tempfile::tempdir().unwrap();
        let (program, count) = (directory.path().join("tprof"), directory.path().join("count"));
        let verdict = r#"{"kind":"late_rank","text":"rank 1 reads","rank":1}"#;
        let script = format!(
            "#!/bin/sh\n[ \"$*\" = 'where --json -- r1' ] || exit 1\necho >>'{}'\necho '{{\"verdict\":{verdict}}}'\n",
            count.display()
        );
        std::fs::write(&program, script).unwrap();
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
        let mut asking = Asking::new(program, "r1".into());
        let snapshot = |labels: &[&str]| {
            let stall = |label: &&str| Stall { label: (*label).to_owned(), ..Stall::default() };
            Snapshot { stalls: labels.iter().map(stall).collect(), ..Snapshot::default() }
        };
        let mut told = |labels: &[&str]| {
            let mut now = snapshot(labels);
            asking.tell(&mut now, true);
            now.verdict.map(|verdict| verdict.text)
        };
        assert_eq!(told(&[]), None);
        for _ in 0..2 {
            assert_eq!(told(&["rank 0", "rank 1"]).as_deref(), Some("rank 1 reads"));
        }
        assert_eq!(told(&[]), None, "they go on");
        assert_eq!(told(&["rank 1"]).as_deref(), Some("rank 1 reads"));
        assert_eq!(std::fs::read_to_string(count).unwrap(), "\n\n");
    }
}
