use super::*;
use std::path::PathBuf;
use tprof_collect::{MemMode, OnFull, StackMode};
use tprof_trace::run::{BlindSpot, ProcessInfo};

fn config() -> Config {
    Config {
        output: PathBuf::from("/elsewhere/my run"),
        if_exists: tprof_collect::IfExists::Rename,
        activities: Vec::new(),
        mem: MemMode::Exact,
        stacks: StackMode::Auto,
        sample_rate: 99,
        counters: Vec::new(),
        nccl: Vec::new(),
        cuda_graphs: tprof_collect::GraphDetail::Graph,
        cuda_calls: tprof_collect::CallSource::Auto,
        operators: tprof_collect::OperatorDetail::Auto,
        modules: false,
        kineto: None,
        compile: false,
        io: false,
        gpu_stalls: None,
        rss_interval: tprof_collect::DEFAULT_RSS_INTERVAL,
        gpu_interval: tprof_collect::DEFAULT_GPU_INTERVAL,
        gpu_metrics: None,
        on_full: OnFull::Wait,
        table_cache: None,
        max_size: None,
        duration: None,
        delay: None,
        on_hang: None,
        on_slow_step: None,
        keep: None,
        budget_percent: None,
        dump_on: tprof_collect::DumpOn::default(),
        paused: false,
        schedule: None,
        capture: None,
        follow: false,
        redact: false,
        started_in: None,
        command: Vec::new(),
    }
}

#[test]
fn a_summary_lists_what_happened_and_what_to_type() {
    let blind = |process: &str| BlindSpot::new(process, "everything", "statically linked");
    let process = |pid| ProcessInfo { pid, rank: Some(pid % 2), ..ProcessInfo::default() };
    let mut info = RunInfo { start_ns: 5, end_ns: Some(2_310_000_005), ..RunInfo::default() };
    info.processes = vec![process(7), process(8), process(8)];
    info.completeness.recorded = 1_204_331;
    info.completeness.blind = vec![blind("9 busybox"), blind("10 busybox")];
    (info.overhead.fraction_low, info.overhead.fraction_high) = (Some(0.004), Some(0.0123));
    info.overhead.wait_ns = 30_000_000;
    let shown = Shown {
        finding: Some("HIGH, up to 1.2 s (12.0 %): HotFunction, f, at a.py:3".to_owned()),
        step: Some("a step took 3.0 ms; recording took 0.1 ms of it".to_owned()),
    };
    let peak = Peak { bytes: 3 << 20, rank: Some(1), at_least: false, uncertain: None };
    assert_eq!(
        summary(&info, Some(peak), shown, &config(), Outcome::Ended(3 << 8), Vec::new()),
        "tprof  2.31 s, 2 processes (3 program images), 2 ranks, exit status 3\n\
        \x20      1,204,331 events recorded, none lost; overhead 0.40 % to 1.2 % of CPU time (estimate), 30.0 ms of waits\n\
        \x20      a step took 3.0 ms; recording took 0.1 ms of it\n\
        \x20      heap peak 3.0 MiB (rank 1, the highest)\n\
        \x20      not recorded: everything of busybox (pid 9) and 1 more (statically linked)\n\
        found  HIGH, up to 1.2 s (12.0 %): HotFunction, f, at a.py:3\n\
        \x20 run  '/elsewhere/my run'\n\
        \x20next  tprof report findings '/elsewhere/my run'\n"
    );
}

#[test]
fn unknown_figures_are_not_zero() {
    let text = summary(
        &RunInfo::default(),
        None,
        Shown::default(),
        &config(),
        Outcome::Ended(9),
        Vec::new(),
    );
    assert!(text.contains("unknown time"), "{text}");
    assert!(text.contains("overhead unknown"), "{text}");
    assert!(text.contains("killed by signal 9"), "{text}");
    assert!(text.contains("no process was recorded"), "{text}");
}

#[test]
fn a_partly_recorded_job_says_which_part() {
    let ran =
        |seconds: u64| RunInfo { end_ns: Some(seconds * 1_000_000_000), ..RunInfo::default() };
    let shown = |seconds, delay: Option<u64>, duration: Option<u64>, paused| {
        let config = Config {
            delay: delay.map(Duration::from_secs),
            duration: duration.map(Duration::from_secs),
            paused,
            ..config()
        };
        summary(&ran(seconds), None, Shown::default(), &config, Outcome::Ended(0), Vec::new())
    };
    assert!(!shown(5, None, None, false).contains("recording"));
    assert!(!shown(5, None, Some(9), false).contains("recording"));
    let text = shown(5, Some(1), Some(2), false);
    assert!(
        text.contains(
            "recording started after 1.00 s (--delay) and stopped after 2.00 s (--duration)"
        ),
        "{text}"
    );
    let text = shown(5, Some(9), None, false);
    assert!(text.contains("nothing recorded: the job ended before 9.00 s (--delay)"), "{text}");
    let text = shown(5, None, None, true);
    assert!(text.contains("only events after `tprof ctl start` are recorded"), "{text}");
}

#[test]
fn a_loss_of_unknown_size_is_listed() {
    let loss = tprof_trace::run::LossInfo {
        what: "events after the limit".into(),
        why: "--max-size was reached".into(),
        count: 0,
    };
    let mut info = RunInfo::default();
    info.completeness.losses.push(loss);
    let text = summary(&info, None, Shown::default(), &config(), Outcome::Ended(0), Vec::new());
    assert!(!text.contains("none lost") && !text.contains("lost: 0"), "{text}");
    assert!(
        text.contains("events after the limit (--max-size was reached), count unknown"),
        "{text}"
    );
}
