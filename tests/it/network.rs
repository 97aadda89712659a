//! What went over the network: bytes that one process really sends to another.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;
use tprof_tests::{
    Job, Live, Outcome, Refused, Scratch, am_root, document, need, program, traced, traced_job,
    wait_until,
};

use crate::mpi::{built, ranks_with};

const STEPS: u64 = 4;
const BYTES: u64 = 16 << 20;
const PYTHON: &str = "/usr/bin/python3";
/// Gives a network namespace of its own to a command, in which loopback is up.
const ALONE: [&str; 6] = ["unshare", "-n", "sh", "-c", "ip link set lo up && exec \"$@\"", "sh"];
/// The same, with at most 25 MB/s on loopback.
const SLOWED: [&str; 6] = [
    "unshare",
    "-n",
    "sh",
    "-c",
    "ip link set lo up mtu 1500 && tc qdisc add dev lo root tbf rate 200mbit burst 64kb latency 400ms \
     && exec \"$@\"",
    "sh",
];

fn exists(program: &str) -> bool {
    ["/usr/sbin", "/sbin"].iter().any(|folder| Path::new(folder).join(program).exists())
}

fn sender(gate: Option<&Path>) -> Job {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR"));
    let job = Job::new(PYTHON).arg("-B").arg(directory.join("programs/network_bytes.py"));
    let job = job.arg(STEPS.to_string()).arg(BYTES.to_string());
    let job = gate.into_iter().fold(job, |job, gate| job.arg(gate));
    job.env("PYTHONPATH", directory.join("../python"))
}

/// Runs a job in a network namespace of its own, beside which tprof stays in the present one.
fn alone(job: &Job) -> Job {
    job.behind(&ALONE.map(OsString::from))
}

/// Returns how many bytes the interface received in the steps, by the kernel's own count.
fn truth(outcome: &Outcome) -> f64 {
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    let text = outcome.stdout.lines().find_map(|line| line.strip_prefix("expect received="));
    text.unwrap().split(' ').next().unwrap().parse().unwrap()
}

fn rows(run: &Path) -> Vec<Value> {
    document("machine", run)["tables"]["network"].as_array().unwrap().clone()
}

/// Returns the row of loopback in the collector's network namespace, or in another one.
fn loopback(rows: &[Value], is_own: bool) -> Option<&Value> {
    rows.iter().find(|row| row["place"] == "lo" && row["namespace"].is_null() == is_own)
}

/// Checks the bytes of all steps and of one step against the kernel's count and the payload.
#[track_caller]
fn assert_bytes(row: &Value, truth: f64) {
    let payload = (STEPS * BYTES) as f64;
    assert!((payload..payload * 1.1).contains(&truth), "{truth}");
    for key in ["received_bytes", "sent_bytes"] {
        let bytes = row[key].as_f64().unwrap_or_else(|| panic!("{row}"));
        assert!((truth..truth * 1.01).contains(&bytes), "{key} {truth} {row}");
    }
    for key in ["step_received_bytes", "step_sent_bytes"] {
        let bytes = row[key].as_f64().unwrap_or_else(|| panic!("{row}"));
        let of_step = truth / STEPS as f64;
        assert!((of_step * 0.98..of_step * 1.01).contains(&bytes), "{key} {of_step} {row}");
    }
}

fn recorded(words: &[&str]) -> (Scratch, PathBuf, Outcome) {
    let scratch = Scratch::new();
    let run = scratch.run();
    let job = traced_job(&sender(None), &["--mem", "off"], &run).under(words);
    let outcome = job.run_in(scratch.path());
    (scratch, run, outcome)
}

#[test]
fn bytes_of_an_interface_are_those_that_the_kernel_counted() {
    need!(am_root(), Refused::Root);
    need!(Path::new(PYTHON).exists(), "no /usr/bin/python3");
    need!(exists("ip"), "no ip (iproute2)");
    let (_scratch, run, outcome) = recorded(&ALONE);
    let truth = truth(&outcome);
    let rows = rows(&run);
    let row = loopback(&rows, true).unwrap_or_else(|| panic!("{rows:?}"));
    assert_bytes(row, truth);
    // Loopback has no line rate, and so no share of it.
    assert!(row["line_bytes_per_s"].is_null() && row["peak_share"].is_null(), "{row}");
    assert_eq!([&row["errors"], &row["drops"]], [0, 0], "{row}");
}

#[test]
fn a_slowed_interface_has_no_higher_rate_than_it_can_have() {
    need!(am_root(), Refused::Root);
    need!(Path::new(PYTHON).exists(), "no /usr/bin/python3");
    need!(exists("ip") && exists("tc"), "no ip or tc (iproute2)");
    let slowed = Job::new("true").under(SLOWED).run_in(Scratch::new().path());
    need!(slowed.code == Some(0), Refused::Untraced);
    let (_scratch, run, outcome) = recorded(&SLOWED);
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    let rows = rows(&run);
    let row = loopback(&rows, true).unwrap_or_else(|| panic!("{rows:?}"));
    let peak = row["peak_sent_bytes_per_s"].as_f64().unwrap();
    // The bucket holds 64 KB, and a reading may take a while.
    assert!(peak < 25e6 * 1.5, "{row}");
    assert!(row["sent_bytes"].as_u64().unwrap() > STEPS * BYTES, "{row}");
}

#[test]
fn a_process_in_another_network_namespace_has_the_bytes_of_that_one() {
    need!(am_root(), Refused::Root);
    need!(Path::new(PYTHON).exists(), "no /usr/bin/python3");
    need!(exists("ip"), "no ip (iproute2)");
    let scratch = Scratch::new();
    let run = scratch.run();
    let gate = scratch.join("gate");
    let job = alone(&sender(Some(&gate)));
    let mut live = Live::start(&traced_job(&job, &["--mem", "off"], &run), &scratch.cwd());
    // The collector finds the namespace after the process has attached.
    wait_until("readings of the namespace", || {
        run.join("run.json").exists() && run.join("rank-0.tprof").exists() && {
            let rows = rows(&run);
            loopback(&rows, false).is_some()
        }
    });
    fs::write(&gate, "").unwrap();
    live.wait_for("expect received=");
    let is_read = |bytes: u64| bytes >= STEPS * BYTES;
    wait_until("a reading after the last step", || {
        let rows = rows(&run);
        let row = loopback(&rows, false);
        row.is_some_and(|row| row["received_bytes"].as_u64().is_some_and(is_read))
    });
    fs::remove_file(&gate).unwrap();
    let outcome = live.finish();
    let truth = truth(&outcome);
    let rows = rows(&run);
    let row = loopback(&rows, false).unwrap_or_else(|| panic!("{rows:?}"));
    assert_eq!(row["ranks"], "rank 0", "{row}");
    assert_bytes(row, truth);
}

#[test]
fn bytes_of_a_step_are_set_against_the_time_of_its_collectives() {
    need!(am_root(), Refused::Root);
    need!(exists("ip"), "no ip (iproute2)");
    let scratch = Scratch::new();
    let more = ["-D_GNU_SOURCE", "-ldl"];
    let Some(program) = built("openmpi", "mpi_network.c", &more, &scratch) else { return };
    let options = ["--mca", "btl", "tcp,self", "--mca", "btl_tcp_if_include", "lo"];
    let run = scratch.run();
    let job = traced_job(&ranks_with("openmpi", &options, &program), &["--mem", "off"], &run);
    let outcome = job.under(ALONE).run_in(scratch.path());
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    let report = document("comm", &run);
    let rows = report["tables"]["comm_network"].as_array().unwrap_or_else(|| panic!("{report}"));
    let row = loopback(rows, true).unwrap_or_else(|| panic!("{report}"));
    let float = |key: &str| row[key].as_f64().unwrap_or_else(|| panic!("{key} {row}"));
    // Each of two ranks sends all of its 8 MiB once.
    let payload = f64::from(16 << 20);
    let sent = float("step_sent_bytes");
    assert!((payload..payload * 1.1).contains(&sent), "{row}");
    let rate = sent / float("running_ns") * 1e9;
    assert!((float("most_bytes_per_s") / rate - 1.0).abs() < 1e-3, "{row}");
    let within_ns = outcome.stdout.lines().find_map(|line| line.strip_prefix("expect within="));
    let within_ns = within_ns.unwrap().parse::<f64>().unwrap() * 1e9 / 4.0;
    // Both ranks' reductions run at any time of this, and one of them may begin earlier.
    assert!(float("running_ns") >= within_ns * 0.9, "{within_ns} {row}");
}

#[test]
fn sockets_and_devices_of_nccls_threads_show_its_transport() {
    let scratch = Scratch::new();
    let run = traced(&Job::new(program("nccl_threads")), &["--mem", "off"], &scratch);
    assert_eq!(run.outcome.code, Some(0), "{:?}", run.outcome);
    let report = document("comm", &run.run);
    let rows = report["tables"]["comm_transports"].as_array().unwrap_or_else(|| panic!("{report}"));
    let of = |transport: &str| rows.iter().find(|row| row["transport"] == transport);
    let sockets = of("sockets").unwrap_or_else(|| panic!("{rows:?}"));
    assert_eq!(sockets["sent_bytes"], 8 << 20, "{sockets}");
    assert_eq!(sockets["received_bytes"], 0, "{sockets}");
    assert_eq!(sockets["step_sent_bytes"], 4 << 20, "{sockets}");
    assert!(of("shared memory").is_some(), "{rows:?}");
    assert!(of("InfiniBand").is_none(), "{rows:?}");
}
