//! Asks tprof on other hosts what the ranks of their collectors do, by ssh: for jobs whose hosts share
//! no directory. Nothing listens for that, and ssh decides who may ask.

use crate::terminal::quote;
use serde::{Deserialize, Serialize};
use std::ffi::{OsStr, OsString};
use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tprof_facts::far_run::host_and_run;
use tprof_hang::{Answer, HostState, NotAnswered};

/// Longest time to wait for a host. Its collectors answer within five seconds, and those of further
/// hosts that share its directory too.
const WITHIN: Duration = Duration::from_secs(15);
/// Time between two looks whether a host has answered.
const LOOK: Duration = Duration::from_millis(20);
/// Longest answer to read, bytes.
const MAX_BYTES: u64 = 256 << 20;

/// What the collectors of a run know, as one tprof prints it for another.
#[derive(Debug, Serialize, Deserialize)]
pub struct States {
    /// Version of the tprof that printed this. Another version may mean something else.
    tprof: String,
    hosts: Vec<HostState>,
    not_answered: Vec<NotAnswered>,
}

impl States {
    /// Returns what an answer was made from.
    pub fn of(answer: &Answer) -> States {
        let (hosts, not_answered) = (answer.hosts.clone(), answer.not_answered.clone());
        States { tprof: env!("CARGO_PKG_VERSION").to_owned(), hosts, not_answered }
    }
}

/// A run on another host: `HOST:RUN`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FarRun {
    host: String,
    run: OsString,
}

impl FarRun {
    /// Parses `HOST:RUN`; `None` if it is something else.
    pub fn parse(text: &OsStr) -> Option<FarRun> {
        host_and_run(text).map(|(host, run)| FarRun { host, run })
    }

    /// Starts to ask. `program` is ssh.
    fn ask(&self, program: &OsStr) -> std::io::Result<Child> {
        let mut command = OsString::from("tprof where --states -- ");
        command.push(quote::quoted(&self.run));
        Command::new(program)
            // Several hosts are asked at once, so none may ask for a password.
            .args(["-T", "-o", "BatchMode=yes", "-o", "ConnectTimeout=5", "--", &self.host])
            .arg(command)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
    }
}

/// Asks these hosts at the same time, and adds what they answer to the answer for a run of this host,
/// if there is one. Hosts that don't answer are named.
pub fn with_others(own: Option<Answer>, runs: &[FarRun]) -> Answer {
    with_others_by(OsStr::new("ssh"), own, runs)
}

fn with_others_by(program: &OsStr, own: Option<Answer>, runs: &[FarRun]) -> Answer {
    let (mut hosts, mut missing) =
        own.map_or_else(Default::default, |own| (own.hosts, own.not_answered));
    let until = Instant::now() + WITHIN;
    let answers: Vec<Result<States, String>> = std::thread::scope(|scope| {
        let asked: Vec<_> = runs
            .iter()
            .map(|run| scope.spawn(move || answer_of(run.ask(program), until)))
            .collect();
        let failed = |_| Err("its thread failed".to_owned());
        asked.into_iter().map(|asked| asked.join().unwrap_or_else(failed)).collect()
    });
    for (run, answer) in runs.iter().zip(answers) {
        match answer {
            // Hosts that share a directory answer for each other.
            Ok(states) => {
                let is_new = |of: &HostState| !hosts.iter().any(|known| known.host == of.host);
                let new: Vec<HostState> = states.hosts.into_iter().filter(is_new).collect();
                hosts.extend(new);
                missing.extend(states.not_answered);
            }
            Err(why) => {
                missing.push(NotAnswered { host: run.host.clone(), ranks: Vec::new(), why })
            }
        }
    }
    missing.retain(|of| !hosts.iter().any(|known| known.host == of.host));
    Answer::new(hosts, missing)
}

/// Returns what a host says, or why it says nothing.
fn answer_of(asked: std::io::Result<Child>, until: Instant) -> Result<States, String> {
    let mut child = asked.map_err(|error| format!("cannot start ssh: {error}"))?;
    let (out, errors) = (child.stdout.take(), child.stderr.take());
    // The output is read elsewhere: a long answer would fill the pipe, and a connection that ssh
    // shares keeps its pipes open after its end.
    let read = |pipe: Option<Box<dyn Read + Send>>| {
        let (to, from) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let mut bytes = Vec::new();
            let read = pipe.map(|pipe| pipe.take(MAX_BYTES).read_to_end(&mut bytes));
            let _ = (read, to.send(bytes));
        });
        from
    };
    let out = read(out.map(|pipe| Box::new(pipe) as _));
    let errors = read(errors.map(|pipe| Box::new(pipe) as _));
    while matches!(child.try_wait(), Ok(None)) {
        if Instant::now() >= until {
            let _ = (child.kill(), child.wait());
            return Err(format!("no answer in {} seconds", WITHIN.as_secs()));
        }
        std::thread::sleep(LOOK);
    }
    let text = out.recv_timeout(Duration::from_secs(1)).unwrap_or_default();
    if let Ok(states) = serde_json::from_slice::<States>(&text) {
        let own = env!("CARGO_PKG_VERSION");
        return match states.tprof == own {
            true => Ok(states),
            false => Err(format!("it is tprof {}, and this is tprof {own}", states.tprof)),
        };
    }
    let message = errors.recv_timeout(Duration::from_secs(1)).unwrap_or_default();
    let message = String::from_utf8_lossy(&message).trim().to_owned();
    let cause = message.lines().find_map(|line| line.strip_prefix("cause: "));
    match cause.or(message.lines().last()).unwrap_or_default() {
        "" => Err("its answer is not tprof's".to_owned()),
        why => Err(why.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;
    use std::path::Path;
    use tprof_hang::{Kind, RankState};

    fn fake_ssh(directory: &Path, script: &str) -> OsString {
        let program = directory.join("ssh");
        std::fs::write(&program, format!("#!/bin/sh\n{script}\n")).unwrap();
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
        program.into_os_string()
    }

    fn state(host: &str, rank: u32) -> HostState {
        let rank = RankState { rank, host: host.to_owned(), ..RankState::default() };
        HostState { host: host.to_owned(), ranks: vec![rank], ..HostState::default() }
    }

    #[test]
    fn answers_of_hosts_are_joined_and_those_that_fail_are_named() {
        let directory = tempfile::tempdir().unwrap();
        let states = States::of(&Answer::new(vec![state("b", 1), state("a", 0)], Vec::new()));
        let old = States { tprof: "0.0.1".into(), hosts: Vec::new(), not_answered: Vec::new() };
        let text = |states: &States| serde_json::to_string(states).unwrap();
        // A fake ssh gets the host as the seventh argument, and the command as the eighth.
        let script = format!(
            r#"case "$7 $8" in
            "b tprof where --states -- '/r/it'\\''s'") echo '{}';;
            "c "*) echo '{}';;
            "d "*) echo 'error: no' >&2; echo 'cause: the run has ended' >&2; exit 1;;
            *) echo "ssh: no route to $7" >&2; exit 255;;
            esac"#,
            text(&states),
            text(&old)
        );
        let program = fake_ssh(directory.path(), &script);
        let runs = ["b:/r/it's", "c:/r", "d:/r", "e:/r"];
        let runs: Vec<_> = runs.map(|run| FarRun::parse(OsStr::new(run)).unwrap()).into();
        let own = Answer::new(vec![state("a", 0)], Vec::new());
        let answer = with_others_by(&program, Some(own), &runs);
        let hosts: Vec<&str> = answer.hosts.iter().map(|of| of.host.as_str()).collect();
        assert_eq!(hosts, ["a", "b"], "{answer:?}");
        let missing = |at: usize| (&*answer.not_answered[at].host, &*answer.not_answered[at].why);
        assert!(missing(0).0 == "c" && missing(0).1.starts_with("it is tprof 0.0.1, and this is "));
        assert_eq!(missing(1), ("d", "the run has ended"));
        assert_eq!(missing(2), ("e", "ssh: no route to e"));
        assert_eq!(answer.verdict.kind, Kind::Unknown);
        let none = with_others_by(OsStr::new("/absent/ssh"), None, &runs[..1]);
        assert!(none.not_answered[0].why.starts_with("cannot start ssh: "), "{none:?}");
    }
}
