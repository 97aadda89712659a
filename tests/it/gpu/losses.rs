//! Lost or truncated records are counted, and none are invented.

use super::*;

#[test]
fn records_that_cupti_dropped_are_counted_and_not_invented() {
    let faulty = [("FAKE_CUPTI_FAULTS", "drop=5")];
    let (_scratch, ran) = need_some!(ran(12, &["10"], &faulty));
    let dropped = faults(&ran.log, "dropped");
    assert_eq!(dropped, 60 / 5);
    assert_eq!(rows::<Kernel>(&ran.file).len(), 60 - dropped);
    assert_eq!(losses(&ran, "GPU records", "no room"), dropped as u64);
}

#[test]
fn kernels_without_times_are_counted_and_not_invented() {
    let faulty = [("FAKE_CUPTI_FAULTS", "zero=7")];
    let (_scratch, ran) = need_some!(ran(13, &["10"], &faulty));
    let zeros = faults(&ran.log, "no times");
    assert_eq!(zeros, 60 / 7);
    assert_eq!(rows::<Kernel>(&ran.file).len(), 60 - zeros);
    assert_eq!(losses(&ran, "GPU records", "no times"), zeros as u64);
}

#[test]
fn records_of_unknown_kinds_are_counted_and_hide_nothing() {
    let faulty = [("FAKE_CUPTI_FAULTS", "unknown=10")];
    let (_scratch, ran) = need_some!(ran(13, &["10"], &faulty));
    assert_kernels(&ran);
    assert_calls(&ran);
    assert!(losses(&ran, "GPU records", "kinds") > 0);
}

#[test]
fn a_buffer_that_cannot_be_read_on_is_counted() {
    // The job runs for over a second, so that a periodic flush reads the broken buffer. If the
    // forced flush at the end read it, the rest of the buffer could be work that has not ended.
    let faulty = [("FAKE_CUPTI_FAULTS", "broken=40"), ("FAKE_CUDA_BLOCK_NS", "40000")];
    let (_scratch, ran) = need_some!(ran(12, &["120"], &faulty));
    assert_eq!(ran.traced.outcome.code, Some(0), "{:?}", ran.traced.outcome);
    assert!(losses(&ran, "bytes of GPU records", "could not read") > 0);
    let wanted = kernels_of_log(&ran.log);
    for (facts, _) in kernels_of_file(&ran.file) {
        assert!(wanted.iter().any(|(of_log, _)| *of_log == facts), "{facts:?} never ran");
    }
}

#[test]
fn a_driver_without_a_device_harms_nothing() {
    let scratch = Scratch::new();
    let (job, log) = need_some!(train(12, &["5"], &scratch));
    let job = job.env("FAKE_CUDA_DEVICES", "0");
    let run = assert_unchanged(&job, &[GPU, &[]], &scratch);
    assert!(run.outcome.stdout.contains("there is no device"), "{:?}", run.outcome);
    let ran = read(run, &log, 0);
    assert!(rows::<Kernel>(&ran.file).is_empty() && ran.file.devices().is_empty());
    assert_eq!(losses(&ran, "", ""), 0);
}

#[test]
fn a_device_that_is_lost_in_the_middle_leaves_what_came_before() {
    let scratch = Scratch::new();
    let (job, log) = need_some!(train(13, &["60"], &scratch));
    let job = job.env("FAKE_CUDA_LOST_AFTER", "300");
    let run = traced(&job, GPU, &scratch);
    assert_eq!(run.outcome.code, Some(1), "{:?}", run.outcome);
    assert!(run.outcome.stderr.contains("failed with 719"), "{:?}", run.outcome);
    let ran = read(run, &log, 0);
    // Everything that was done before the job last waited for the device is recorded; nothing is
    // invented.
    let calls = of_kind(&ran.log, "call").into_iter();
    let waited = calls.filter(|l| l["name"] == "cudaStreamSynchronize" && l["result"] == 0);
    let done = waited.map(|line| number(line, "start")).max().unwrap();
    let got: Vec<KernelFacts> = kernels_of_file(&ran.file).into_iter().map(|row| row.0).collect();
    let kernels = of_kind(&ran.log, "kernel");
    for line in kernels.iter().filter(|line| number(line, "end") < done) {
        assert!(got.contains(&kernel_facts(line).0), "{line} is missing");
    }
    let wanted: Vec<KernelFacts> = kernels.iter().map(|line| kernel_facts(line).0).collect();
    assert!(!got.is_empty() && got.iter().all(|facts| wanted.contains(facts)), "{got:?}");
    assert_calls(&ran);
    let spans = rows::<Span>(&ran.file);
    let failed = spans.iter().filter(|span| span.status == Some(719)).count();
    assert_eq!(failed, of_kind(&ran.log, "call").iter().filter(|l| l["result"] == 719).count());
    assert!(failed > 0);
}

#[test]
fn a_killed_job_loses_only_records_since_the_last_flush() {
    // The job runs for over two seconds, and so has at least two flushes.
    let slow = [("FAKE_CUDA_BLOCK_NS", "80000")];
    let (_scratch, ran) = need_some!(ran(12, &["120", "kill"], &slow));
    let wanted = kernels_of_log(&ran.log);
    let got = kernels_of_file(&ran.file);
    for (facts, _) in &got {
        assert!(wanted.iter().any(|(of_log, _)| of_log == facts), "{facts:?} never ran");
    }
    // All records that one flush returns are written before the next flush begins.
    let flushes: Vec<u64> =
        of_kind(&ran.log, "flush").iter().map(|line| number(line, "start")).collect();
    let [.., flushed, _] = flushes[..] else { panic!("{flushes:?}") };
    // CUPTI has the records of work that the job waited for.
    let calls = of_kind(&ran.log, "call").into_iter();
    let waited = calls
        .filter(|line| line["name"] == "cudaStreamSynchronize" && number(line, "end") < flushed);
    let done = waited.map(|line| number(line, "start")).max().unwrap();
    let due = of_kind(&ran.log, "kernel").into_iter().filter(|line| number(line, "end") < done);
    let due: Vec<KernelFacts> = due.map(|line| kernel_facts(line).0).collect();
    assert!(!due.is_empty());
    for facts in due {
        assert!(got.iter().any(|(of_file, _)| *of_file == facts), "{facts:?} is missing");
    }
}

/// The job ends long before the first periodic flush.
#[test]
fn a_job_that_ends_at_once_keeps_its_last_records() {
    for major in [12, 13] {
        for word in ["_exit", "quick_exit", "handler", "both"] {
            let (_scratch, ran) = need_some!(ran(major, &["3", word], &[]));
            assert_eq!(ran.traced.outcome.code, Some(3), "{word}: {:?}", ran.traced.outcome);
            assert_kernels(&ran);
            assert_copies(&ran);
            assert_calls(&ran);
            assert_eq!(losses(&ran, "", ""), 0, "{word}");
        }
    }
}

/// A forked child has no agent, and a vforked one runs in its parent's memory. Neither waits for an
/// agent or stops its parent's.
#[test]
fn a_child_that_ends_at_once_leaves_its_parents_records() {
    let (_scratch, ran) = need_some!(ran(13, &["5", "children"], &[]));
    assert_eq!(ran.traced.outcome.code, Some(0), "{:?}", ran.traced.outcome);
    assert_kernels(&ran);
    assert_calls(&ran);
}

#[test]
fn kernels_that_were_launched_and_never_recorded_are_counted() {
    for major in [12, 13] {
        let (_scratch, ran) = need_some!(ran(major, &["4", "queue"], &[]));
        assert_eq!(ran.traced.outcome.code, Some(3), "{:?}", ran.traced.outcome);
        // Kernels that ended are recorded. Of the others, only the launches were recorded.
        assert_kernels(&ran);
        assert_calls(&ran);
        assert_eq!(losses(&ran, "kernels", "CUPTI gave no record of them"), 50);
        assert_eq!(losses(&ran, "", ""), 50);
    }
}

/// Each fault of the stand-in, except those that lose whole buffers.
#[test]
fn the_records_that_a_fault_spares_are_exact() {
    for (fault, lost) in [
        ("drop=5", "dropped"),
        ("zero=7", "no times"),
        ("drop=3,zero=4,late", ""),
        ("unknown=10", ""),
        ("overhead=3", ""),
        ("late", ""),
        ("subscriber", ""),
    ] {
        for (major, words) in [(12, ["9", "threads", "overlap"]), (13, ["9", "graph", "memory"])] {
            let faulty = [("FAKE_CUPTI_FAULTS", fault)];
            let (_scratch, ran) = need_some!(ran(major, &words, &faulty));
            assert_eq!(ran.traced.outcome.code, Some(0), "{:?}", ran.traced.outcome);
            let place = |line: &Value| (number(line, "correlation"), number(line, "node"));
            let missing: Vec<(u64, u64)> =
                of_kind(&ran.log, "fault").into_iter().map(place).collect();
            let left: Vec<Value> = (ran.log.iter())
                .filter(|line| line["what"] != "kernel" || !missing.contains(&place(line)))
                .cloned()
                .collect();
            let (wanted, got) = (kernels_of_log(&left), kernels_of_file(&ran.file));
            assert_eq!(wanted.len() + missing.len(), kernels_of_log(&ran.log).len());
            assert_same(wanted, got, uncertainty(&ran.file));
            assert_copies(&ran);
            assert_waits(&ran);
            assert_calls(&ran);
            // Each missing kernel is counted once.
            let (dropped, timeless) = (faults(&ran.log, "dropped"), faults(&ran.log, "no times"));
            assert_eq!(dropped + timeless, missing.len(), "{fault}");
            assert!(lost.is_empty() || !missing.is_empty(), "{fault}");
            assert_eq!(losses(&ran, "GPU records", "no room"), dropped as u64, "{fault}");
            assert_eq!(losses(&ran, "GPU records", "no times"), timeless as u64, "{fault}");
            assert_eq!(losses(&ran, "kernels", ""), 0, "{fault}");
        }
    }
}
