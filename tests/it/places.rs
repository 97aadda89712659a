//! Tests of where a run is written: on full disks, in places that can't be written, and over an
//! existing run.

use std::path::PathBuf;
use tprof_tests::{
    EXACT, Job, Outcome, Refused, Report, Scratch, am_root, assert_cut_off, assert_refused,
    can_mount, expected, need, program, report, tprof_at, traced_job,
};

/// Runs `leave` with its run on a tmpfs of this size, and reports the run in the same mount
/// namespace. Returns the job's outcome, and the report's status and text.
fn on_a_small_disk(size: &str, options: &str) -> (Outcome, i32, String) {
    let scratch = Scratch::new();
    let disk = scratch.join("disk");
    std::fs::create_dir(&disk).unwrap();
    let script = format!(
        "mount -t tmpfs -o size={size} tmpfs disk || exit 99
        '{tprof}' run --quiet {options} -o disk/run -- \"$@\" 2>job.err; code=$?
        '{tprof}' report disk/run --json >report.json 2>report.err; echo $? >report.code
        cat job.err >&2; exit $code",
        tprof = tprof_at().display()
    );
    let job = Job::new(program("leave")).args(["exit", "400000", "300000"]);
    let outcome = job.under(["unshare", "-m", "sh", "-c", &script, "sh"]).run_in(scratch.path());
    let read = |name: &str| std::fs::read_to_string(scratch.join(name)).unwrap();
    let code = read("report.code").trim().parse().unwrap();
    (outcome, code, read(if code == 0 { "report.json" } else { "report.err" }))
}

#[test]
fn a_full_disk_is_reported_and_does_not_harm_the_job() {
    need!(can_mount(), Refused::Mounts);
    for options in ["--mem exact", "--mem exact --stacks off", "--mem sampled=256"] {
        let (outcome, code, output) = on_a_small_disk("128k", options);
        assert_eq!(outcome.code, Some(11), "{options}: {outcome:?}");
        assert!(outcome.stdout.starts_with("expect "), "{options}: {outcome:?}");
        if code == 0 {
            let report = Report(serde_json::from_str(&output).unwrap());
            assert_cut_off(&report);
        } else {
            assert_eq!(code, 125, "{options}: {output}");
        }
        if options.contains("exact") {
            let stderr = outcome.stderr.to_lowercase();
            assert!(
                code == 0 || stderr.contains("space") || stderr.contains("full"),
                "{options}: {outcome:?} {output}"
            );
        }
    }
}

/// Returns the counts of recorded and lost events after the disk was full: in the summary on
/// stderr, in `run.json`, and in reports of the run and of its file.
fn counted_on_a_small_disk(size: &str, options: &str) -> (Outcome, [String; 4]) {
    let scratch = Scratch::new();
    std::fs::create_dir(scratch.join("disk")).unwrap();
    let script = format!(
        "mount -t tmpfs -o size={size} tmpfs disk || exit 99
        '{tprof}' run {options} -o disk/run -- \"$@\" 2>summary; code=$?
        cp disk/run/run.json run.json
        '{tprof}' report disk/run --json >run.report
        '{tprof}' report disk/run/rank-0.tprof --json >file.report
        exit $code",
        tprof = tprof_at().display()
    );
    let job = Job::new(program("leave")).args(["exit", "400000", "300000"]);
    let outcome = job.under(["unshare", "-m", "sh", "-c", &script, "sh"]).run_in(scratch.path());
    let read = |name: &str| std::fs::read_to_string(scratch.join(name)).unwrap();
    (outcome, ["summary", "run.json", "run.report", "file.report"].map(read))
}

#[test]
fn losses_on_a_full_disk_are_the_same_number_in_every_report() {
    need!(can_mount(), Refused::Mounts);
    for (size, options) in [
        ("256k", "--mem exact"),
        ("128k", "--mem exact --stacks off"),
        ("512k", "--mem exact --sample-rate 999"),
        ("192k", "--mem sampled=256"),
    ] {
        let (outcome, [summary, info, run, file]) = counted_on_a_small_disk(size, options);
        assert_eq!(outcome.code, Some(11), "{options}: {outcome:?}");
        let of = |text: &str| -> serde_json::Value { serde_json::from_str(text).unwrap() };
        let (info, run, file) = (of(&info), of(&run), of(&file));
        let all = format!("{options}:\n{summary}\n{}\n{run}\n{file}", info["completeness"]);
        assert_eq!(info["finished"], true, "{all}");
        let counts = |value: &serde_json::Value| {
            ["recorded", "lost", "losses"].map(|key| value["completeness"][key].clone())
        };
        assert_eq!(counts(&info), counts(&run), "{all}");
        assert_eq!(counts(&info), counts(&file), "{all}");
        let digits = summary.replace(',', "");
        let lost = info["completeness"]["lost"].as_i64().unwrap();
        assert!(lost > 0 && digits.contains(&format!(" {lost} lost")), "{all}");
        // Every event of the job is either in the file or counted as lost.
        if options.contains("exact") {
            let wanted = expected(&outcome.stdout);
            let report = Report(run);
            let seen = report.total("allocations") + report.total("frees");
            let lost = report.lost_of("heap events") + report.lost_of("records");
            assert!(seen + lost >= wanted.allocations + wanted.frees, "{all}");
            assert!(seen + lost <= wanted.allocations + wanted.frees + 10, "{all}");
        }
    }
}

#[test]
fn a_disk_that_is_full_from_the_start_is_an_error() {
    need!(can_mount(), Refused::Mounts);
    let scratch = Scratch::new();
    std::fs::create_dir(scratch.join("disk")).unwrap();
    let script = format!(
        "mount -t tmpfs -o size=64k tmpfs disk || exit 99
        head -c 1000000 /dev/zero >disk/fill 2>/dev/null
        exec '{}' run --mem exact -o disk/run -- \"$@\"",
        tprof_at().display()
    );
    let job = Job::new(program("leave")).args(["exit", "1000", "500"]);
    let outcome = job.under(["unshare", "-m", "sh", "-c", &script, "sh"]).run_in(scratch.path());
    // tprof refuses before the job starts, or runs the job normally.
    assert!(!outcome.stderr.is_empty(), "{outcome:?}");
    match outcome.code {
        Some(11) => assert!(outcome.stdout.starts_with("expect "), "{outcome:?}"),
        _ => assert_refused(&outcome, &["space"]),
    }
}

/// Returns a job that leaves a file if it is started.
fn marking() -> Job {
    Job::sh("touch started; echo ran")
}

#[test]
fn a_place_that_cannot_be_written_is_refused_before_the_job_starts() {
    let scratch = Scratch::new();
    let file = scratch.write("file", "not a directory\n");
    let mut places: Vec<PathBuf> =
        vec![file.clone(), file.join("run"), "/proc/tprof-run".into(), "/dev/null/run".into()];
    places.push(scratch.join("a\nb").join("c").join("d".repeat(300)));
    for place in places {
        let cwd = scratch.cwd();
        let outcome = traced_job(&marking(), EXACT, &place).run_in(&cwd);
        assert_refused(&outcome, &[]);
        assert!(!cwd.join("started").exists(), "{}: {outcome:?}", place.display());
    }
    assert_eq!(std::fs::read_to_string(file).unwrap(), "not a directory\n");
}

#[test]
fn a_directory_of_another_user_is_refused() {
    need!(am_root(), Refused::Root);
    let scratch = Scratch::new();
    let nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"];
    let outcome = traced_job(&marking().under(nobody), EXACT, &scratch.join("run")).run_in("/tmp");
    assert_refused(&outcome, &["run", "ermission"]);
}

#[test]
fn an_existing_run_is_kept_refused_or_replaced_as_asked() {
    let scratch = Scratch::new();
    let run = scratch.run();
    let first = traced_job(&Job::new(program("short")), EXACT, &run).run_in(scratch.cwd());
    assert_eq!(first.code, Some(0), "{first:?}");
    let before = std::fs::read(run.join("rank-0.tprof")).unwrap();
    let cwd = scratch.cwd();
    let refused = ["--mem", "exact", "--if-exists", "fail"];
    let refused = traced_job(&marking(), &refused, &run).run_in(&cwd);
    assert_refused(&refused, &["--force"]);
    assert!(!cwd.join("started").exists());

    // By default an existing directory stops no job: the new run gets a directory beside it.
    let beside = traced_job(&Job::new(program("short")).arg("5"), EXACT, &run);
    let beside = beside.run_in(scratch.cwd());
    let name = format!("{}-2", run.file_name().unwrap().to_str().unwrap());
    assert_eq!(beside.code, Some(5));
    assert!(beside.stderr.contains(&name), "{beside:?}");
    assert_eq!(report(&run.with_file_name(name)).processes("short").len(), 1);
    assert_eq!(std::fs::read(run.join("rank-0.tprof")).unwrap(), before);

    let forced =
        traced_job(&Job::new(program("short")).arg("7"), &["--mem", "exact", "--force"], &run);
    assert_eq!(forced.run_in(scratch.cwd()).code, Some(7));
    assert_eq!(report(&run).processes("short").len(), 1);
}

#[test]
fn an_existing_directory_without_a_run_is_not_emptied() {
    let scratch = Scratch::new();
    let run = scratch.run();
    std::fs::create_dir(&run).unwrap();
    std::fs::write(run.join("thesis.tex"), "years of work").unwrap();
    for options in [EXACT, &["--mem", "exact", "--force"]] {
        let _ = traced_job(&Job::new(program("short")), options, &run).run_in(scratch.cwd());
        assert_eq!(std::fs::read_to_string(run.join("thesis.tex")).unwrap(), "years of work");
    }
}
