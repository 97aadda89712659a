//! `tprof report findings` names the cause of lost time: its size, its line, and what to do. Each
//! job plants one or two causes, and measures by itself how much time they cost.

use std::path::Path;
use std::process::Command;

use tprof_tests::{Job, Refused, Scratch, document, skip, traced};

use crate::planted::Language::{C, Cpp, Python, Rust};
use crate::planted::{Plant, Planted, seconds};

const LEAK: Plant =
    Plant { options: &["--mem", "exact", "--stacks", "python"], ..Plant::new(Python, "leak") };
const OBJECTS: Plant =
    Plant { options: &["--mem", "exact", "--stacks", "python"], ..Plant::new(Python, "objects") };
const FORKED: Plant = Plant { options: &[], ..Plant::new(Python, "forked") };

#[test]
fn garbage_collection_is_separate_from_the_function_it_interrupts() {
    let Some(planted) = Planted::run("gc") else { return };
    // The function runs for only half a second, so it has 50 samples and a large error.
    planted.is_found("GcPauses", "gc", 0.2);
    assert!(planted.text("GcPauses").contains("gc.freeze()"));
}

#[test]
fn time_in_malloc_and_free_is_found_with_the_rate_of_allocations() {
    for options in [&["--mem", "off"][..], &["--mem", "sampled"], &["--mem", "exact"]] {
        let plant = Plant { options, ..Plant::new(C, "churn") };
        let Some(planted) = plant.run() else { return };
        let found = planted.found("findings").iter().find(|row| row["rule"] == "AllocationChurn");
        let row = found.unwrap_or_else(|| panic!("{options:?}: {:#?}", planted.findings));
        // The loop runs `malloc`, `free`, tprof's hooks and only a few other instructions.
        let gain = seconds("gain_ns")(row);
        let least = if options[1] == "exact" { 0.1 } else { 0.5 };
        let range = least * planted.truth["allocated"]..=1.1 * planted.truth["allocated"] + 0.02;
        assert!(range.contains(&gain), "{options:?}: {gain} of {:?}: {row:#?}", planted.truth);
        let has_rate = planted.text("AllocationChurn").contains("allocations/s");
        assert_eq!(has_rate, options[1] != "off", "{row:#?}");
    }
}

#[test]
fn the_interpreters_own_pools_do_not_count_as_malloc() {
    let plant = Plant { options: &["--mem", "sampled"], ..Plant::new(Python, "pools") };
    let Some(planted) = plant.run() else { return };
    let found = planted.found("findings").iter().find(|row| row["rule"] == "AllocationChurn");
    assert!(found.is_none(), "{found:#?}");
    let allocator = planted.part("allocator");
    assert!(allocator < 0.03 * planted.truth["cpu"], "{allocator} of {:?}", planted.truth);
    // These samples must belong to the interpreter, at the line that runs.
    planted.near(planted.lines("victim_counts", "cpu_ns", false), "cpu", 0.05);
}

#[test]
fn a_growing_list_is_found_with_the_line_that_allocates() {
    let Some(planted) = LEAK.run() else { return };
    planted.is_found("HeapGrowth", "kept", 0.1);
    assert!(planted.text("HeapGrowth").contains("victim_keeps"));
}

/// Objects of up to 512 bytes are in no site of the heap: the interpreter maps arenas for them.
#[test]
fn kept_small_objects_of_python_are_found_in_the_interpreters_arenas() {
    let of_arenas = |planted: &Planted| {
        let found = planted.found("findings").iter();
        let found = found.filter(|row| row["rule"] == "HeapGrowth" && row["subject"] == "arenas");
        found.cloned().collect::<Vec<_>>()
    };
    let Some(planted) = OBJECTS.run() else { return };
    let found = of_arenas(&planted);
    let row = found.first().unwrap_or_else(|| panic!("{:#?}", planted.findings));
    let (size, kept) = (row["size_bytes"].as_f64().unwrap(), planted.truth["kept"]);
    assert!((size - kept).abs() <= 0.25 * kept, "{size} of {kept}: {row:#?}");
    assert_eq!(row["line"].as_u64(), planted.line_with("HERE objects"), "{row:#?}");
    assert!(row["seen"].as_str().unwrap().contains("Python's interpreter"), "{row:#?}");
    // The same objects, which are released again.
    let Some(planted) = (Plant { calm: true, ..OBJECTS }).run() else { return };
    assert!(of_arenas(&planted).is_empty(), "{:#?}", planted.findings);
}

#[test]
fn saving_to_slow_storage_is_found_as_a_checkpoint() {
    let Some(planted) = Planted::run("checkpoint") else { return };
    planted.is_found("SyncCheckpoint", "saved", 0.1);
    assert!(planted.text("SyncCheckpoint").contains("waiting for storage"));
}

#[test]
fn compiled_code_is_named_by_its_library_under_the_line_that_calls_it() {
    let Some(planted) = Planted::run("native") else { return };
    planted.is_found("HotFunction", "cpu", 0.05);
    let text = planted.text("HotFunction");
    assert!(text.contains("compiled code of libcrypto"), "{text}");
}

#[test]
fn pages_that_forked_workers_copy_count_once() {
    let scratch = Scratch::new();
    let Some(job) = FORKED.job() else { return };
    let run = traced(&job, FORKED.options, &scratch);
    let planted = FORKED.planted(&run);
    let Some(planted) = planted else { return };
    let truth = planted.truth["copied"];
    let row = planted.found("findings").iter().find(|row| row["rule"] == "ForkedCopies");
    let size = row.map_or(0.0, |row| row["size_bytes"].as_f64().unwrap());
    // A reading of the sizes takes long on a busy machine, so there may be few, and the last may
    // come before everything is copied. The finding may then be too small, but never larger than
    // the copied bytes.
    assert!(size < 1.1 * truth, "{size} of {truth}");
    let counters = document("counters", &run.run);
    let rows = counters["tables"]["byte_counters"].as_array().unwrap().iter();
    let of_pss = rows.filter(|row| row["counter"] == "pss_bytes");
    let readings = of_pss.map(|row| row["samples"].as_u64().unwrap()).max().unwrap_or(0);
    if readings >= 3 {
        assert!(size > 0.9 * truth, "{size} of {truth} by {readings} readings: {counters:#}");
        assert!(planted.text("ForkedCopies").contains("2 workers"));
    }
}

#[test]
fn two_causes_at_once_are_both_found() {
    let Some(planted) = Planted::run("both") else { return };
    planted.is_found("BlockingIo", "file_io", 0.1);
    planted.is_among("HotFunction", "cpu", 0.05);
}

#[test]
fn the_thread_that_holds_a_lock_is_named_with_its_line() {
    let Some(planted) = Planted::run("lock") else { return };
    let line = planted.line_with("HELD").unwrap();
    let text = planted.text("LockContention");
    assert!(text.contains(&format!("victim_holds (planted.py:{line})")), "{text}");
}

#[test]
fn the_file_or_peer_that_is_waited_for_is_named() {
    for (way, rule, what) in
        [("file", "BlockingIo", "/fifo "), ("socket", "NetworkWait", " socket")]
    {
        for no_perf in [false, true] {
            let plant = Plant { no_perf, ..Plant::new(Python, way) };
            let Some(planted) = plant.run() else { return };
            let text = planted.text(rule);
            assert!(text.contains(what), "{text}");
        }
    }
}

#[test]
fn round_trips_to_a_peer_are_counted_with_their_answers() {
    let Some(planted) = Planted::run("requests") else { return };
    planted.is_found("NetworkWait", "socket", 0.1);
    let text = planted.text("NetworkWait");
    assert!(text.contains("socket 127.0.0.1:"), "{text}");
    let requests = text.split(" requests had answers of ").next().unwrap().rsplit(' ').next();
    // Those before the first sample lie outside of the judged time.
    let requests: u64 = requests.unwrap().parse().unwrap_or_else(|_| panic!("{text}"));
    assert!((380..=400).contains(&requests), "{text}");
}

#[test]
fn late_data_is_explained_by_what_the_worker_itself_waits_for() {
    let Some(planted) = Planted::run("data") else { return };
    let line = planted.line_with("SLOW").unwrap();
    let text = planted.text("DataWait");
    assert!(text.contains(&format!("wait for at victim_makes_data (planted.py:{line})")), "{text}");
}

#[test]
fn processes_that_wait_on_purpose_are_not_named_as_workers() {
    let Some(planted) = Planted::run("helped") else { return };
    let line = planted.line_with("SLOW").unwrap();
    let text = planted.text("DataWait");
    assert!(text.contains(&format!("wait for at victim_makes_data (planted.py:{line})")), "{text}");
    assert!(!text.contains("victim_attends") && !text.contains("victim_looks"), "{text}");
}

#[test]
fn the_thread_that_makes_late_results_is_named() {
    let Some(planted) = Planted::run("pool") else { return };
    planted.is_found("DataWait", "data", 0.1);
    let line = planted.line_with("MADE").unwrap();
    let text = planted.text("DataWait");
    let expected = format!("thread saver_0 is in victim_saves (planted.py:{line})");
    assert!(text.contains(&expected), "{text}");
}

#[test]
fn a_wait_for_another_threads_work_does_not_count_as_a_lock() {
    for (language, way, function, thread) in [
        (Python, "executor", "victim_computes", "worker_"),
        (Python, "queue", "victim_produces", "producer"),
        (Cpp, "future", "victim_promises", ""),
        (Cpp, "condition", "victim_signals", ""),
    ] {
        let Some(planted) = Plant::new(language, way).run() else { return };
        planted.is_found("HotFunction", "cpu", 0.1);
        // Names of C++ functions contain their arguments.
        let is_of = |row: &&serde_json::Value| {
            let shown = row["function"].as_str().unwrap_or_default();
            let of = row["thread"].as_str();
            shown.starts_with(function) && of.is_some_and(|of| of.starts_with(thread))
        };
        let of_places: f64 =
            planted.table("places").iter().filter(is_of).map(seconds("wall_ns")).sum();
        planted.near(of_places, "awaited", 0.1);
        let followed: f64 = planted.table("followed").iter().map(seconds("wall_ns")).sum();
        planted.near(followed, "awaited", 0.1);
        planted.hardly(&["lock"]);
    }
}

#[test]
fn a_contended_mutex_is_a_lock_with_its_holder() {
    let Some(planted) = Plant::new(Cpp, "mutex").run() else { return };
    planted.is_found("LockContention", "lock", 0.1);
    let line = planted.line_with("HELD").unwrap();
    let text = planted.text("LockContention");
    assert!(text.contains(&format!("victim_holds() (planted_threads.cpp:{line})")), "{text}");
}

#[test]
fn waiting_for_child_processes_is_not_sleeping() {
    for (way, what) in [("child", "the job waits for child processes"), ("sleep", "the job sleeps")]
    {
        let Some(planted) = Planted::run(way) else { return };
        planted.is_found("OtherWait", "other", 0.1);
        let row = planted.found("findings").iter().find(|row| row["rule"] == "OtherWait").unwrap();
        assert_eq!((&row["what"], &row["severity"]), (&what.into(), &"medium".into()));
    }
}

#[test]
fn the_processes_that_take_the_cores_are_named() {
    let Some(planted) = Planted::run("core") else { return };
    // The machine's load decides whether the job's own or other programs had more of the cores.
    if planted.others_had_the_cores() {
        let notes = planted.findings["notes"].as_array().unwrap();
        assert!(notes[0].as_str().unwrap().starts_with("the machine was busy"), "{notes:?}");
        return;
    }
    let text = planted.text("NoFreeCore");
    assert!(text.contains("in core (planted.py:"), "{text}");
}

#[test]
fn a_hot_line_of_c_is_found() {
    let Some(planted) = Plant::new(C, "hot").run() else { return };
    planted.is_found("HotFunction", "cpu", 0.05);
}

#[test]
fn a_line_of_c_that_waits_for_a_pipe_is_found() {
    let Some(planted) = Plant::new(C, "file").run() else { return };
    planted.is_found("BlockingIo", "file_io", 0.1);
}

#[test]
fn a_lock_in_c_is_found_with_the_line_that_holds_it() {
    let Some(planted) = Plant::new(C, "lock").run() else { return };
    planted.is_found("LockContention", "lock", 0.1);
    let line = planted.line_with("HELD").unwrap();
    let text = planted.text("LockContention");
    assert!(text.contains(&format!("victim_holds (planted.c:{line})")), "{text}");
}

#[test]
fn a_hot_line_of_rust_is_found() {
    let Some(planted) = Plant::new(Rust, "hot").run() else { return };
    planted.is_found("HotFunction", "cpu", 0.05);
}

#[test]
fn a_line_of_rust_that_waits_for_a_peer_is_found() {
    let Some(planted) = Plant::new(Rust, "socket").run() else { return };
    planted.is_found("NetworkWait", "socket", 0.1);
}

/// Runs two ranks of MPICH; `None` if it is not installed.
fn ranks(calm: bool) -> Option<Planted> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("programs/collective.c");
    if !Path::new("/usr/bin/mpicc.mpich").exists() {
        skip("there is no mpicc.mpich");
        return None;
    }
    let scratch = Scratch::new();
    let program = scratch.path().join("collective");
    let mut compiler = Command::new("mpicc.mpich");
    let built = compiler.args(["-g", "-O2", "-o"]).arg(&program).arg(&source).status().unwrap();
    assert!(built.success());
    let job = Job::new("mpirun.mpich").args(["-n", "2"]).arg(&program);
    let job = if calm { job.arg("calm") } else { job };
    // Loads MPICH's libraries into memory first, because loading them from a disk would be a second
    // cause.
    job.run_in(scratch.path()).expect_code(0);
    let run = traced(&job, &["--mem", "off"], &scratch);
    let planted = Planted::of(&run, source, "late");
    if !planted.has_native() {
        skip(Refused::PerfEvents);
        return None;
    }
    Some(planted)
}

#[test]
fn a_rank_of_mpi_that_comes_late_is_named_with_the_line_that_delays_it() {
    let Some(planted) = ranks(false) else { return };
    planted.is_found("Stragglers", "late", 0.1);
    let row = planted.found("findings").iter().find(|row| row["rule"] == "Stragglers").unwrap();
    assert!(row["what"].as_str().unwrap().starts_with("rank 1 comes late"), "{row:#?}");
}

#[test]
fn ranks_that_come_together_have_no_straggler() {
    let Some(planted) = ranks(true) else { return };
    planted.lacks("Stragglers");
}

/// Jobs, and the rule that finds the cause of each.
const CAUSES: [(Plant, &str); 25] = [
    (Plant::new(Python, "hot"), "HotFunction"),
    (Plant::new(Python, "data"), "DataWait"),
    (Plant::new(Python, "gil"), "GilContention"),
    (Plant::new(Python, "lock"), "LockContention"),
    (Plant::new(Python, "file"), "BlockingIo"),
    (Plant::new(Python, "socket"), "NetworkWait"),
    (Plant::new(Python, "imports"), "StartUp"),
    (Plant::new(Python, "gc"), "GcPauses"),
    (LEAK, "HeapGrowth"),
    (Plant::new(Python, "checkpoint"), "SyncCheckpoint"),
    (Plant::new(Python, "native"), "HotFunction"),
    (FORKED, "ForkedCopies"),
    (Plant::new(Python, "pool"), "DataWait"),
    (Plant::new(Python, "child"), "OtherWait"),
    (Plant::new(Python, "sleep"), "OtherWait"),
    (Plant::new(C, "hot"), "HotFunction"),
    (Plant::new(C, "file"), "BlockingIo"),
    (Plant::new(C, "lock"), "LockContention"),
    (Plant::new(Python, "executor"), "HotFunction"),
    (Plant::new(Python, "queue"), "HotFunction"),
    (Plant::new(Cpp, "future"), "HotFunction"),
    (Plant::new(Cpp, "condition"), "HotFunction"),
    (Plant::new(Cpp, "mutex"), "LockContention"),
    (Plant::new(Rust, "hot"), "HotFunction"),
    (Plant::new(Rust, "socket"), "NetworkWait"),
];

#[test]
fn a_job_without_the_planted_cause_has_no_finding_of_it() {
    // These jobs use little of a core, so several can run at the same time without disturbing each
    // other.
    for some in CAUSES.chunks(6) {
        std::thread::scope(|scope| {
            let runs = some.iter().map(|(plant, rule)| {
                scope.spawn(move || {
                    let planted = Plant { calm: true, ..*plant }.run();
                    planted.inspect(|planted| planted.lacks(rule));
                })
            });
            for run in runs.collect::<Vec<_>>() {
                run.join().unwrap();
            }
        });
    }
}

#[test]
fn without_perf_events_causes_are_found_too() {
    let plant = |way| Plant { no_perf: true, ..Plant::new(Python, way) };
    for (way, rule, key) in [
        ("hot", "HotFunction", "cpu"),
        ("data", "DataWait", "data"),
        ("lock", "LockContention", "lock"),
        ("file", "BlockingIo", "file_io"),
        ("socket", "NetworkWait", "socket"),
    ] {
        let Some(planted) = plant(way).run() else { return };
        planted.is_found(rule, key, 0.1);
        // Causes that are found by names of compiled code are listed as not checked.
        let unchecked: Vec<&str> =
            planted.found("not_checked").iter().filter_map(|row| row["rule"].as_str()).collect();
        for rule in ["GcPauses", "CollectiveWait"] {
            assert!(unchecked.contains(&rule), "{rule}: {unchecked:?}");
        }
    }
}

#[test]
fn causes_keep_their_size_beside_a_second_sampler() {
    for (way, rule, key, share) in
        [("hot", "HotFunction", "cpu", 0.05), ("lock", "LockContention", "lock", 0.1)]
    {
        let Some(planted) = Plant::new(Python, way).run_beside_another() else { return };
        planted.is_found(rule, key, share);
    }
}

#[test]
fn device_rules_share_one_line_if_there_is_no_device() {
    let Some(planted) = Planted::run("hot") else { return };
    let rows = planted.found("not_checked_lines").iter();
    let rows: Vec<_> = rows.filter(|row| row["rules"].as_str().unwrap().contains("Gaps")).collect();
    let [row] = rows.as_slice() else { panic!("{rows:#?}") };
    assert!(row["rules"].as_str().unwrap().split(", ").count() >= 13, "{row}");
    assert!(row["line"].as_str().unwrap().ends_with("(no kernel, copy or memset was recorded)"));
}
