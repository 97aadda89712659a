//! Requests reach the collectors of all hosts that share the run's directory. Namespaces with a host
//! name and a network of their own stand in for the second host.

use super::Hanging;
use serde_json::Value;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use tprof_tests::{
    Job, Live, Refused, Scratch, am_root, assert_refused, kill, need_some, rank_file, skip,
    stand_ins, tprof, tprof_at, traced_job, wait_until,
};

const OPTIONS: &[&str] = &["--activities", "gpu,comm,mem", "--if-exists", "join"];
const ELSEWHERE: [&str; 7] =
    ["unshare", "-u", "-n", "sh", "-c", "hostname elsewhere && exec \"$@\"", "sh"];

/// A job with rank 0 on this host and rank 1 on the host `elsewhere`.
struct TwoHosts {
    here: Hanging,
    there: Live,
    /// Pid of rank 1.
    pid: u32,
}

impl TwoHosts {
    fn start(how: &str, options: &[&str]) -> Result<Option<TwoHosts>, String> {
        TwoHosts::start_in(how, options, None)
    }

    /// Does the same, perhaps with the run of rank 1 in a directory of its own.
    fn start_in(
        how: &str,
        options: &[&str],
        directory: Option<&str>,
    ) -> Result<Option<TwoHosts>, String> {
        if !am_root() {
            skip(Refused::Root);
            return Ok(None);
        }
        let home = stand_ins()?;
        let scratch = Scratch::new();
        let job = |rank: &str| {
            Job::new(home.join("hang-12"))
                .arg(how)
                .env("RANK", rank)
                .env("WORLD_SIZE", "2")
                .env("MEETING", scratch.join("meeting"))
                .env("FAKE_NCCL_PATIENT", "1")
                .env("LD_LIBRARY_PATH", home.join("12"))
        };
        let (run, cwd) = (scratch.run(), scratch.cwd());
        let traced = |rank, run: &Path| traced_job(&job(rank), &[OPTIONS, options].concat(), run);
        let far = directory.map_or(run.clone(), |name| scratch.join(name));
        let mut there = Live::start(&traced("1", &far).under(ELSEWHERE), &cwd);
        let mut live = Live::start(&traced("0", &run), &cwd);
        let [own, pid] = [&mut live, &mut there].map(|live| {
            let line = live.wait_for("ready");
            line.split(' ').next_back().unwrap().parse().unwrap()
        });
        let here = Hanging { live, run, scratch, pids: vec![own] };
        Ok(Some(TwoHosts { here, there, pid }))
    }

    fn ctl(&self, words: &[&str]) -> String {
        let scratch = &self.here.scratch;
        let asked = tprof(["ctl"]).args(words).arg(&self.here.run).run_in(scratch.path());
        asked.expect_code(0).stderr
    }
}

/// Starts the job, or returns from the test if it can't run here.
macro_rules! two_hosts {
    ($how:literal, $options:expr) => {
        match need_some!(TwoHosts::start($how, $options)) {
            Some(hosts) => hosts,
            None => return,
        }
    };
}

#[test]
fn where_asks_all_hosts_that_share_the_directory() {
    let hosts = two_hosts!("late", &[]);
    let answer = hosts.here.verdict("late_rank");
    assert_eq!(answer["verdict"]["rank"], 1, "{answer:#}");
    assert_eq!(answer["verdict"]["function"], "loads", "{answer:#}");
    let text = answer["verdict"]["text"].as_str().unwrap();
    assert!(text.starts_with("rank 1 (host elsewhere) has not entered all_reduce 10"), "{text}");
    assert_eq!(answer["not_answered"], Value::Array(Vec::new()), "{answer:#}");
    // Nothing is left of the requests.
    assert!(!hosts.here.run.join("asked").exists());
}

/// A script stands in for ssh. It runs the command as a shell on the other host would.
#[test]
fn hosts_that_share_no_directory_are_asked_by_ssh() {
    let Some(hosts) = need_some!(TwoHosts::start_in("late", &[], Some("far run"))) else { return };
    let scratch = &hosts.here.scratch;
    let programs = scratch.join("programs");
    std::fs::create_dir(&programs).unwrap();
    std::os::unix::fs::symlink(tprof_at(), programs.join("tprof")).unwrap();
    let ssh = "#!/bin/sh\nfor last; do :; done\ncase \"$*\" in *' elsewhere tprof where '*) exec sh -c \"$last\";; esac\necho 'no route to host' >&2; exit 255\n";
    std::fs::write(programs.join("ssh"), ssh).unwrap();
    std::fs::set_permissions(programs.join("ssh"), Permissions::from_mode(0o755)).unwrap();
    let path = format!("{}:{}", programs.display(), std::env::var("PATH").unwrap());
    let far = format!("elsewhere:{}", scratch.join("far run").display());
    let ask = || {
        let asked = tprof(["where", "--json", "--from", &far, "--from", "gone:/r1"]);
        let asked = asked.arg(&hosts.here.run).env("PATH", &path).run_in(scratch.path());
        serde_json::from_str::<Value>(&asked.expect_code(0).stdout).unwrap()
    };
    let mut answer = Value::Null;
    wait_until("the late rank of the other host is named", || {
        answer = ask();
        answer["verdict"]["kind"] == "late_rank"
    });
    assert_eq!(
        (&answer["verdict"]["rank"], &answer["verdict"]["function"]),
        (&1.into(), &"loads".into())
    );
    let text = answer["verdict"]["text"].as_str().unwrap();
    assert!(text.starts_with("rank 1 (host elsewhere) has not entered all_reduce 10"), "{text}");
    let missing = answer["not_answered"].as_array().unwrap();
    assert_eq!(missing.len(), 1, "{answer:#}");
    assert_eq!(
        (&missing[0]["host"], &missing[0]["why"]),
        (&"gone".into(), &"no route to host".into())
    );
    let bad = tprof(["where", "--from", "elsewhere"]).run_in(scratch.path());
    assert_refused(&bad, &["bad value `elsewhere` for --from"]);
}

#[test]
fn a_request_is_carried_out_on_all_hosts() {
    let TwoHosts { here, there, pid } = {
        let hosts = two_hosts!("calm", &[]);
        assert_eq!(hosts.ctl(&["mark", "hello"]), "marked\n");
        hosts
    };
    for pid in [here.pids[0], pid] {
        assert!(kill(pid, libc::SIGKILL));
    }
    let (run, scratch) = (here.run.clone(), here.scratch);
    here.live.ended();
    there.ended();
    for rank in [0, 1] {
        let file = rank_file(&run, rank);
        assert!(file.marks().iter().any(|mark| file.name(mark.name) == "hello"), "rank {rank}");
    }
    drop(scratch);
}

#[test]
fn what_two_hosts_keep_is_written_together() {
    let hosts = two_hosts!("calm", &["--keep", "10s"]);
    let scratch = &hosts.here.scratch;
    let asked = tprof(["ctl", "dump", "--why", "loss jumped"]).arg(&hosts.here.run);
    let dump = hosts.here.run.join("dump-1");
    let told = asked.run_in(scratch.path()).expect_code(0).stdout;
    assert_eq!(told, format!("tprof report {}\n", dump.display()));
    for rank in [0, 1] {
        let file = rank_file(&dump, rank);
        assert!(file.is_closed(), "rank {rank}");
        assert!(file.marks().iter().any(|mark| file.name(mark.name) == "loss jumped"));
    }
}

#[test]
fn a_host_that_does_not_answer_is_named() {
    let hosts = two_hosts!("calm", &[]);
    wait_until("the other collector has written its rank", || {
        let files = std::fs::read_dir(&hosts.here.run).unwrap().map(|entry| entry.unwrap().path());
        let json = files.filter(|path| path.extension().is_some_and(|of| of == "json"));
        json.filter_map(|path| serde_json::from_slice::<Value>(&std::fs::read(path).ok()?).ok())
            .any(|info| info["host"] == "elsewhere" && info["ranks"][0]["rank"] == 1)
    });
    assert!(kill(hosts.there.pid(), libc::SIGSTOP));
    let answer = hosts.here.ask();
    assert_eq!(answer["not_answered"][0]["host"], "elsewhere", "{answer:#}");
    assert_eq!(answer["not_answered"][0]["ranks"], serde_json::json!([1]), "{answer:#}");
    let told = hosts.ctl(&["mark", "hello"]);
    assert!(told.starts_with("marked; host elsewhere is not reached: no answer in "), "{told}");
    assert!(kill(hosts.there.pid(), libc::SIGCONT));
    wait_until("it answers", || hosts.ctl(&["mark", "hello"]) == "marked\n");
}

#[test]
fn a_hang_of_two_hosts_is_told_once_and_ends_the_job_on_both() {
    let TwoHosts { here, there, .. } = two_hosts!("late", &["--on-hang", "2s,stop"]);
    let told: Vec<String> = [here.live, there]
        .into_iter()
        .map(|live| {
            let outcome = live.ended();
            assert_eq!(outcome.signal, Some(libc::SIGTERM), "{outcome:?}");
            outcome.stderr
        })
        .collect();
    let lines = told.iter().flat_map(|text| text.lines());
    let lines: Vec<&str> = lines.filter(|line| line.contains("so tprof ends it: ")).collect();
    assert_eq!(lines.len(), 1, "{told:?}");
    assert!(lines[0].contains("rank 1 (host elsewhere) has not entered"), "{lines:?}");
    assert!(here.run.join("hang-1.json").exists() && !here.run.join("hang-2.json").exists());
    drop(here.scratch);
}
