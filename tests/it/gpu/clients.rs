//! Tests of a CUPTI that refuses calls, is too old or is missing, and of other clients that use
//! CUPTI.

use super::*;

#[test]
fn kinds_that_cupti_refuses_are_reported_and_the_rest_is_recorded() {
    // CONCURRENT_KERNEL, with CUPTI_ERROR_INSUFFICIENT_PRIVILEGES.
    let faulty = [("FAKE_CUPTI_FAULTS", "refuse=cuptiActivityEnable/10:35")];
    let (_scratch, ran) = need_some!(ran(12, &["5"], &faulty));
    assert_eq!(ran.traced.outcome.code, Some(0), "{:?}", ran.traced.outcome);
    assert!(rows::<Kernel>(&ran.file).is_empty());
    assert!(blind(&ran, "CUPTI refused it"));
    assert_copies(&ran);
}

#[test]
fn the_hooks_record_the_calls_if_cupti_refuses_everything() {
    let faulty = [("FAKE_CUPTI_FAULTS", "refuse=cuptiActivityRegisterCallbacks:39")];
    let (_scratch, ran) = need_some!(ran(12, &["5"], &faulty));
    assert_eq!(ran.traced.outcome.code, Some(0), "{:?}", ran.traced.outcome);
    assert!(blind(&ran, "CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED"));
    let spans = rows::<Span>(&ran.file);
    let launches = spans.iter().filter(|s| ran.file.name(s.name) == "cudaLaunchKernel").count();
    assert_eq!(launches, 30);
}

#[test]
fn a_newer_cupti_is_read_as_far_as_it_is_known_and_an_older_one_refused() {
    for (version, kernels) in [("999999", 12), ("17", 0)] {
        let (_scratch, ran) = need_some!(ran(13, &["2"], &[("FAKE_CUPTI_VERSION", version)]));
        assert_eq!(ran.traced.outcome.code, Some(0), "{:?}", ran.traced.outcome);
        assert_eq!(rows::<Kernel>(&ran.file).len(), kernels, "version {version}");
        assert_eq!(blind(&ran, "this libcupti is older than CUDA 12.0: "), kernels == 0);
        assert_eq!(blind(&ran, "CUPTI 99.99 is newer than 13.5"), kernels > 0);
    }
}

#[test]
fn a_cupti_that_cannot_be_used_is_reported_and_harms_nothing() {
    let home = need_some!(stand_ins());
    // No CUPTI is in the loader's path, so only TPROF_CUPTI counts.
    let scratch = Scratch::new();
    let bare = scratch.join("bare");
    std::fs::create_dir_all(&bare).unwrap();
    for library in ["libcuda.so.1", "libcudart.so.12", "libnccl.so.2"] {
        std::fs::copy(home.join("12").join(library), bare.join(library)).unwrap();
    }
    let text = scratch.join("text.so");
    std::fs::write(&text, "no library").unwrap();
    let other = home.join("12/libnccl.so.2");
    let right = home.join("12/libcupti.so.12");
    for (named, why) in [
        (Path::new("/no/such/file.so"), "a file that is not there: /no/such/file.so"),
        (Path::new("no-such-name.so"), "a file that does not load: no-such-name.so"),
        (text.as_path(), "a file that does not load: /"),
        (other.as_path(), "a library that is not CUPTI: /"),
        (Path::new(""), "not in the CUDA wheels"),
        (right.as_path(), ""),
    ] {
        let scratch = Scratch::new();
        let (job, log) = need_some!(train(12, &["3"], &scratch));
        let job = job.env("LD_LIBRARY_PATH", &bare).env("TPROF_CUPTI", named);
        let ran = read(traced(&job, GPU, &scratch), &log, 0);
        assert_eq!(ran.traced.outcome.code, Some(0), "{:?}", ran.traced.outcome);
        let kernels = rows::<Kernel>(&ran.file).len();
        assert_eq!(kernels, if why.is_empty() { 18 } else { 0 }, "{named:?}");
        assert!(why.is_empty() || blind(&ran, why), "{named:?}: {why}");
    }
}

#[test]
fn another_client_that_takes_over_the_records_is_named_with_the_time() {
    // The kernels take long enough to make the gap more than a moment.
    let slow = [("FAKE_CUDA_BLOCK_NS", "40000")];
    let (_scratch, ran) = need_some!(ran(12, &["120", "tool"], &slow));
    assert_eq!(ran.traced.outcome.code, Some(0), "{:?}", ran.traced.outcome);
    assert!(ran.traced.outcome.stdout.contains("the tool saw kernels"));
    let info = run_info(&ran.traced.run, |info| info["finished"] == true);
    let list = info["completeness"]["blind"].as_array().unwrap();
    let gaps: Vec<&Value> = list
        .iter()
        .filter(|entry| entry["why"].as_str().unwrap().contains("took them over"))
        .collect();
    let [gap] = gaps.as_slice() else { panic!("{list:?}") };
    assert!(gap["what"].as_str().unwrap().starts_with("what the GPU did from "), "{gap}");
    // Kernels before the takeover are recorded, and none after it is invented.
    let kernels = rows::<Kernel>(&ran.file).len();
    assert!((1..120 * 6).contains(&kernels), "{kernels} kernels");
    let marks = ran.file.marks().iter().map(|mark| (ran.file.name(mark.name), mark.time_ns));
    let taken = marks.filter(|(name, _)| name.starts_with("another client of CUPTI"));
    let taken: Vec<u64> = taken.map(|(_, time_ns)| time_ns).collect();
    // The gap begins, to within milliseconds, with the first launch that was not recorded.
    let [taken] = taken.as_slice() else { panic!("{taken:?}") };
    let spans = rows::<Span>(&ran.file);
    let recorded = |span: &&Span| is_launch(ran.file.name(span.name));
    let recorded: Vec<u64> = spans.iter().filter(recorded).map(|span| span.start_ns).collect();
    assert!(recorded.iter().all(|start_ns| *start_ns < taken + 5_000_000), "{taken}: {recorded:?}");
    // Each earlier launch is recorded, or lies within this time of a recorded call.
    const NEXT_NS: u64 = 4_000_000;
    let calls = spans.iter().filter(|span| span.kind == SpanKind::Runtime);
    let calls: Vec<u64> = calls.map(|span| span.start_ns).collect();
    for line in of_kind(&ran.log, "call") {
        let start = number(line, "start");
        if is_launch(line["name"].as_str().unwrap()) && start + NEXT_NS < *taken {
            assert!(calls.iter().any(|call| call.abs_diff(start) <= NEXT_NS), "{line}, {taken}");
        }
    }
}

#[test]
fn a_library_that_the_job_injects_itself_is_loaded_first() {
    let scratch = Scratch::new();
    let source = scratch.join("own.c");
    std::fs::write(
        &source,
        "#include <stdio.h>\nint InitializeInjection(void) { puts(\"own injection\"); fflush(stdout); return 1; }\n",
    )
    .unwrap();
    let own = scratch.join("own.so");
    let built = Job::new("gcc").args(["-shared", "-fPIC", "-o"]).arg(&own).arg(&source);
    assert_eq!(built.run_in(scratch.path()).code, Some(0));
    let (job, log) = need_some!(train(12, &["4"], &scratch));
    let job = job.env("CUDA_INJECTION64_PATH", &own);
    let ran = read(assert_unchanged(&job, &[GPU], &scratch), &log, 0);
    assert!(ran.traced.outcome.stdout.contains("own injection"));
    assert!(!rows::<Kernel>(&ran.file).is_empty());

    let scratch = Scratch::new();
    let (job, log) = need_some!(train(12, &["4"], &scratch));
    let job = job.env("CUDA_INJECTION64_PATH", "/no/such/library.so");
    let ran = read(assert_unchanged(&job, &[GPU], &scratch), &log, 0);
    let why = "CUDA_INJECTION64_PATH names a library that does not load: /no/such/library.so";
    assert!(blind(&ran, why));
    assert!(!rows::<Kernel>(&ran.file).is_empty());
}

#[test]
fn a_program_without_cuda_sees_nothing_of_the_agent() {
    let scratch = Scratch::new();
    let job = Job::sh("grep -c libtprof_cupti /proc/self/maps; echo done");
    let ran = traced(&job, GPU, &scratch);
    assert_eq!(ran.outcome.stdout, "0\ndone\n");
}
