//! CPU samples show which functions ran, and what threads waited for.

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;
use tprof_tests::{
    Job, Kind, Refused, Scratch, build, document, has_native, has_native_or_skip, need, need_some,
    program, report, skip, tprof, traced,
};

/// A rate that gives enough samples to distinguish shares.
const OFTEN: &[&str] = &["--sample-rate", "997", "--mem", "off"];

/// Returns a run's reports, or `None` if this machine can't take samples.
fn sampled(job: &Job, options: &[&str], scratch: &Scratch) -> Option<(Value, Value)> {
    let run = traced(job, options, scratch);
    assert_eq!(run.outcome.code, Some(0), "{:?}", run.outcome);
    let cpu = document("cpu", &run.run);
    if !has_native_or_skip(&cpu) {
        return None;
    }
    Some((cpu, document("threads", &run.run)))
}

/// Returns a share of a function in a table.
#[track_caller]
fn share(report: &Value, table: &str, function: &str, key: &str) -> f64 {
    let rows = report["tables"][table].as_array().unwrap_or_else(|| panic!("no {table}: {report}"));
    let named = |row: &&Value| {
        row["function"].as_str().is_some_and(|name| name.split(' ').next() == Some(function))
    };
    let row = rows.iter().find(named);
    row.unwrap_or_else(|| panic!("no {function} in {rows:#?}"))[key].as_f64().unwrap()
}

#[test]
fn time_on_a_core_is_counted_by_range_and_adds_up() {
    let scratch = Scratch::new();
    let job = Job::new(program("cpu_ranges"));
    let Some((cpu, _)) = sampled(&job, OFTEN, &scratch) else { return };
    let rows = cpu["tables"]["ranges"].as_array().unwrap_or_else(|| panic!("{cpu:#?}"));
    let range = |name: &str, key: &str| {
        let row = rows.iter().find(|row| row["range"] == name);
        row.unwrap_or_else(|| panic!("no {name} in {rows:#?}"))[key].clone()
    };
    for (name, share) in
        [("outer", 0.4), ("inner", 0.2), ("thread", 0.2), ("(outside any range)", 0.2)]
    {
        is_near(range(name, "self_share").as_f64().unwrap(), share);
    }
    assert_eq!(range("outer", "mostly"), "spin_outer");
    assert_eq!(range("inner", "mostly"), "spin_inner");
    let ns = |name: &str, key: &str| range(name, key).as_u64().unwrap();
    assert_eq!(ns("outer", "total_ns"), ns("outer", "self_ns") + ns("inner", "self_ns"));
    let parts: u64 = rows.iter().map(|row| row["self_ns"].as_u64().unwrap()).sum();
    let functions = cpu["tables"]["functions_by_range"].as_array().unwrap();
    let of = |range: &str, function: &str| {
        let row = functions.iter().find(|r| r["range"] == range && r["function"] == function);
        row.map_or(0, |row| row["total_ns"].as_u64().unwrap())
    };
    assert!(of("inner", "spin_inner") > 0 && of("outer", "spin_inner") > 0, "{functions:#?}");
    assert_eq!(of("inner", "spin_outer"), 0);

    // Choosing one of the two ranges selects the same samples in the table of functions.
    let run = traced(&job, OFTEN, &scratch);
    let report = |within: &str| {
        let arguments = ["report", "cpu", "--json", "--within", within, run.run.to_str().unwrap()];
        let out = tprof(arguments).run_in(scratch.cwd());
        serde_json::from_str::<Value>(&out.stdout).unwrap_or_else(|e| panic!("{e}: {out:?}"))
    };
    is_near(share(&report("outer"), "functions", "spin_inner", "total_share"), 1.0 / 3.0);
    is_near(share(&report("inner:1"), "functions", "spin_inner", "total_share"), 1.0);
    let words = ["report", "cpu", "--within", "no such range", run.run.to_str().unwrap()];
    let refused = tprof(words).run_in(scratch.cwd());
    tprof_tests::assert_refused(&refused, &["inner (2)", "outer (2)", "--within inner"]);
    assert!(parts > 900_000_000, "{parts}");
}

/// While recording is off, the kernel interrupts no thread for tprof, and programs and threads are
/// followed all the same.
#[test]
fn no_thread_is_interrupted_while_recording_is_off() {
    let interruptions = |options: &[&str]| {
        let scratch = Scratch::new();
        let run = traced(&Job::new(program("cpu_ranges")), options, &scratch);
        assert_eq!(run.outcome.code, Some(0), "{:?}", run.outcome);
        let info = tprof_tests::run_info(&run.run, |info| info["finished"] == true);
        let parts = info["overhead"]["parts"].as_array().unwrap();
        let count = |name: &str| {
            let part = parts.iter().find(|part| part["part"] == name);
            part.map_or(0, |part| part["count"].as_u64().unwrap())
        };
        let processes = document("summary", &run.run)["process_count"].as_u64();
        ((count("samples"), count("switches")), processes, has_native(&document("cpu", &run.run)))
    };
    let (recorded, processes, has_native) = interruptions(OFTEN);
    need!(has_native, Refused::PerfEvents);
    assert!(recorded.0 > 100 && recorded.1 > 0, "{recorded:?}");
    let paused: Vec<&str> = OFTEN.iter().copied().chain(["--paused"]).collect();
    let (off, processes_off, _) = interruptions(&paused);
    assert_eq!((off, processes_off), ((0, 0), processes));
}

/// A thread that ends while recording is off isn't taken for the end of its process. A wait that
/// goes on while recording is switched counts as far as it was recorded.
#[test]
fn threads_go_on_while_recording_is_switched_on_or_off() {
    let waited = |threads: &Value| {
        let rows = threads["tables"]["threads"].as_array().unwrap().iter();
        rows.map(|row| row["waited_ns"].as_u64().unwrap_or(0)).max().unwrap() as f64 / 1e9
    };
    for (option, least, most) in [("--delay", 1.0, 2.2), ("--duration", 0.8, 1.1)] {
        let scratch = Scratch::new();
        let options: Vec<&str> = OFTEN.iter().copied().chain([option, "1s"]).collect();
        let job = Job::new(program("pauses"));
        let Some((cpu, threads)) = sampled(&job, &options, &scratch) else { return };
        assert!(share(&cpu, "functions", "works", "total_share") > 0.8, "{option}: {cpu:#}");
        let waited = waited(&threads);
        assert!((least..most).contains(&waited), "{option}: {waited} of {threads:#}");
    }
}

#[test]
fn counts_of_the_processor_are_reported_or_missing_with_the_reason() {
    let scratch = Scratch::new();
    let options = ["--sample-rate", "997", "--mem", "off"];
    let run = traced(&Job::new(program("cpu_counts")), &options, &scratch);
    let text = std::fs::read_to_string(run.run.join("run.json")).unwrap();
    let info: Value = serde_json::from_str(&text).unwrap();
    let events = &info["machine"]["events"];
    for kind in ["cpu", "threads"] {
        let report = document(kind, &run.run);
        let row = &report["tables"]["hardware_counters"][0];
        let notes = report["notes"].as_array().unwrap();
        for (event, key) in [("cycles", "cycles"), ("cache-misses", "cache_misses")] {
            let Some(why) = events[event].as_str() else {
                assert!(events[event].is_null() && row[key].as_u64().unwrap() > 0, "{row:#?}");
                continue;
            };
            assert!(row[key].is_null(), "{row:#?}");
            assert_eq!(row[format!("{key}_missing")], why, "{row:#?}");
            let noted = notes.iter().any(|note| note.as_str().unwrap().contains(why));
            assert!(noted || !has_native(&report), "{notes:#?}");
        }
        let per_cycle = &row["instructions_per_cycle"];
        assert!(per_cycle.is_null() || (0.01..20.0).contains(&per_cycle.as_f64().unwrap()));
    }
}

#[test]
fn events_are_counted_by_thread_and_by_function() {
    let scratch = Scratch::new();
    let options = ["--mem", "off", "--counters", "page-faults,major-faults"];
    let job = Job::new(program("cpu_counts"));
    let Some((cpu, threads)) = sampled(&job, &options, &scratch) else { return };
    // One event in sixteen is sampled. After the last sample of a thread on each processor, up to
    // fifteen events have no sample, and a sample may stand for as many events of other threads.
    let processors = std::thread::available_parallelism().unwrap().get() as u64;
    let after_the_last = |count: u64| 15 * processors.min(count / 16);
    let faults = |rows: &Value, is: &dyn Fn(&str) -> bool, key: &str| -> u64 {
        let rows = rows.as_array().unwrap().iter();
        let of = rows.filter(|row| row["event"] == "page-faults" && is(row[key].as_str().unwrap()));
        of.map(|row| row["count"].as_u64().unwrap()).sum()
    };
    let by_thread = &threads["tables"]["events_by_thread"];
    let of = |name: &str| faults(by_thread, &|thread| thread.starts_with(name), "thread");
    for (thread, count, most) in [("toucher", 3000, 3100), ("forked", 2000, 2200)] {
        let least = count - after_the_last(count);
        assert!((least..most).contains(&of(thread)), "{thread}, {least} at least: {by_thread:#?}");
    }
    assert!(of("sleeper") < 100, "{by_thread:#?}");
    let by_function = &cpu["tables"]["events_by_function"];
    // `touch` may have been inlined.
    let touches = ["touch", "toucher", "main"];
    let touched = faults(by_function, &|function| touches.contains(&function), "function");
    let all = faults(by_function, &|_| true, "function");
    let least = 5000 - after_the_last(3000) - after_the_last(2000);
    assert!((least..=5030).contains(&touched) && all < 6000, "{least}: {by_function:#?}");
    assert_eq!(cpu["tables"]["events"].as_array().unwrap().len(), 2, "major faults have no row");
}

#[track_caller]
fn is_near(found: f64, expected: f64) {
    assert!((found - expected).abs() < 0.05, "{found} should be {expected}");
}

#[track_caller]
fn shares_are_known(program: &Path, options: &[&str]) {
    let scratch = Scratch::new();
    let Some((cpu, threads)) = sampled(&Job::new(program), options, &scratch) else { return };
    is_near(share(&cpu, "functions", "victim_half", "total_share"), 0.5);
    is_near(share(&cpu, "functions", "victim_third", "total_share"), 1.0 / 3.0);
    is_near(share(&cpu, "functions", "victim_sixth", "total_share"), 1.0 / 6.0);
    // A function counts once for each sample, however often it is on the stack.
    is_near(share(&cpu, "functions", "victim_deep", "total_share"), 1.0 / 6.0);
    let rows = threads["tables"]["threads"].as_array().unwrap();
    let running: f64 = rows.iter().map(|row| row["running_ns"].as_f64().unwrap()).sum();
    assert!((1.15e9..1.6e9).contains(&running), "{running}");
    let sleeps: f64 = rows.iter().map(|row| row["sleep_ns"].as_f64().unwrap()).sum();
    assert!((0.69e9..1.5e9).contains(&sleeps), "{sleeps}: {rows:#?}");
}

#[test]
fn switches_and_faults_are_counted() {
    let scratch = Scratch::new();
    let job = Job::new(program("cpu_counts"));
    let Some((_, threads)) = sampled(&job, OFTEN, &scratch) else { return };
    let rows = threads["tables"]["threads"].as_array().unwrap();
    let of = |name: &str| {
        let row = rows.iter().find(|row| row["name"] == name);
        row.unwrap_or_else(|| panic!("no thread {name}: {rows:#?}"))
    };
    let count = |name: &str, key: &str| {
        of(name)[key].as_u64().unwrap_or_else(|| panic!("no {key}: {:#?}", of(name)))
    };
    // 50 sleeps.
    assert!((50..80).contains(&count("sleeper", "voluntary_switches")), "{rows:#?}");
    // Page faults are counted from the start of a program. Their number is unknown for short-lived
    // threads.
    assert!((50..1000).contains(&count("cpu_counts", "minor_faults")), "{rows:#?}");
    for name in ["toucher", "forked"] {
        assert!(of(name)["minor_faults"].is_null(), "{rows:#?}");
        let why = of(name)["minor_faults_missing"].as_str().unwrap();
        assert!(why.contains("short-lived"), "{why}");
    }
}

#[test]
fn shares_are_known_without_frame_pointers() {
    shares_are_known(&program("cpu_shares"), OFTEN);
}

#[test]
fn shares_are_known_with_frame_pointers() {
    let program = build("cpu_shares", Kind::FramePointers).unwrap();
    shares_are_known(&program, &["--sample-rate", "997", "--mem", "off", "--stacks", "fp"]);
}

#[test]
fn a_static_program_is_sampled() {
    let program = match build("cpu_shares", Kind::Static) {
        Ok(program) => program,
        Err(why) => return skip(why),
    };
    shares_are_known(&program, OFTEN);
    let scratch = Scratch::new();
    let run = traced(&Job::new(&program), OFTEN, &scratch);
    let cpu = document("cpu", &run.run);
    let blind = cpu["completeness"]["blind"].as_array().unwrap();
    if !has_native(&cpu) {
        return;
    }
    let matching =
        blind.iter().find(|b| b["why"].as_str().is_some_and(|why| why.contains("static")));
    let matching = matching.unwrap_or_else(|| panic!("{blind:#?}"));
    assert_eq!(matching["what"], "everything but CPU samples");
}

#[test]
fn a_static_program_is_one_process_with_its_exit_status() {
    let fixed = need_some!(build("cpu_shares", Kind::Static));
    let scratch = Scratch::new();
    let job = Job::sh("\"$1\"; true").arg(&fixed);
    let run = traced(&job, OFTEN, &scratch);
    assert_eq!(run.outcome.code, Some(0), "{:?}", run.outcome);
    let summary = document("summary", &run.run);
    need!(has_native(&summary), Refused::PerfEvents);
    let matching = |row: &&Value| {
        let command = row["command"].as_str().unwrap();
        command.ends_with("/cpu_shares")
            && !command.starts_with("sh ")
            && row["exit_status"] != Value::Null
    };
    let processes = summary["processes"].as_array().unwrap();
    let matching: Vec<_> = processes.iter().filter(matching).collect();
    let [it] = matching[..] else { panic!("{processes:#?}") };
    let same = processes.iter().filter(|row| row["pid"] == it["pid"]);
    let same = same.filter(|row| row["command"] == it["command"]).count();
    assert_eq!((same, &it["exit_status"]), (1, &0.into()), "{processes:#?}");
}

#[test]
fn without_kernel_symbols_the_kernel_is_one_function_with_a_note() {
    let under = program("no_kernel_names");
    let shown = Command::new(&under).args(["head", "-n", "50", "/proc/kallsyms"]).output();
    let hides = |line: &str| line.starts_with("0000000000000000 ");
    let hidden = String::from_utf8_lossy(&shown.unwrap().stdout).lines().all(hides);
    need!(hidden, Refused::KernelNames);
    let scratch = Scratch::new();
    let job = Job::sh("exec dd if=/dev/zero of=/dev/null bs=1k count=400000 2>&1").under([under]);
    let Some((cpu, _)) = sampled(&job, OFTEN, &scratch) else { return };
    let rows = |table: &str| cpu["tables"][table].as_array().unwrap().clone();
    let kernel: Vec<_> =
        rows("functions").into_iter().filter(|row| row["layer"] == "kernel").collect();
    need!(!kernel.is_empty(), Refused::KernelFrames);
    assert_eq!(kernel.len(), 1, "{kernel:#?}");
    for tree in ["top_down", "bottom_up"] {
        let rows = rows(tree);
        let twice = rows.windows(2).find(|two| {
            let is_kernel = |row: &Value| row["function"] == "[kernel]";
            let deeper = two[0]["depth"].as_u64() < two[1]["depth"].as_u64();
            deeper && is_kernel(&two[0]) && is_kernel(&two[1])
        });
        assert_eq!(twice, None, "{tree}: {rows:#?}");
        assert!(rows.iter().any(|row| row["function"] == "[kernel]"), "{tree}: {rows:#?}");
    }
    let notes = cpu["notes"].as_array().unwrap();
    let noted = notes.iter().any(|n| n.as_str().unwrap().contains("kernel.kptr_restrict=0"));
    assert!(noted, "{notes:#?}");
}

/// Returns a Python that contains its interpreter and exports none of its symbols.
fn closed_python(scratch: &Scratch) -> Result<PathBuf, String> {
    let ask = "import sysconfig as s; v = s.get_config_vars(); \
               print(v['LIBPL'] + '/' + v['LIBRARY'], s.get_paths()['include'], v['LIBS'], v['SYSLIBS'])";
    let output = Command::new("/usr/bin/python3").args(["-c", ask]).output();
    let output = String::from_utf8(output.map_err(|e| e.to_string())?.stdout).unwrap();
    let mut words = output.split_whitespace();
    let (Some(library), Some(include)) = (words.next(), words.next()) else {
        return Err("there is no /usr/bin/python3".to_owned());
    };
    let source = scratch.join("main.c");
    let main = "#include <Python.h>\nint main(int c, char **v) { return Py_BytesMain(c, v); }";
    std::fs::write(&source, main).unwrap();
    let output = scratch.join("python3.11");
    let built = Command::new("gcc")
        .arg("-no-pie")
        .arg(format!("-I{include}"))
        .arg(&source)
        .arg(library)
        .args(words)
        .args(["-lz", "-lexpat", "-lm", "-lpthread", "-lutil", "-o"])
        .arg(&output)
        .output()
        .map_err(|e| e.to_string())?;
    match built.status.success() {
        true => Ok(output),
        false => Err(format!("no Python to link: {}", String::from_utf8_lossy(&built.stderr))),
    }
}

#[test]
fn python_without_exported_symbols_is_read_and_stripped_is_named() {
    let scratch = Scratch::new();
    let python = match closed_python(&scratch) {
        Ok(python) => python,
        Err(why) => return skip(why),
    };
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("programs/cpu_shares.py");
    let job = || Job::new(&python).arg(&script);
    let Some((cpu, _)) = sampled(&job(), OFTEN, &Scratch::new()) else { return };
    let rows = cpu["tables"]["python"].as_array().unwrap_or_else(|| panic!("{cpu:#}"));
    assert!(rows.iter().any(|row| row["name"] == "victim_interpreted"), "{rows:#?}");
    assert!(Command::new("strip").arg(&python).status().unwrap().success());
    let Some((cpu, _)) = sampled(&job(), OFTEN, &Scratch::new()) else { return };
    assert!(cpu["tables"]["python"].is_null(), "{cpu:#}");
    let blind = cpu["completeness"]["blind"].as_array().unwrap();
    let matching = blind.iter().find(|entry| entry["what"] == "Python frames");
    let why = matching.unwrap_or_else(|| panic!("{blind:#?}"))["why"].as_str().unwrap();
    assert!(why.contains("stripped"), "{why}");
}

#[test]
fn python_functions_are_sampled_from_outside_the_process() {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("programs/cpu_shares.py");
    let job = Job::new("/usr/bin/python3").arg(script);
    need!(Path::new("/usr/bin/python3").exists(), "there is no /usr/bin/python3");
    let scratch = Scratch::new();
    let Some((cpu, threads)) = sampled(&job, OFTEN, &scratch) else { return };
    let table = &cpu["tables"]["python"];
    let total = |name: &str| {
        let rows = table.as_array().unwrap_or_else(|| panic!("no Python frames: {cpu}"));
        let row = rows.iter().find(|row| row["name"] == name);
        row.unwrap_or_else(|| panic!("no {name} in {rows:#?}"))["total_ns"].as_f64().unwrap()
    };
    // The program is interpreted for twice as long as it compresses. Python frames that were read
    // too late are counted as losses; their samples may belong to either part.
    let (interpreted, native) = (total("victim_interpreted"), total("Victim.victim_native"));
    let losses = cpu["completeness"]["losses"].as_array().unwrap();
    let late = losses.iter().find(|loss| loss["what"] == "Python frames of CPU samples");
    let late = late.map_or(0.0, |loss| loss["count"].as_f64().unwrap() * 1e9 / 997.0);
    let all = interpreted + native + late;
    let (least, most) = (native / all, (native + late) / all);
    assert!((least - 0.05..most + 0.05).contains(&(1.0 / 3.0)), "{least} to {most}: {table:#?}");
    // Time in a library that Python calls has a row for that library.
    let modules = cpu["tables"]["modules"].as_array().unwrap();
    let self_share = |name: &str| {
        let is_named = |row: &&Value| row["module"].as_str().is_some_and(|m| m.starts_with(name));
        modules.iter().find(is_named).and_then(|row| row["self_share"].as_f64())
    };
    let zlib = self_share("libz.so").unwrap_or_else(|| panic!("no zlib in {modules:#?}"));
    // Page faults of the memory that zlib writes belong to the kernel: 2 % of all time on an idle
    // machine, up to 6 % beside three programs that write memory.
    let kernel = self_share("[kernel]").unwrap_or(0.0);
    let third = 1.0 / 3.0;
    assert!((third - 0.05 - kernel..third + 0.05).contains(&zlib), "{zlib}: {modules:#?}");
    // The library that a Python function called is named.
    let native = |row: &&Value| row["name"] == "Victim.victim_native";
    let row = table.as_array().unwrap().iter().find(native).unwrap();
    assert!(row["mostly"].as_str().unwrap().starts_with("libz.so"), "{row}");
    let below = cpu["tables"]["python_modules"].as_array().unwrap().iter().filter(native);
    let below: f64 = below.map(|row| row["self_ns"].as_f64().unwrap()).sum();
    assert_eq!(row["self_ns"].as_f64(), Some(below), "{row}");
    let rows = threads["tables"]["threads"].as_array().unwrap();
    let sleeper =
        rows.iter().find(|row| row["waited_in"] == "victim_sleeps (programs/cpu_shares.py)");
    assert!(sleeper.is_some_and(|row| row["sleep_ns"].as_f64() > Some(0.6e9)), "{rows:#?}");
}

#[test]
fn without_the_cpu_activity_there_are_no_samples() {
    let scratch = Scratch::new();
    let run = traced(&Job::new(program("leave")).arg("exit"), &["--activities", "mem"], &scratch);
    let cpu = document("cpu", &run.run);
    assert!(cpu["tables"]["functions"].as_array().unwrap().is_empty());
    let why = cpu["tables"]["functions_missing"].as_str().unwrap();
    assert!(why.contains("--activities cpu"), "{why}");
}

#[test]
fn without_the_mem_activity_allocations_are_unknown_and_not_zero() {
    let scratch = Scratch::new();
    let run = traced(&Job::new(program("leave")).arg("exit"), &["--activities", "cpu"], &scratch);
    let memory = report(&run.run);
    let memory_of_rank = &memory.0["ranks"][0]["host_memory"];
    assert!(memory_of_rank["allocations"].is_null(), "{memory_of_rank}");
}
