//! Tests of calls that hooks record instead of CUPTI. tprof joins these calls with their work by
//! order. The tests compare the joins with the numbers that the stand-ins assigned to calls and
//! work.

use super::*;
use tprof_tests::{gemms, profiled};

/// Runs a job twice: with calls from CUPTI, and with calls from the hooks.
fn both(
    job: impl Fn(&Scratch) -> Result<(Job, PathBuf), String>,
) -> Result<[(Scratch, Ran); 2], String> {
    let ran = |source: &str| -> Result<(Scratch, Ran), String> {
        let scratch = Scratch::new();
        let (job, log) = job(&scratch)?;
        let traced = traced(&job, &[GPU, &["--cuda-calls", source]].concat(), &scratch);
        assert_eq!(traced.outcome.code, Some(0), "{:?}", traced.outcome);
        let ran = read(traced, &log, 0);
        Ok((scratch, ran))
    };
    Ok([ran("cupti")?, ran("hooks")?])
}

fn both_train(
    major: u32,
    words: &[&str],
    env: &[(&str, &str)],
) -> Result<[(Scratch, Ran); 2], String> {
    both(|scratch| {
        let (job, log) = train(major, words, scratch)?;
        Ok((env.iter().fold(job, |job, (name, value)| job.env(name, value)), log))
    })
}

/// Returns each call of the runtime that has a number: its name and thread, and its time.
fn calls_of_file(ran: &Ran) -> BTreeMap<u64, ((&str, u64), [u64; 2])> {
    let thread = |span: &Span| {
        let found = ran.file.threads().iter().find(|thread| thread.thread == span.thread);
        u64::from(found.unwrap().tid)
    };
    let spans = rows::<Span>(&ran.file).into_iter().filter(|s| s.kind == SpanKind::Runtime);
    let numbered = spans.filter_map(|span| {
        let time_ns = [span.start_ns, span.start_ns + span.duration_ns];
        Some((span.correlation?, ((ran.file.name(span.name), thread(&span)), time_ns)))
    });
    numbered.collect()
}

/// Returns the numbers of the work outside of graphs.
fn work_of_file(ran: &Ran) -> Vec<u64> {
    let kernels = rows::<Kernel>(&ran.file).into_iter().filter(|row| row.graph.is_none());
    let copies = rows::<MemoryCopy>(&ran.file).into_iter().filter(|row| row.graph.is_none());
    let copies = copies.map(|row| row.correlation.unwrap());
    kernels.map(|row| row.correlation.unwrap()).chain(copies).collect()
}

/// Checks that each call with a number in the file is the log's call of that number. A hook may
/// wait for a processor before and after the call, so the recorded interval contains the logged one
/// and may be longer. Returns how many pieces of work have a call, and how many there are.
#[track_caller]
fn assert_links(ran: &Ran) -> (usize, usize) {
    let calls = calls_of_file(ran);
    let lines = of_kind(&ran.log, "call");
    let of_log: BTreeMap<u64, ((&str, u64), [u64; 2])> = lines
        .iter()
        .map(|line| {
            let n = |key: &str| number(line, key);
            let name = line["name"].as_str().unwrap();
            (n("correlation"), ((name, n("thread")), [n("start"), n("end")]))
        })
        .collect();
    let off_ns = uncertainty(&ran.file);
    for (number, (call, [start_ns, end_ns])) in &calls {
        let (of_log, [began_ns, ended_ns]) = &of_log[number];
        let covers = *start_ns <= began_ns + off_ns && *ended_ns <= end_ns + off_ns;
        assert_eq!((of_log, covers), (call, true), "{number}");
    }
    let work = work_of_file(ran);
    (work.iter().filter(|number| calls.contains_key(number)).count(), work.len())
}

/// Returns the number of launches that have the hooks' arguments, because no record of CUPTI replaced
/// them.
fn launches_of_hooks(ran: &Ran) -> usize {
    let spans = rows::<Span>(&ran.file);
    let of_hooks = |span: &&Span| {
        is_launch(ran.file.name(span.name)) && ran.file.name(span.args).contains("kernel")
    };
    spans.iter().filter(of_hooks).count()
}

#[test]
fn joining_by_order_gives_the_same_links_as_by_number() {
    for (major, words, env) in [
        (12, &["9"][..], ("", "")),
        (13, &["9", "overlap", "memory", "threads"], ("", "")),
        (13, &["7", "graph"], ("", "")),
        (12, &["9", "overlap"], ("FAKE_CUPTI_FAULTS", "late")),
        (13, &["6", "peer"], ("FAKE_CUDA_DEVICES", "2")),
        (13, &["9", "threads"], ("FAKE_CUPTI_FAULTS", "contexts")),
    ] {
        let env: Vec<_> = [env].into_iter().filter(|(name, _)| !name.is_empty()).collect();
        let [(_a, cupti), (_b, hooks)] = need_some!(both_train(major, words, &env));
        let info = run_info(&hooks.traced.run, |info| info["finished"] == true);
        let lost = &info["completeness"]["losses"];
        assert_eq!(
            (launches_of_hooks(&cupti), losses(&hooks, "", "")),
            (0, 0),
            "{words:?}: {lost}"
        );
        for ran in [&cupti, &hooks] {
            assert_kernels(ran);
            // The log has copies between devices in another form.
            if !words.contains(&"peer") {
                assert_copies(ran);
            }
            assert_waits(ran);
            assert_calls(ran);
            let (linked, work) = assert_links(ran);
            assert_eq!(linked, work, "{words:?}");
        }
        let launched = of_kind(&hooks.log, "call").into_iter();
        let launched = launched.filter(|line| is_launch(line["name"].as_str().unwrap())).count();
        assert_eq!(launches_of_hooks(&hooks), launched, "{words:?}");
    }
}

/// No hook sees the launches inside the stand-in for cuBLAS. Only CUPTI could record these, and
/// tprof doesn't ask CUPTI for launches if the hooks record them.
#[test]
fn launches_past_all_hooks_are_counted_and_get_no_wrong_call() {
    let [(_a, cupti), (_b, hooks)] = need_some!(both(|scratch| gemms(13, &[], scratch)));
    let (linked, work) = assert_links(&cupti);
    assert_eq!((linked, losses(&cupti, "links", "")), (work, 0));
    let (linked, work) = assert_links(&hooks);
    assert_eq!(losses(&hooks, "links of device work", "no hook saw"), (work - linked) as u64);
    assert!(work - linked >= rows::<Kernel>(&hooks.file).len());
}

#[test]
fn dropped_records_never_link_a_call_with_the_wrong_work() {
    let faulty = [("FAKE_CUPTI_FAULTS", "drop=7"), ("FAKE_CUDA_BLOCK_NS", "20000")];
    let [(_a, cupti), (_b, hooks)] = need_some!(both_train(13, &["40", "threads"], &faulty));
    let dropped = faults(&hooks.log, "dropped");
    assert_eq!(dropped, faults(&cupti.log, "dropped"));
    // With CUPTI's numbers, each piece of work has its call.
    let (linked, work) = assert_links(&cupti);
    assert_eq!(linked, work);
    let (linked, work) = assert_links(&hooks);
    let unclear = losses(&hooks, "links of device work", "do not add up");
    assert_eq!(linked as u64 + unclear, work as u64);
    // Of the 14 launches in each two steps one is lost, and so are the links of its neighbours with the
    // same name.
    assert!(linked * 4 > work * 3, "{linked} of {work}");
    assert_eq!(losses(&hooks, "GPU records", "no room"), dropped as u64);
}

#[test]
fn a_jobs_own_profiler_gets_the_calls_that_come_from_hooks() {
    for (major, words) in [(12, &["3"][..]), (13, &["3", "threads"])] {
        let native = Scratch::new();
        let outcome = need_some!(profiled(major, words, &native)).0.run_in(native.cwd());
        let [(_a, _), (_b, hooks)] = need_some!(both(|scratch| profiled(major, words, scratch)));
        assert_eq!(hooks.traced.outcome, outcome);
        assert_kernels(&hooks);
        assert_copies(&hooks);
        let (linked, work) = assert_links(&hooks);
        assert_eq!((linked, losses(&hooks, "links", "")), (work, 0), "{words:?}");
        assert!(launches_of_hooks(&hooks) > 0);
    }
}

#[test]
fn without_hooks_cupti_records_all_calls_and_the_run_says_so() {
    let scratch = Scratch::new();
    let (job, log) = need_some!(train(13, &["5"], &scratch));
    let job = job.behind(&["env", "-u", "LD_PRELOAD"].map(Into::into));
    let traced = traced(&job, &[GPU, &["--cuda-calls", "hooks"]].concat(), &scratch);
    let ran = read(traced, &log, 0);
    assert!(blind(&ran, "the hooks are not loaded"));
    let (linked, work) = assert_links(&ran);
    assert_eq!(linked, work);
}
