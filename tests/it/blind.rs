//! Processes that cannot be recorded are reported, each with a reason.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use tprof_tests::{
    EXACT, Job, Kind, Refused, Scratch, am_root, build, memory_report, need, need_some, program,
    report, tprof, traced, traced_job,
};

/// Runs a program by itself and below a shell. Either way the report must name it, with a reason
/// that contains one of these words.
#[track_caller]
fn assert_blind(program: &Path, arguments: &[&str], words: &[&str]) {
    let name = program.file_name().unwrap().to_str().unwrap();
    let scratch = Scratch::new();
    let alone = Job::new(program).args(arguments);
    let below = Job::sh("\"$@\"; true").arg(program).args(arguments);
    for job in [alone, below] {
        let run = traced(&job, EXACT, &scratch);
        let report = report(&run.run);
        let why = report.blind(name).unwrap_or_else(|| {
            panic!("{} is not reported as blind: {}", job.name(), report.0["completeness"])
        });
        let low = why.to_lowercase();
        assert!(
            words.iter().any(|word| low.contains(word)),
            "{}: {why:?} names none of {words:?}",
            job.name()
        );
    }
}

#[test]
fn a_static_program_is_reported() {
    assert_blind(&need_some!(build("leave", Kind::Static)), &["exit"], &["static"]);
}

#[test]
fn a_static_musl_program_is_reported() {
    assert_blind(&need_some!(build("leave", Kind::MuslStatic)), &["exit"], &["static"]);
}

#[test]
fn a_32_bit_program_is_reported() {
    assert_blind(&need_some!(build("leave", Kind::M32)), &["exit"], &["32", "class"]);
}

#[test]
fn a_program_with_its_own_malloc_is_reported() {
    assert_blind(&program("own_malloc"), &[], &["malloc", "alloc"]);
}

#[test]
fn a_bundled_jemalloc_is_reported() {
    assert_blind(&need_some!(build("bundled", Kind::Jemalloc)), &[], &["malloc", "alloc"]);
}

#[test]
fn a_bundled_tcmalloc_is_reported() {
    assert_blind(&need_some!(build("bundled", Kind::Tcmalloc)), &[], &["malloc", "alloc"]);
}

#[test]
fn an_allocator_with_renamed_functions_is_reported() {
    for kind in [Kind::OwnJemalloc, Kind::OwnJemallocStripped] {
        let program = need_some!(build("own_allocator", kind));
        assert_blind(&program, &[], &["jemalloc, linked statically"]);
        let scratch = Scratch::new();
        let words = ["run", "-o", "r", "--"].map(std::ffi::OsString::from);
        let outcome = tprof(words).arg(&program).run_in(scratch.path()).expect_code(0);
        assert!(outcome.stderr.contains("not recorded: allocations of"), "{outcome:?}");
        assert!(!outcome.stderr.contains("heap peak"), "{outcome:?}");
        let memory = memory_report(&scratch.join("r"));
        assert!(memory.only()["peak_bytes"].is_null(), "{}", memory.only());
        let doctor = tprof(["doctor", "--"]).arg(&program).run_in(scratch.path());
        assert!(doctor.stdout.contains("jemalloc, linked statically"), "{doctor:?}");
    }
}

#[test]
fn a_rust_global_allocator_is_recorded_only_if_it_calls_malloc() {
    let own = need_some!(build("own_global", Kind::Plain));
    assert_blind(&own, &[], &["rust's #[global_allocator]"]);
    let scratch = Scratch::new();
    let run = traced(&Job::new(program("wrapped_global")), EXACT, &scratch).run;
    assert_eq!(report(&run).blind("wrapped_global"), None);
    let peak = memory_report(&run).only()["peak_bytes"].as_i64().unwrap();
    assert!((50 << 20..52 << 20).contains(&peak), "{peak}");
}

#[test]
fn a_library_with_an_allocator_of_its_own_is_reported_once_it_is_used() {
    for kind in [Kind::OwnJemalloc, Kind::OwnJemallocStripped] {
        let library = need_some!(build("own_allocator_lib", kind));
        for used in [false, true] {
            let scratch = Scratch::new();
            let job = Job::new(program("loads")).args(used.then_some("hold"));
            // Preloaded, because its TLS block is too large for `dlopen`.
            let job = job.env("LD_PRELOAD", &library);
            let run = traced(&job, &[], &scratch);
            assert_eq!(run.outcome.code, Some(0), "{:?}", run.outcome);
            let report = report(&run.run);
            let why = report.blind("loads").unwrap_or_default();
            let reported =
                why == "own_allocator_lib.so has its own allocator (jemalloc, linked statically)";
            assert_eq!(reported, used, "{kind:?}: {}", report.0["completeness"]);
            let text = tprof(["report"]).arg(&run.run).run_in(scratch.path()).stdout;
            let heap = text.lines().find(|line| line.trim_start().starts_with("heap "));
            assert_eq!(heap.unwrap().contains("peak at least"), used, "{text}");
        }
    }
}

#[test]
fn a_sanitizer_build_is_reported() {
    assert_blind(&need_some!(build("asan_error", Kind::Asan)), &[], &["sanitizer", "asan"]);
}

#[test]
fn a_child_with_an_empty_environment_is_reported() {
    let scratch = Scratch::new();
    let run = traced(&Job::new(program("exec_empty_env")), EXACT, &scratch);
    let report = report(&run.run);
    let why =
        report.blind("exec_empty_env").unwrap_or_else(|| panic!("{}", report.0["completeness"]));
    assert!(why.to_lowercase().contains("environment"), "{why}");
}

#[test]
fn a_child_below_env_i_is_reported() {
    let scratch = Scratch::new();
    let run = traced(&Job::sh("env -i \"$1\"; true").arg(program("short")), EXACT, &scratch);
    let report = report(&run.run);
    let why = report.blind("short").unwrap_or_else(|| panic!("{}", report.0["completeness"]));
    assert!(why.to_lowercase().contains("environment"), "{why}");
}

#[test]
fn a_setuid_program_runs_as_it_should_and_is_reported() {
    need!(am_root(), Refused::Root);
    let scratch = Scratch::new();
    let program_path = scratch.join("ids");
    std::fs::copy(program("ids"), &program_path).unwrap();
    std::fs::set_permissions(&program_path, PermissionsExt::from_mode(0o4755)).unwrap();
    let open = scratch.join("open");
    std::fs::create_dir(&open).unwrap();
    std::fs::set_permissions(&open, PermissionsExt::from_mode(0o777)).unwrap();

    let nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"];
    let direct = Job::new(&program_path);
    let native = direct.clone().under(nobody).run_in(&open);
    need!(native.stdout.contains("euid 0 secure 1"), Refused::SetUserId);
    for (n, job) in [direct, Job::sh("\"$1\"; exit $?").arg(&program_path)].into_iter().enumerate()
    {
        let run = open.join(format!("run-{n}"));
        let outcome = traced_job(&job.under(nobody), EXACT, &run).run_in(&open);
        assert!(outcome == native, "native {native:?} traced {outcome:?}");
        let report = report(&run);
        let why = report.blind("ids").unwrap_or_else(|| panic!("{}", report.0["completeness"]));
        let low = why.to_lowercase();
        assert!(low.contains("setuid") || low.contains("set-user"), "{why}");
    }
}

#[test]
fn a_completely_recorded_run_has_no_blind_process() {
    let scratch = Scratch::new();
    let run = traced(&Job::sh("\"$1\" 0; \"$1\" 0").arg(program("short")), EXACT, &scratch);
    let report = report(&run.run);
    assert_eq!(
        report.0["completeness"]["blind"].as_array().map(Vec::len),
        Some(0),
        "{}",
        report.0["completeness"]
    );
    assert_eq!(report.lost(), 0);
}
