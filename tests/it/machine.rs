//! Errors of the machine beside the run: those of GPUs, which NVML's stand-in has; lines of a file
//! in the place of the kernel's log; and packets that a socket's filter really drops.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;
use tprof_tests::{
    Job, Outcome, Refused, Scratch, Traced, am_root, can_mount, document, need, need_some,
    stand_ins, tprof, traced, traced_job, train, what_ran,
};
use tprof_trace::TraceFile;
use tprof_trace::model::MarkKind;

const RULE: &str = "MachineErrors";

/// Runs a training job on the first of these simulated devices. The last one has these faults.
/// `after` follows the command in a shell.
fn trained(devices: &str, faults: &str, after: &str) -> Result<(Scratch, Traced, PathBuf), String> {
    let scratch = Scratch::new();
    let (_, log) = train(12, &[], &scratch)?;
    let home = stand_ins()?;
    let script = format!("\"$@\"; {after}");
    let job = Job::new("sh")
        .args(["-c", &script, "sh"])
        .arg(home.join("train-12"))
        .arg("150")
        .env("LD_LIBRARY_PATH", home.join("12"))
        .env("FAKE_CUDA_LOG", &log)
        .env("FAKE_CUDA_BLOCK_NS", "100000")
        .env("FAKE_CUDA_DEVICES", devices)
        .env("FAKE_NVML_FAULTS", faults);
    let options = ["--activities", "gpu", "--gpu-interval", "100ms"];
    let run = traced(&job, &options, &scratch);
    Ok((scratch, run, log))
}

fn rows<'d>(report: &'d Value, table: &str) -> &'d [Value] {
    report["tables"][table].as_array().map_or(&[], Vec::as_slice)
}

/// Returns the errors that the GPU driver reported. The machine's kernel may log others meanwhile.
fn of_driver(report: &Value) -> Vec<&Value> {
    rows(report, "errors").iter().filter(|row| row["source"] == "driver").collect()
}

/// Returns the findings of the rule.
fn judged(run: &Path) -> Vec<Value> {
    let report = document("findings", run);
    let found = rows(&report, "findings").iter().filter(|row| row["rule"] == RULE);
    found.cloned().collect()
}

/// Returns the counts of errors by counter, device and place.
fn counts(report: &Value) -> Vec<(String, Option<u64>, Option<String>, u64)> {
    let of_row = |row: &Value| {
        let text = |key: &str| row[key].as_str().map(str::to_owned);
        (
            text("counter").unwrap(),
            row["gpu"].as_u64(),
            text("place"),
            row["count"].as_u64().unwrap(),
        )
    };
    rows(report, "counters").iter().map(of_row).collect()
}

#[test]
fn an_xid_is_on_the_timeline_and_is_found_with_the_failure_that_followed() {
    let (scratch, run, log) = need_some!(trained("1", "xid=79,ecc", "exit 3"));
    assert_eq!(run.outcome.code, Some(3), "{:?}", run.outcome);
    let told = what_ran(&log).into_iter().filter(|line| line["what"] == "nvml event").count();
    assert_eq!(told, 2, "the job ended before the stand-in had told of its errors");
    let report = document("machine", &run.run);
    let errors = of_driver(&report);
    let texts: Vec<&str> = errors.iter().map(|row| row["error"].as_str().unwrap()).collect();
    assert_eq!(
        texts,
        [
            "XID 79 on GPU 0: the GPU does not respond on the PCIe bus any more",
            "uncorrected ECC error on GPU 0"
        ]
    );
    assert!(errors.iter().all(|row| row["gpu"] == 0 && row["weight"] == "fatal"));
    let found = judged(&run.run);
    let mut whats: Vec<&str> = found.iter().map(|row| row["what"].as_str().unwrap()).collect();
    whats.sort_unstable();
    assert_eq!(whats, ["a GPU had a fault", "a GPU was lost"]);
    for finding in &found {
        assert_eq!(finding["severity"], "critical");
        assert!(finding["seen"].as_str().unwrap().contains("ended with status 3"), "{finding}");
    }

    // The marks are on the timeline.
    let out = scratch.join("out");
    let export = tprof(["export", "--to", "chrome", "-o"]).arg(&out).arg(&run.run);
    export.run_in(scratch.path()).expect_code(0);
    let trace = crate::export::chrome(&out.join("rank-0.trace.json.gz"));
    let mut events = trace["traceEvents"].as_array().unwrap().iter();
    assert!(events.any(|event| event["cat"] == "machine error" && event["name"] == texts[0]));
}

#[test]
fn an_error_of_a_gpu_that_the_program_does_not_use_is_no_finding() {
    let (_scratch, run, _) = need_some!(trained("2", "xid=79", "exit 3"));
    let report = document("machine", &run.run);
    let [error] = of_driver(&report)[..] else { panic!("{report}") };
    assert_eq!(error["gpu"], 1);
    assert_eq!(judged(&run.run), Vec::<Value>::new());
}

#[test]
fn counters_of_errors_of_a_gpu_have_only_the_errors_of_the_run() {
    let (_scratch, run, _) = need_some!(trained("2", "errors", "exit 0"));
    let report = document("machine", &run.run);
    let of = |counter: &str, place: Option<&str>, count| {
        (counter.to_owned(), Some(1), place.map(str::to_owned), count)
    };
    assert_eq!(
        counts(&report),
        [
            of("gpu_ecc_corrected_errors", None, 5),
            of("gpu_ecc_uncorrected_errors", None, 1),
            of("gpu_nvlink_replays", Some("1"), 17),
            of("gpu_pcie_replays", None, 13),
            of("gpu_remapped_rows_uncorrected", None, 1),
        ]
    );
    // What a device doesn't report is named, and is not zero.
    let why = |source: &str| {
        let is_it = |row: &&Value| row["source"] == source && row["gpu"] == 0;
        let row = rows(&report, "watched").iter().find(is_it).unwrap_or_else(|| panic!("{source}"));
        (row["watched"].as_bool().unwrap(), row["why_not"].as_str().map(str::to_owned))
    };
    assert_eq!(why("gpu_retired_pages"), (false, Some("Not Supported".to_owned())));
    assert_eq!(why("gpu_nvlink_data_crc_errors"), (false, Some("Not Supported".to_owned())));
    assert_eq!(why("gpu_ecc_corrected_errors"), (true, None));
    assert_eq!(why("xid"), (true, None));
}

#[test]
fn devices_without_errors_have_no_rows_and_no_finding() {
    let (scratch, run, _) = need_some!(trained("2", "noevents", "exit 0"));
    let report = document("machine", &run.run);
    let of_gpus = counts(&report).into_iter().filter(|count| count.1.is_some());
    assert_eq!(of_gpus.collect::<Vec<_>>(), []);
    assert!(of_driver(&report).is_empty(), "{report}");
    assert_eq!(judged(&run.run), Vec::<Value>::new());
    let text = tprof(["report", "machine"]).arg(&run.run).run_in(scratch.path()).stdout;
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        text.contains("2 GPUs; ") && text.contains("GPU 1 reports no XIDs: Not Supported"),
        "{text}"
    );
}

/// Runs a shell script under tprof with a file in the place of `/dev/kmsg`, which the script may
/// append to.
fn with_log(script: &str, options: &[&str]) -> (Scratch, Outcome, PathBuf) {
    let scratch = Scratch::new();
    let log = scratch.join("kmsg");
    fs::write(&log, "4,1,1000,-;NVRM: Xid (PCI:0000:3b:00): 48, before the run\n").unwrap();
    let run = scratch.run();
    let job = traced_job(&Job::sh(script), options, &run);
    let mount = "mount --bind \"$0\" /dev/kmsg && exec \"$@\"";
    let words = [Path::new("unshare"), Path::new("-m"), Path::new("sh"), Path::new("-c")];
    let outcome =
        job.under(words.into_iter().chain([Path::new(mount), &log])).run_in(scratch.path());
    (scratch, outcome, run)
}

/// Returns the errors that a run's file has as marks.
fn marks(run: &Path) -> Vec<(u64, String)> {
    let file = TraceFile::open(&run.join("rank-0.tprof")).unwrap();
    let marks = file.marks().iter().filter(|mark| mark.kind == MarkKind::MachineError);
    marks.map(|mark| (mark.time_ns, file.name(mark.name).to_owned())).collect()
}

const XID: &str = "NVRM: Xid (PCI:0000:3b:00): 79, pid=4242, name=python3, off the bus";

#[test]
fn lines_of_the_kernel_log_are_errors_with_their_time() {
    need!(am_root(), Refused::Root);
    need!(can_mount(), Refused::Mounts);
    let script = format!(
        "sleep 0.5; printf '6,2,5,-;usb 1-1: new device\\n4,3,6,-;{XID}\\n SUBSYSTEM=pci\\n\
         12,4,7,-;NVRM: Xid (PCI:0000:3b:00): 48, of a program\\n' >> /dev/kmsg; sleep 0.5; exit 7"
    );
    let (_scratch, outcome, run) = with_log(&script, &["--mem", "off"]);
    assert_eq!(outcome.code, Some(7), "{outcome:?}");
    let found = marks(&run);
    let [(time_ns, text)] = &found[..] else { panic!("{found:?}") };
    assert_eq!(*text, format!("XID 79 on PCI 0000:3b:00 (kernel): {XID}"));
    let file = TraceFile::open(&run.join("rank-0.tprof")).unwrap();
    // By its own time stamp the line came just after the machine had started.
    let (start_ns, end_ns) = (file.header().start_ns, file.last_ns());
    assert!((start_ns..end_ns).contains(time_ns), "{start_ns} {time_ns} {end_ns}");
    let found = judged(&run);
    let [finding] = &found[..] else { panic!("{found:?}") };
    assert_eq!(finding["what"], "a GPU was lost", "{finding}");
    let seen = finding["seen"].as_str().unwrap();
    assert!(seen.contains("ended with status 7"), "{seen}");
    assert_eq!(finding["severity"], "critical");

    // Names of programs are left out with --redact.
    let (_scratch, _, run) = with_log(&script, &["--mem", "off", "--redact"]);
    assert_eq!(marks(&run)[0].1, "XID 79 on PCI 0000:3b:00 (kernel)");
}

#[test]
fn lines_that_were_lost_are_counted_and_other_lines_are_no_errors() {
    need!(am_root(), Refused::Root);
    need!(can_mount(), Refused::Mounts);
    let (_scratch, outcome, run) = with_log(
        "sleep 0.3; echo '6,2,5,-;usb 1-1: new device' >> /dev/kmsg; sleep 0.3",
        &["--mem", "off"],
    );
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    assert_eq!(marks(&run), []);
    let found = judged(&run);
    assert_eq!(found, Vec::<Value>::new());
    // The kernel numbers its lines, and 3 to 6 are not there.
    let (_scratch, _, run) = with_log(
        "sleep 0.3; printf '6,2,5,-;usb\\n6,7,8,-;usb\\n' >> /dev/kmsg; sleep 0.3",
        &["--mem", "off"],
    );
    let report = document("machine", &run);
    let losses = report["completeness"]["losses"].as_array().unwrap();
    let lost = losses.iter().find(|loss| loss["what"] == "lines of the kernel's log").unwrap();
    assert_eq!(lost["count"], 4, "{losses:?}");
}

#[test]
fn a_process_that_the_kernel_killed_for_memory_is_found() {
    need!(am_root(), Refused::Root);
    need!(can_mount(), Refused::Mounts);
    let own = fs::read_link("/proc/self/ns/pid").unwrap();
    need!(own.as_os_str() == "pid:[4026531836]", Refused::KernelThreads);
    let script = "sleep 0.3; echo \"3,2,5,-;Out of memory: Killed process $$ (sh) total-vm:9kB\" >> \
                  /dev/kmsg; kill -9 $$";
    let (_scratch, _, run) = with_log(script, &["--mem", "off"]);
    let found = judged(&run);
    let [finding] = &found[..] else { panic!("{found:?}: {:?}", marks(&run)) };
    assert_eq!(finding["what"], "the kernel killed a process for lack of memory");
}

/// Runs the program in a network namespace of its own. Returns how many segments the kernel sent
/// again, by the kernel's own count.
fn sent_again(way: &str) -> (Scratch, PathBuf, u64) {
    let scratch = Scratch::new();
    let run = scratch.run();
    let directory = Path::new(env!("CARGO_MANIFEST_DIR"));
    let job = Job::new("/usr/bin/python3")
        .arg("-B")
        .arg(directory.join("programs/network_loss.py"))
        .arg(way)
        .env("PYTHONPATH", directory.join("../python"));
    let words = ["unshare", "-n", "sh", "-c", "ip link set lo up && exec \"$@\"", "sh"];
    let outcome = traced_job(&job, &["--mem", "off"], &run).under(words).run_in(scratch.path());
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    let truth = outcome.stdout.trim().strip_prefix("expect retransmitted=").unwrap();
    let truth = truth.parse().unwrap();
    (scratch, run, truth)
}

#[test]
fn packets_sent_again_are_counted_and_found_in_the_step_that_they_slowed_down() {
    need!(am_root(), Refused::Root);
    need!(Path::new("/usr/bin/python3").exists(), "no /usr/bin/python3");
    need!(Path::new("/usr/sbin/ip").exists() || Path::new("/sbin/ip").exists(), "no ip (iproute2)");
    let (_scratch, run, truth) = sent_again("drop");
    assert!(truth >= 30, "{truth}");
    let report = document("machine", &run);
    let row =
        rows(&report, "counters").iter().find(|row| row["counter"] == "tcp_retransmitted_segments");
    assert_eq!(row.unwrap()["count"], truth, "{report}");
    assert!(row.unwrap()["sent"].as_u64().unwrap() > 0);
    // What the machine's kernel logs meanwhile is another finding.
    let of_tcp = |run: &Path| -> Vec<String> {
        let seen = judged(run).into_iter().map(|row| row["seen"].as_str().unwrap().to_owned());
        seen.filter(|seen| seen.starts_with("TCP ")).collect()
    };
    let found = of_tcp(&run);
    let [seen] = &found[..] else { panic!("{found:?} {report}") };
    assert!(seen.contains("step 30 took "), "{seen}");

    // A step that is slow without any loss has no such finding.
    let (_scratch, run, truth) = sent_again("none");
    assert_eq!(truth, 0);
    assert_eq!(of_tcp(&run), Vec::<String>::new());
}
