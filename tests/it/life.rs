//! A run lists its processes, their parents, and how each ended.

use serde_json::Value;
use tprof_tests::{
    EXACT, Job, Kind, Scratch, build, memory_report, program, report, tprof, traced,
};

fn ends(processes: &[&Value]) -> Vec<(Option<i64>, Option<i64>)> {
    processes
        .iter()
        .map(|process| (process["exit_status"].as_i64(), process["signal"].as_i64()))
        .collect()
}

#[test]
fn ends_of_children_are_recorded() {
    let scratch = Scratch::new();
    let run = traced(&Job::new(program("fork")), EXACT, &scratch);
    let report = report(&run.run);
    let found = ends(&report.processes("fork"));
    assert_eq!(found.len(), 7, "{}", report.0["processes"]);
    for end in
        [(Some(0), None), (Some(20), None), (None, Some(9)), (Some(22), None), (Some(25), None)]
    {
        assert!(found.contains(&end), "{end:?} in {found:?}");
    }
}

#[test]
fn frees_of_blocks_from_before_a_fork_are_counted_separately() {
    let scratch = Scratch::new();
    let run = traced(&Job::new(program("fork")), EXACT, &scratch);
    let report = memory_report(&run.run);
    let heap = &report.0["ranks"][0]["host_memory"];
    // Each of six children frees the block that the parent allocated before.
    assert_eq!((&heap["unmatched_frees"], &heap["unmatched_frees_forked"]), (&6.into(), &6.into()));
    let text = tprof(["report", "memory"]).arg(&run.run).run_in(scratch.path()).stdout;
    assert!(text.contains("6 frees of blocks without a recorded allocation: forked"), "{text}");
}

#[test]
fn ends_of_the_job_are_recorded() {
    let scratch = Scratch::new();
    for (how, end) in [
        ("exit", (Some(11), None)),
        ("_exit", (Some(12), None)),
        ("quick_exit", (Some(14), None)),
        ("abort", (None, Some(6))),
        ("kill", (None, Some(9))),
        ("segv", (None, Some(11))),
    ] {
        let run = traced(&Job::new(program("leave")).args([how, "10", "5"]), EXACT, &scratch);
        let report = report(&run.run);
        assert_eq!(ends(&report.processes("leave")), [end], "{how}: {}", report.0["processes"]);
    }
}

#[test]
fn parents_are_recorded() {
    let scratch = Scratch::new();
    let run = traced(&Job::sh("\"$1\" 3; \"$1\" 4; true").arg(program("short")), EXACT, &scratch);
    let report = report(&run.run);
    let shell = report.processes("sh")[0]["pid"].as_i64().unwrap();
    let short = report.processes("/short");
    // The shell's own command line names the program as well.
    let short: Vec<_> =
        short.into_iter().filter(|process| process["pid"].as_i64() != Some(shell)).collect();
    assert_eq!(ends(&short), [(Some(3), None), (Some(4), None)], "{}", report.0["processes"]);
    for process in short {
        assert_eq!(process["parent"].as_i64(), Some(shell), "{}", report.0["processes"]);
        assert!(process["start_ns"].as_i64() < process["end_ns"].as_i64(), "{process}");
    }
}

#[test]
fn a_program_that_is_slow_to_load_is_listed_once() {
    let scratch = Scratch::new();
    let library = build("slow_to_load", Kind::Plain).unwrap();
    let (source, slow) = (scratch.join("slow.c"), scratch.join("slow"));
    std::fs::write(&source, "int main(void) { return 3; }\n").unwrap();
    let directory = library.parent().unwrap();
    let rpath = format!("-Wl,--no-as-needed,-rpath,{}", directory.display());
    let built = Job::new("gcc")
        .arg(&rpath)
        .args([&source, &library])
        .arg("-o")
        .arg(&slow)
        .run_in(scratch.path());
    assert_eq!(built.code, Some(0), "{built:?}");
    // The slow program is the first image of the run, or an image that a process becomes by exec.
    for job in [Job::new(&slow), Job::sh("\"$1\"; true").arg(&slow)] {
        let run = traced(&job, EXACT, &scratch);
        let report = report(&run.run);
        let mut images = report.processes("slow");
        images.retain(|image| !image["command"].as_str().unwrap().contains("sh -c"));
        assert_eq!(ends(&images), [(Some(3), None)], "{}", report.0["processes"]);
    }
}

#[test]
fn every_image_of_a_process_is_recorded() {
    let scratch = Scratch::new();
    let run = traced(&Job::new(program("exec_self")), EXACT, &scratch);
    let report = report(&run.run);
    let images = report.processes("exec_self");
    assert_eq!(images.len(), 11, "{}", report.0["processes"]);
    let pid = images[0]["pid"].as_i64();
    assert!(images.iter().all(|image| image["pid"].as_i64() == pid), "{}", report.0["processes"]);
    assert_eq!(ends(&images).iter().filter(|end| **end == (Some(44), None)).count(), 1);
}

#[test]
fn an_image_has_its_full_command_and_rank_for_any_environment() {
    let scratch = Scratch::new();
    // The second command line is longer than the part that a process sends.
    for bytes in [0, 100_000] {
        let fill = format!("FILL={}", "x".repeat(bytes));
        let words = ["RANK=3", "WORLD_SIZE=4", &fill, "/bin/true", "", "two words", "line\nbreak"];
        let run = traced(&Job::new("env").args(words), EXACT, &scratch);
        let report = report(&run.run);
        let found = report.processes("/bin/true");
        let of_image = |p: &&&Value| p["command"] == "/bin/true  two words line\nbreak";
        let image = found.iter().find(of_image).unwrap_or_else(|| panic!("{found:?}"));
        assert_eq!(image["rank"], 3, "{bytes}");
    }
}

#[test]
fn reports_have_the_documented_keys() {
    let scratch = Scratch::new();
    let run = traced(&Job::new(program("leave")).args(["exit", "1000", "500"]), EXACT, &scratch);
    let written: Value =
        serde_json::from_slice(&std::fs::read(run.run.join("run.json")).unwrap()).unwrap();
    let reported = report(&run.run).0;
    for (what, value) in [("run.json", &written), ("report --json", &reported)] {
        assert!(value["version"].is_u64(), "{what}: version");
        let completeness = &value["completeness"];
        assert_eq!(completeness["recorded"].as_i64(), Some(1500), "{what}: {completeness}");
        assert_eq!(completeness["lost"].as_i64(), Some(0), "{what}: {completeness}");
        assert_eq!(
            completeness["blind"].as_array().map(Vec::len),
            Some(0),
            "{what}: {completeness}"
        );
        for key in ["host_ns", "wait_ns", "fraction"] {
            assert!(value["overhead"].get(key).is_some(), "{what}: overhead.{key}");
        }
        let process = &value["processes"][0];
        for key in ["pid", "parent", "rank", "command", "start_ns", "end_ns"] {
            assert!(process.get(key).is_some(), "{what}: processes[].{key} in {process}");
        }
        assert_eq!(process["exit_status"].as_i64(), Some(11), "{what}: {process}");
    }
    let memory = &reported["ranks"][0]["host_memory"];
    for key in [
        "allocations",
        "frees",
        "allocated_bytes",
        "peak_bytes",
        "peak_at_ns",
        "live_at_exit_bytes",
    ] {
        assert!(memory[key].is_i64(), "host_memory.{key} in {memory}");
    }
    let site = &memory["sites"][0];
    for key in ["bytes", "allocations", "live_bytes", "peak_bytes"] {
        assert!(site[key].is_i64(), "sites[].{key} in {site}");
    }
    assert!(site["stack"].is_array(), "{site}");
}

#[test]
fn the_status_of_the_job_passes_through() {
    let scratch = Scratch::new();
    for code in [0, 1, 2, 77, 125, 126, 127, 128, 255] {
        let run = traced(&Job::sh(&format!("exit {code}")), &[], &scratch);
        assert_eq!(run.outcome.code, Some(code), "{:?}", run.outcome);
        assert_eq!(run.outcome.stderr, "", "{:?}", run.outcome);
    }
}
