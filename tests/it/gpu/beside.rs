//! Tests of jobs with a profiler of their own that uses CUPTI as torch.profiler does. The profiler
//! must get the same records as without tprof, and tprof must get all records.

use super::*;
use tprof_tests::profiled;

/// Runs the job without tprof and with it, and compares its output.
fn beside(
    major: u32,
    words: &[&str],
    env: &[(&str, &str)],
) -> Result<(Scratch, Scratch, Ran), String> {
    let (native, scratch) = (Scratch::new(), Scratch::new());
    let job = |scratch: &Scratch| -> Result<(Job, PathBuf), String> {
        let (mut job, log) = profiled(major, words, scratch)?;
        for (name, value) in env {
            job = job.env(name, value);
        }
        Ok((job, log))
    };
    let outcome = job(&native)?.0.run_in(native.cwd());
    let (job, log) = job(&scratch)?;
    let traced = traced(&job, GPU, &scratch);
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    let kernels = match words {
        [_, "mean"] => "0 kernels",
        ["1", "early"] => "72 kernels",
        _ => "36 kernels",
    };
    assert!(outcome.stdout.contains(kernels), "{outcome:?}");
    assert_eq!(traced.outcome, outcome, "{words:?}, {env:?}");
    Ok((native, scratch, read(traced, &log, 0)))
}

fn marks<'a>(ran: &'a Ran, text: &str) -> Vec<&'a str> {
    let names = ran.file.marks().iter().map(|mark| ran.file.name(mark.name));
    names.filter(|name| name.contains(text)).collect()
}

#[test]
fn a_jobs_own_profiler_and_tprof_both_see_all_of_each_session() {
    let faults = |words| [("FAKE_CUPTI_FAULTS", words)];
    for (major, words, env) in [
        (12, &["3"][..], faults("orphans")),
        (13, &["3", "ticks", "threads"], faults("lost")),
        (12, &["3", "zeroed", "small"], faults("late")),
        (13, &["3", "dlsym", "ticks"], faults("")),
        (12, &["2", "mean"], faults("")),
    ] {
        let (_native, _scratch, ran) = need_some!(beside(major, words, &env));
        assert_kernels(&ran);
        assert_copies(&ran);
        assert_waits(&ran);
        assert_eq!(losses(&ran, "", ""), 0, "{words:?}");
        assert_eq!(marks(&ran, "another client of CUPTI records too").len(), 1, "{words:?}");
        assert!(marks(&ran, "clock was set").is_empty(), "{words:?}");
    }
}

#[test]
fn a_profiler_that_begins_before_the_driver_does_gets_its_records_too() {
    let faults = |words| vec![("FAKE_CUPTI_FAULTS", words)];
    for (major, words, env) in [
        (12, vec!["2", "early"], faults("orphans")),
        (13, vec!["2", "early", "ticks", "threads"], faults("lost")),
        (13, vec!["2", "early", "zeroed", "dlsym"], faults("late")),
        (12, vec!["2", "injected", "ticks"], faults("")),
        (13, vec!["2", "injected", "small"], faults("lost")),
    ] {
        let scratch = Scratch::new();
        let own = need_some!(own_injection(&scratch));
        let mut env = env;
        if words.contains(&"injected") {
            env.push(("CUDA_INJECTION64_PATH", own.to_str().unwrap()));
        }
        let (_native, _scratch, ran) = need_some!(beside(major, &words, &env));
        assert_kernels(&ran);
        assert_copies(&ran);
        assert_waits(&ran);
        assert_eq!(losses(&ran, "", ""), 0, "{words:?}");
        assert_eq!(marks(&ran, "another client of CUPTI records too").len(), 1, "{words:?}");
    }
}

#[test]
fn a_profiler_that_begins_first_keeps_a_cupti_that_tprof_cannot_use() {
    let env = [("FAKE_CUPTI_VERSION", "17")];
    for words in [["2", "early", "ticks", "zeroed"], ["2", "early", "threads", "dlsym"]] {
        let (native, scratch) = (Scratch::new(), Scratch::new());
        let job = |scratch: &Scratch| -> Result<Job, String> {
            Ok(env
                .iter()
                .fold(profiled(12, &words, scratch)?.0, |job, (name, value)| job.env(name, value)))
        };
        let outcome = need_some!(job(&native)).run_in(native.cwd());
        let traced = traced(&need_some!(job(&scratch)), GPU, &scratch);
        assert!(outcome.stdout.contains("36 kernels"), "{outcome:?}");
        assert_eq!(traced.outcome, outcome, "{words:?}");
    }
}

#[test]
fn a_profiler_has_cupti_to_itself_where_no_gpu_work_is_recorded() {
    let (native, scratch) = (Scratch::new(), Scratch::new());
    let words = ["2", "loaded", "ticks", "zeroed"];
    let outcome = need_some!(profiled(13, &words, &native)).0.run_in(native.cwd());
    assert!(outcome.stdout.contains("36 kernels"), "{outcome:?}");
    let job = need_some!(profiled(13, &words, &scratch)).0;
    let traced = traced(&job, &["--activities", "nvtx"], &scratch);
    assert_eq!(traced.outcome, outcome);
}

/// Builds a library that the driver injects, and that makes the program begin its first session.
fn own_injection(scratch: &Scratch) -> Result<PathBuf, String> {
    let (source, library) = (scratch.join("own.c"), scratch.join("own.so"));
    let text = "void profiled_begin(void);\nint InitializeInjection(void) { profiled_begin(); return 1; }\n";
    std::fs::write(&source, text).map_err(|error| error.to_string())?;
    let built = Job::new("gcc").args(["-shared", "-fPIC", "-o"]).arg(&library).arg(&source);
    assert_eq!(built.run_in(scratch.path()).code, Some(0));
    Ok(library)
}

#[test]
fn a_profiler_gets_the_records_behind_those_of_unfinished_work() {
    // Eight records fill a buffer, and an unreadable record lies behind the last one.
    let env = [("FAKE_CUPTI_FAULTS", "hold=8,unended")];
    let (_native, _scratch, ran) = need_some!(beside(13, &["1", "early"], &env));
    assert!(losses(&ran, "bytes of GPU records", "had not ended") > 0);
}

#[test]
fn kinds_that_another_clients_domain_disables_are_enabled_again() {
    let env = [("FAKE_CUPTI_FAULTS", "domains"), ("FAKE_CUPTI_VERSION", "24")];
    let (_native, _scratch, ran) = need_some!(beside(12, &["3", "domain"], &env));
    assert_kernels(&ran);
    assert_copies(&ran);
    assert_eq!(losses(&ran, "", ""), 0);
}

#[test]
fn a_client_of_the_newer_interface_is_refused_by_cupti_and_named() {
    let scratch = Scratch::new();
    let (job, log) = need_some!(profiled(13, &["1", "refused"], &scratch));
    let traced = traced(&job, GPU, &scratch);
    let ran = read(traced, &log, 0);
    assert_eq!(ran.traced.outcome.code, Some(0), "{:?}", ran.traced.outcome);
    assert!(blind(&ran, "CUPTI refused it"), "{:?}", ran.traced.outcome);
    let info = run_info(&ran.traced.run, |info| info["finished"] == true);
    let list = info["completeness"]["blind"].as_array().unwrap();
    let named = |entry: &Value| entry["what"].as_str().unwrap().contains("cuptiSubscribe_v2");
    assert!(list.iter().any(named), "{list:#?}");
    assert_kernels(&ran);
}

#[test]
fn calls_that_nobody_reads_are_left_out_unless_a_profiler_wants_them() {
    let (_native, _scratch, ran) = need_some!(beside(13, &["2"], &[]));
    let last_error = |line: &&&Value| line["name"] == "cudaGetLastError";
    assert!(of_kind(&ran.log, "call").iter().filter(last_error).count() > 72);
    assert!(ran.traced.outcome.stdout.contains("99 calls (0 and 36)"), "{:?}", ran.traced.outcome);
    let spans = rows::<Span>(&ran.file);
    let named = |name: &str| spans.iter().filter(|span| ran.file.name(span.name) == name).count();
    assert_eq!((named("cudaGetLastError"), named("cudaGetDevice")), (0, 0));
    assert_eq!(named("cudaLaunchKernel"), kernels_of_log(&ran.log).len());
}

#[test]
fn a_profiler_that_detaches_cupti_leaves_a_named_gap() {
    let words = ["2", "finalize", "long"];
    let (_native, _scratch, ran) = need_some!(beside(12, &words, &[]));
    assert!(blind(&ran, "another client detached CUPTI from the process"));
    assert_eq!(marks(&ran, "another client detaches CUPTI").len(), 2);
    assert_eq!(marks(&ran, "CUPTI records again").len(), 2);
    // Six stretches of 36 kernels each. The kernels right after a session are missing.
    let kernels = rows::<Kernel>(&ran.file).len();
    assert!((4 * 36..6 * 36).contains(&kernels), "{kernels}");
}

#[test]
fn a_profiler_past_all_hooks_is_named_and_left_alone() {
    let scratch = Scratch::new();
    let (job, log) = need_some!(profiled(12, &["3", "bypass", "long"], &scratch));
    let job = job.env("FAKE_CUPTI_FAULTS", "lost");
    let ran = read(traced(&job, GPU, &scratch), &log, 0);
    assert_eq!(ran.traced.outcome.code, Some(0), "{:?}", ran.traced.outcome);
    let sessions = ran.traced.outcome.stdout.matches("36 kernels, 12 copies, 12 fills").count();
    assert_eq!(sessions, 3, "{:?}", ran.traced.outcome);
    assert!(!ran.traced.outcome.stdout.contains(", 1 unknown"), "{:?}", ran.traced.outcome);
    assert!(blind(&ran, "another client of CUPTI took"));
}

#[test]
fn a_cupti_that_crashes_without_a_buffer_always_gets_one() {
    // Each record takes a buffer, and no buffer comes back before the end.
    for (version, what) in [("24", "crashes without one"), ("28", "counted beside")] {
        let held = [("FAKE_CUPTI_FAULTS", "hold"), ("FAKE_CUPTI_VERSION", version)];
        let (_scratch, ran) = need_some!(ran(12, &["30"], &held));
        assert_eq!(ran.traced.outcome.code, Some(0), "{:?}", ran.traced.outcome);
        assert!(losses(&ran, "", what) > 0, "version {version}");
        assert!(!rows::<Kernel>(&ran.file).is_empty());
    }
}

#[test]
fn threads_of_an_old_cuptis_overhead_are_not_invented() {
    let threads = |version| -> Result<usize, String> {
        let env = [("FAKE_CUPTI_FAULTS", "overhead=3"), ("FAKE_CUPTI_VERSION", version)];
        let (_scratch, ran) = ran(12, &["6"], &env)?;
        assert!(rows::<Span>(&ran.file).iter().any(|span| span.kind == SpanKind::Overhead));
        Ok(ran.file.threads().len())
    };
    assert_eq!(need_some!(threads("21")), need_some!(threads("28")));
}

#[test]
fn work_that_had_not_ended_does_not_count_as_an_unreadable_buffer() {
    let (_scratch, ran) = need_some!(ran(12, &["6"], &[("FAKE_CUPTI_FAULTS", "unended")]));
    assert_kernels(&ran);
    assert!(losses(&ran, "bytes of GPU records", "had not ended") > 0);
    assert_eq!(losses(&ran, "", "could not read"), 0);
}

#[test]
fn cupti_is_left_in_peace_while_the_driver_starts() {
    let slow = [("FAKE_CUDA_INIT_NS", "1500000000")];
    // `ran` fails if the stand-in logs a complaint.
    let (_scratch, ran) = need_some!(ran(13, &["3"], &slow));
    assert_kernels(&ran);
}
