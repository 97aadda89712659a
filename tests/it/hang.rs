//! `tprof where`: jobs that stand still while they are asked, each for a planted reason, and jobs
//! that don't. The verdict names the rank and the line, and nothing else is blamed.

mod dumps;
mod hosts;
mod mpi;
mod on_hang;
mod slow_step;

use serde_json::Value;
use std::path::{Path, PathBuf};
use tprof_tests::{
    Job, Live, Refused, Scratch, Served, assert_refused, host_name, kill, need_some, program, skip,
    stand_ins, tprof, traced_job, wait_until,
};

const COMM: &[&str] = &["--activities", "gpu,comm,mem"];

/// A job that runs under tprof, and the pids of its ranks.
struct Hanging {
    live: Live,
    run: PathBuf,
    scratch: Scratch,
    pids: Vec<u32>,
}

impl Hanging {
    /// Starts a job, and waits until `ranks` of its processes have printed `ready RANK PID`, or
    /// until it has printed `ready` if there are none.
    fn start(job: &Job, options: &[&str], scratch: Scratch, ranks: usize) -> Hanging {
        let run = scratch.run();
        let mut live = Live::start(&traced_job(job, options, &run), &scratch.cwd());
        let mut pids = vec![0; ranks];
        for _ in 0..ranks.max(1) {
            let line = live.wait_for("ready");
            let words: Vec<usize> = line.split(' ').filter_map(|word| word.parse().ok()).collect();
            if let [rank, pid] = words[..] {
                pids[rank] = pid as u32;
            }
        }
        Hanging { live, run, scratch, pids }
    }

    fn ask(&self) -> Value {
        let answer = tprof(["where", "--json"]).arg(&self.run).run_in(self.scratch.path());
        serde_json::from_str(&answer.expect_code(0).stdout).unwrap()
    }

    /// Asks until the verdict has this kind. Until the ranks have stood still for long enough, the
    /// job is healthy or the reason is unknown; no other verdict may appear.
    #[track_caller]
    fn verdict(&self, kind: &str) -> Value {
        let mut last = Value::Null;
        wait_until(kind, || {
            last = self.ask();
            let now = last["verdict"]["kind"].as_str().unwrap();
            assert!([kind, "healthy", "unknown"].contains(&now), "not {kind}: {last:#}");
            now == kind
        });
        last
    }

    fn text(&self, words: &[&str]) -> String {
        let asked = tprof(["where"]).args(words).arg(&self.run).run_in(self.scratch.path());
        asked.expect_code(0).stdout
    }
}

/// Returns the line of a source file that has this text.
fn line_of(source: &Path, text: &str) -> u64 {
    let content = std::fs::read_to_string(source).unwrap();
    let at = content.lines().position(|line| line.contains(text));
    at.unwrap_or_else(|| panic!("no {text:?} in {}", source.display())) as u64 + 1
}

fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

/// Checks rank, function and line of a verdict.
#[track_caller]
fn blames(answer: &Value, rank: u64, function: &str, source: &Path, text: &str) {
    let verdict = &answer["verdict"];
    assert_eq!(verdict["rank"], rank, "{answer:#}");
    assert_eq!(verdict["function"], function, "{answer:#}");
    assert_eq!(verdict["line"], line_of(source, text), "{answer:#}");
    assert!(verdict["file"].as_str().unwrap().ends_with(source.to_str().unwrap()), "{answer:#}");
}

/// Starts two ranks on the stand-ins for NCCL.
fn nccl(how: &str, stuck: Option<u32>) -> Result<Hanging, String> {
    nccl_with(how, stuck, &[])
}

/// Does the same, with options of `tprof run`.
fn nccl_with(how: &str, stuck: Option<u32>, options: &[&str]) -> Result<Hanging, String> {
    let home = stand_ins()?;
    let scratch = Scratch::new();
    let both =
        format!("RANK=0 {0} {how} & RANK=1 {0} {how} & wait", home.join("hang-12").display());
    let mut job = Job::sh(&both)
        .env("WORLD_SIZE", "2")
        .env("MEETING", scratch.join("meeting"))
        .env("FAKE_NCCL_PATIENT", "1")
        .env("LD_LIBRARY_PATH", home.join("12"));
    if let Some(round) = stuck {
        job = job.env("FAKE_NCCL_STUCK", round.to_string());
    }
    Ok(Hanging::start(&job, &[COMM, options].concat(), scratch, 2))
}

fn hang_c() -> PathBuf {
    source("fake-cuda/hang.c")
}

#[test]
fn a_rank_that_has_not_entered_an_operation_is_named_with_its_line() {
    let hanging = need_some!(nccl("late", None));
    let answer = hanging.verdict("late_rank");
    blames(&answer, 1, "loads", &hang_c(), "HERE late");
    let text = answer["verdict"]["text"].as_str().unwrap();
    assert!(text.contains("has not entered all_reduce 10 of group "), "{text}");
    assert!(text.contains("it is in `pause` at loads"), "{text}");
    assert!(text.ends_with("1 rank waits for it"), "{text}");
    let (first, second) = (&answer["ranks"][0], &answer["ranks"][1]);
    assert_eq!((&first["rank"], &second["rank"]), (&0.into(), &1.into()));
    assert_eq!(first["host"], host_name(), "{answer:#}");
    assert_eq!(first["collective"]["operation"], "all_reduce");
    assert_eq!(first["collective"]["number"], 10);
    assert_eq!(first["collective"]["bytes"], 4096);
    assert!(second["collective"].is_null(), "{second:#}");
    let functions = |rank: &Value| -> Vec<String> {
        let frames = rank["stack"].as_array().unwrap().iter();
        frames.map(|frame| frame["function"].as_str().unwrap().to_owned()).collect()
    };
    for wanted in ["waits", "reduces", "main"] {
        assert!(functions(first).iter().any(|name| name == wanted), "{first:#}");
    }
    let shown = hanging.text(&[]);
    assert!(shown.starts_with("late rank: rank 1 (host "), "{shown}");
    let only = hanging.text(&["--rank", "0"]);
    assert!(only.contains("\nrank 0: ") && !only.contains("\nrank 1: "), "{only}");
    let refused = tprof(["where", "--rank", "7"]).arg(&hanging.run).run_in(hanging.scratch.path());
    assert_refused(&refused, &["rank 7 has not answered"]);
}

#[test]
fn a_rank_that_has_ended_is_named_with_its_status() {
    let hanging = need_some!(nccl("ends", None));
    let answer = hanging.verdict("dead_rank");
    assert_eq!(answer["verdict"]["rank"], 1);
    let text = answer["verdict"]["text"].as_str().unwrap();
    assert!(text.contains("exited with status 3"), "{text}");
    assert_eq!(answer["ranks"][1]["end"]["status"], 3, "{answer:#}");
}

#[test]
fn a_rank_that_was_killed_is_named_with_the_signal() {
    let hanging = need_some!(nccl("calm", None));
    assert!(kill(hanging.pids[1], libc::SIGKILL));
    let answer = hanging.verdict("dead_rank");
    assert_eq!(answer["verdict"]["rank"], 1);
    assert_eq!(answer["ranks"][1]["end"]["signal"], libc::SIGKILL, "{answer:#}");
}

#[test]
fn a_stopped_rank_is_named() {
    let hanging = need_some!(nccl("calm", None));
    assert!(kill(hanging.pids[1], libc::SIGSTOP));
    let answer = hanging.verdict("late_rank");
    assert_eq!(answer["verdict"]["rank"], 1, "{answer:#}");
    let text = answer["verdict"]["text"].as_str().unwrap();
    assert!(text.contains("is stopped") && text.contains("1 rank waits"), "{text}");
    assert_eq!(answer["ranks"][1]["waits_for"]["kind"], "stopped", "{answer:#}");
    assert!(kill(hanging.pids[1], libc::SIGCONT));
    hanging.verdict("healthy");
}

#[test]
fn a_kernel_that_does_not_end_is_named_with_the_line_that_waits_for_it() {
    for calls in ["cupti", "hooks"] {
        let hanging = need_some!(nccl_with("kernel", None, &["--cuda-calls", calls]));
        let answer = hanging.verdict("kernel");
        blames(&answer, 1, "waits", &hang_c(), "HERE waits");
        let text = answer["verdict"]["text"].as_str().unwrap();
        assert!(text.contains("has not entered all_reduce 10 of group "), "{text}");
        // Records of kernels come late. After that, those that have none are known.
        let mut last = Value::Null;
        wait_until("the oldest kernels", || {
            last = hanging.ask();
            let ranks = last["ranks"].as_array().unwrap();
            ranks.iter().all(|rank| !rank["streams"].as_array().unwrap().is_empty())
        });
        let text = last["verdict"]["text"].as_str().unwrap();
        assert!(text.contains("the kernel spins(float*), launched "), "{calls}: {text}");
        assert!(text.contains("has not ended (3 more wait behind it)"), "{calls}: {text}");
        // The other rank's operation waits in a kernel as well.
        let other = last["ranks"][0]["streams"][0]["oldest"]["kernel"].as_str().unwrap();
        assert!(other.starts_with("ncclDevKernel_AllReduce"), "{calls}: {last:#}");
        let shown = hanging.text(&["--rank", "1"]);
        let stream = "default stream: 4 kernels have not ended, first spins(float*), launched";
        assert!(shown.contains(stream), "{calls}: {shown}");
    }
}

#[test]
fn different_operations_at_one_place_are_a_mismatch_of_both_lines() {
    let hanging = need_some!(nccl("apart", Some(12)));
    let answer = hanging.verdict("mismatch");
    let text = answer["verdict"]["text"].as_str().unwrap();
    assert!(text.contains("operation 10"), "{text}");
    assert!(text.contains("is in all_reduce of 4.0 KiB"), "{text}");
    assert!(text.contains("is in broadcast of 4.0 KiB"), "{text}");
}

#[test]
fn ranks_that_are_all_in_one_operation_wait_for_the_network() {
    let hanging = need_some!(nccl("calm", Some(12)));
    let answer = hanging.verdict("network");
    assert_eq!(answer["verdict"]["rank"], Value::Null);
    let text = answer["verdict"]["text"].as_str().unwrap();
    assert!(text.contains("all 2 ranks are in all_reduce 10 of group "), "{text}");
    // Both ranks do the same, so they are shown once.
    assert!(hanging.text(&[]).contains("\n2 ranks (0-1): "), "{}", hanging.text(&[]));
}

#[test]
fn ranks_whose_operations_go_on_are_healthy() {
    let hanging = need_some!(nccl("calm", None));
    for _ in 0..5 {
        let answer = hanging.ask();
        assert_eq!(answer["verdict"]["kind"], "healthy", "{answer:#}");
    }
}

#[test]
fn two_threads_that_wait_for_each_others_mutexes_are_a_deadlock_with_both_lines() {
    let locks = Job::new(program("locks")).arg("deadlock");
    let hanging = Hanging::start(&locks, &["--mem", "off"], Scratch::new(), 0);
    let answer = hanging.verdict("deadlock");
    let source = source("programs/locks.c");
    blames(&answer, 0, "takes_second", &source, "HERE main");
    let text = answer["verdict"]["text"].as_str().unwrap();
    for (function, line) in [("takes_second", "HERE main"), ("takes_first", "HERE worker")] {
        let place = format!("{function} ({}:{})", source.display(), line_of(&source, line));
        assert!(text.contains(&place), "{place} in {text}");
    }
    assert!(answer["ranks"][0]["waits_for"]["holder"].is_number(), "{answer:#}");
    // The second thread is shown only with --rank.
    assert!(hanging.text(&["--rank", "0"]).contains("takes_first ("));
}

#[test]
fn the_server_gives_the_same_answer() {
    let locks = Job::new(program("locks")).arg("deadlock");
    let hanging = Hanging::start(&locks, &["--mem", "off"], Scratch::new(), 0);
    let served = Served::start(hanging.scratch.path(), &[]);
    let path = format!("/api/v1/runs/{}/where", served.id_of(&hanging.run));
    let (answer, own) = (served.json(&path), hanging.ask());
    assert_eq!(answer["verdict"], own["verdict"]);
    assert_eq!(answer["verdict"]["kind"], "deadlock", "{answer:#}");
}

#[test]
fn top_shows_why_ranks_stand_still() {
    let quiet = Job::new(program("goes_quiet")).args(["sleeps", "600"]);
    let run = Scratch::new();
    let at = run.run();
    let live = Live::start(&traced_job(&quiet, &["--mem", "off"], &at), &run.cwd());
    wait_until("the run is there", || at.join("run.json").exists());
    let mut shown = Value::Null;
    wait_until("top shows the verdict", || {
        let top = tprof(["top", "--once", "--json"]).arg(&at).run_in(run.path());
        shown = serde_json::from_str(&top.stdout).unwrap_or_default();
        shown["verdict"].is_object()
    });
    assert_eq!(shown["verdict"]["kind"], "unknown", "{shown:#}");
    let line = line_of(&source("programs/goes_quiet.c"), "HERE sleeps");
    let text = shown["verdict"]["text"].as_str().unwrap();
    assert!(text.contains(&format!("goes_quiet.c:{line})")), "{text}");
    let top = tprof(["top", "--once"]).arg(&at).run_in(run.path()).expect_code(0);
    assert!(top.stdout.contains("\nunknown: rank 0 "), "{}", top.stdout);
    drop(live);
}

#[test]
fn a_mutex_whose_holder_waits_for_input_is_no_deadlock() {
    let locks = Job::new(program("locks")).arg("held");
    let hanging = Hanging::start(&locks, &["--mem", "off"], Scratch::new(), 0);
    let answer = hanging.ask();
    assert_eq!(answer["verdict"]["kind"], "unknown", "{answer:#}");
    let wait = &answer["ranks"][0]["waits_for"];
    assert!(wait["text"].as_str().unwrap().starts_with("a lock, held by thread "), "{answer:#}");
    assert_eq!(hanging.live.finish().code, Some(0));
}

#[test]
fn pythons_lock_and_a_mutex_can_be_a_deadlock() {
    let source = source("programs/gil_lock.py");
    let job = Job::new("python3").arg(&source);
    let hanging = Hanging::start(&job, &["--mem", "off"], Scratch::new(), 0);
    let answer = hanging.verdict("deadlock");
    blames(&answer, 0, "takes_mutex", &source, "HERE main");
    let text = answer["verdict"]["text"].as_str().unwrap();
    assert!(text.contains(" at worker (") && text.contains("for Python's lock"), "{text}");
}

#[test]
fn a_job_whose_steps_go_on_is_healthy_and_unchanged() {
    let job = Job::new(program("scheduled")).args(["abi", "0", "20"]);
    let run = Scratch::new();
    let at = run.run();
    let mut live = Live::start(&traced_job(&job, &["--mem", "off"], &at), &run.cwd());
    live.wait_for("step 6");
    let asked = tprof(["where", "--json"]).arg(&at).run_in(run.path()).expect_code(0);
    let answer: Value = serde_json::from_str(&asked.stdout).unwrap();
    assert_eq!(answer["verdict"]["kind"], "healthy", "{answer:#}");
    let text = answer["verdict"]["text"].as_str().unwrap();
    assert!(text.starts_with("steps go on, "), "{text}");
    assert!(answer["ranks"][0]["step"].as_u64() >= Some(6), "{answer:#}");
    assert_eq!(live.finish().code, Some(0));
    let ended = tprof(["where"]).arg(&at).run_in(run.path());
    assert_refused(&ended, &["has ended"]);
}

#[test]
fn a_program_that_waits_for_input_is_unknown_with_what_it_waits_for() {
    let hanging =
        Hanging::start(&Job::sh("echo ready; exec cat"), &["--mem", "off"], Scratch::new(), 0);
    let answer = hanging.ask();
    assert_eq!(answer["verdict"]["kind"], "unknown", "{answer:#}");
    assert_eq!(answer["ranks"][0]["waits_for"]["text"], "a pipe", "{answer:#}");
    assert_eq!(hanging.live.finish().code, Some(0));
}

/// A run of two hosts in one directory: the collector of one has written its info, and can't be
/// asked.
#[test]
fn ranks_of_a_host_that_cannot_be_asked_are_named() {
    let hanging = need_some!(nccl("late", None));
    let mut info = Value::Null;
    wait_until("both ranks are in the file", || {
        let own = std::fs::read_to_string(hanging.run.join("run.json")).unwrap();
        info = serde_json::from_str(&own).unwrap();
        info["ranks"].as_array().is_some_and(|ranks| ranks.len() == 2)
    });
    info["host"] = "elsewhere".into();
    info["ranks"][0]["rank"] = 2.into();
    info["ranks"][1]["rank"] = 3.into();
    std::fs::write(hanging.run.join("run-elsewhere.json"), info.to_string()).unwrap();
    let answer = hanging.verdict("late_rank");
    assert_eq!(answer["not_answered"][0]["host"], "elsewhere", "{answer:#}");
    assert_eq!(answer["not_answered"][0]["ranks"], serde_json::json!([2, 3]), "{answer:#}");
    let shown = hanging.text(&[]);
    assert!(shown.contains("not answered: host elsewhere (ranks 2-3): "), "{shown}");
}

/// Starts two ranks of gloo.
fn gloo(how: &str) -> Option<(Hanging, PathBuf)> {
    let Some(python) = std::env::var_os("TPROF_TEST_TORCH") else {
        skip(Refused::PyTorch);
        return None;
    };
    let source = source("programs/hang_torch.py");
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let one = format!("'{}' -B '{}' {how}", Path::new(&python).display(), source.display());
    let job = Job::sh(&format!("RANK=0 {one} & RANK=1 {one} & wait"))
        .env("WORLD_SIZE", "2")
        .env("MASTER_ADDR", "127.0.0.1")
        .env("MASTER_PORT", port.to_string())
        .env("OMP_NUM_THREADS", "1");
    Some((Hanging::start(&job, &["--mem", "off"], Scratch::new(), 2), source))
}

#[test]
fn a_rank_of_gloo_that_sleeps_in_its_loader_is_late() {
    let Some((hanging, source)) = gloo("late") else { return };
    let answer = hanging.verdict("late_rank");
    blames(&answer, 1, "load", &source, "HERE late");
    assert_eq!(answer["ranks"][0]["collective"]["operation"], "all_reduce", "{answer:#}");
    assert_eq!(answer["ranks"][0]["collective"]["number"], 20, "{answer:#}");
    assert_eq!(answer["ranks"][0]["step"], 9, "{answer:#}");
}

#[test]
fn a_stopped_rank_of_gloo_is_named() {
    let Some((hanging, _)) = gloo("calm") else { return };
    assert!(kill(hanging.pids[1], libc::SIGSTOP));
    let answer = hanging.verdict("late_rank");
    assert_eq!(answer["verdict"]["rank"], 1, "{answer:#}");
    assert!(kill(hanging.pids[1], libc::SIGCONT));
    hanging.verdict("healthy");
}

#[test]
fn a_barrier_that_one_rank_of_gloo_leaves_out_is_a_mismatch() {
    let Some((hanging, source)) = gloo("barrier") else { return };
    let answer = hanging.verdict("mismatch");
    let text = answer["verdict"]["text"].as_str().unwrap();
    for here in ["HERE barrier", "HERE reduces"] {
        assert!(text.contains(&format!(":{})", line_of(&source, here))), "{here} in {text}");
    }
}

#[test]
fn ranks_of_gloo_whose_steps_go_on_are_healthy() {
    let Some((hanging, _)) = gloo("calm") else { return };
    for _ in 0..3 {
        assert_eq!(hanging.ask()["verdict"]["kind"], "healthy");
    }
}
