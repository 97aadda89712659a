//! Tests what becomes of ranks: their steps, stalls and ends.

use std::fs::File;
use std::time::SystemTime;

use tprof_live::{EventKind, RunState};
use tprof_trace::model::*;

use super::run::{Run, SECOND, START, event_kinds, every, values};

#[test]
fn a_rank_without_a_step_for_too_long_stalls_until_its_next_one() {
    let mut run = Run::begun(20 * SECOND, 2);
    run.mark_steps(0, every(SECOND / 2, 40));
    run.mark_steps(1, every(SECOND / 2, 24));
    // The file of rank 1 still gets data, so the missing step is a stall.
    run.counter(1, 19 * SECOND, "rss_bytes", 5e6);
    let mut follower = run.follower();
    let stalled = follower.poll();
    assert_eq!(stalled.state, RunState::Running);
    let [stall] = &stalled.stalls[..] else { panic!("{:?}", stalled.stalls) };
    // The last step that ended is 11500, which the marks at 11.5 s and 12 s delimit.
    assert_eq!((stall.rank, stall.usual_ns, stall.step), (Some(1), SECOND / 2, 11_501));
    assert_eq!(stall.since_ns, 12 * SECOND);
    // Now is 20 s or a little later. A slow test can't exceed 17 s, because a stall counts up to 10
    // s after the newest data.
    assert!((8 * SECOND..18 * SECOND).contains(&stall.for_ns), "{}", stall.for_ns);
    assert!(event_kinds(&stalled).contains(&(Some(1), EventKind::Stall)));
    let again = follower.poll();
    assert_eq!((again.stalls.len(), event_kinds(&again)), (1, vec![]), "one stall is one event");
    run.mark_steps(1, [20 * SECOND]);
    let over = follower.poll();
    assert_eq!((over.stalls.len(), event_kinds(&over)), (0, vec![(Some(1), EventKind::StallEnd)]));
    assert_eq!(over.events[0].text, "step 11501 ended after 8.00 s");
}

#[test]
fn stalls_need_five_steps_a_live_rank_and_recording() {
    let stalls = |change: &dyn Fn(&mut Run), marks: u64| {
        let mut run = Run::begun(20 * SECOND, 1);
        run.mark_steps(0, every(SECOND / 4, marks));
        run.counter(0, 18 * SECOND, "rss_bytes", 5e6);
        change(&mut run);
        run.follower().poll().stalls.len()
    };
    assert_eq!(stalls(&|_| (), 30), 1);
    assert_eq!(stalls(&|_| (), 5), 0, "five marks make only four steps");
    assert_eq!(stalls(&|run| run.end_process(0, 18 * SECOND, ProcessEnd::Exited(0)), 30), 0);
    let switch_off = |run: &mut Run| {
        let writer = run.writer(0);
        let (name, kind) = (writer.name("by hand"), MarkKind::RecordingOff);
        writer.mark(Mark { time_ns: START + 9 * SECOND, process: None, name, kind });
        writer.flush().unwrap();
    };
    assert_eq!(stalls(&switch_off, 30), 0);
    let finish = |run: &mut Run| {
        run.info.finished = true;
        run.write_info();
    };
    assert_eq!(stalls(&finish, 30), 0);
}

#[test]
fn a_file_without_new_blocks_is_no_evidence_of_a_stall() {
    let mut run = Run::begun(3600 * SECOND, 1);
    // With steps of 20 s, a stall begins after 100 s without a step. The newest block is at 600 s,
    // so only the time until 610 s counts, and there is no stall.
    run.mark_steps(0, every(20 * SECOND, 30));
    let snapshot = run.follower().poll();
    assert_eq!(snapshot.stalls, []);
    assert!(snapshot.ranks[0].behind_ns.unwrap() >= 3000 * SECOND);
}

#[test]
fn a_slow_step_is_an_event() {
    let mut run = Run::begun(10 * SECOND, 1);
    run.mark_steps(0, every(SECOND / 10, 20).chain([4 * SECOND, 41 * SECOND / 10]));
    let snapshot = run.follower().poll();
    let slow = snapshot.events.iter().find(|event| event.kind == EventKind::StepSlow).unwrap();
    assert_eq!(slow.text, "step 2000 took 2.00 s, usually 100.0 ms");
    assert_eq!(slow.time_ns, 4 * SECOND);
}

#[test]
fn optimizer_updates_are_steps_until_a_better_source_appears() {
    let mut run = Run::begun(10 * SECOND, 1);
    let span = |at: u64, name| Span {
        start_ns: START + at * SECOND / 10,
        duration_ns: 1000,
        kind: SpanKind::Annotation,
        name,
        ..Span::default()
    };
    let writer = run.writer(0);
    let (update, other) = (writer.name("Optimizer.step#SGD.step"), writer.name("forward"));
    let mut spans: Vec<Span> = (1..21).flat_map(|at| [span(at, update), span(at, other)]).collect();
    writer.write(&mut spans).unwrap();
    let mut follower = run.follower();
    let snapshot = follower.poll();
    // The first update ends a step whose beginning is not known.
    assert_eq!(values(&snapshot, "steps"), [Some(19.0)]);
    assert_eq!(values(&snapshot, "step_ns"), [Some(1e8)]);
    // Marks are the better source, so the steps of the updates are discarded.
    run.mark_steps(0, every(SECOND, 3));
    assert_eq!(values(&follower.poll(), "steps"), [Some(2.0)]);
}

#[test]
fn a_rank_ends_with_its_last_process() {
    let mut run = Run::begun(30 * SECOND, 2);
    run.counter(0, 5 * SECOND, "rss_bytes", 4096.0);
    let mut follower = run.follower();
    let before = follower.poll();
    assert_eq!(before.ranks[0].ended, None);
    assert_eq!(values(&before, "rss_bytes"), [Some(4096.0), None]);
    assert_eq!(
        event_kinds(&before),
        [(Some(0), EventKind::ProcessStart)],
        "rank 1 has no data after its process began"
    );
    run.end_process(0, 6 * SECOND, ProcessEnd::Signal(9));
    run.end_process(1, 7 * SECOND, ProcessEnd::Exec);
    let after = follower.poll();
    // An `exec` ends only an image of a process, so rank 1 has no event for it.
    let ended = after.ranks.iter().map(|rank| rank.ended.as_deref()).collect::<Vec<_>>();
    assert_eq!(ended, [Some("SIGKILL"), Some("ended")]);
    assert_eq!(values(&after, "rss_bytes"), [None, None]);
    assert_eq!(event_kinds(&after), [(Some(0), EventKind::ProcessEnd)]);
    assert_eq!(after.events[0].text, "python [100]: SIGKILL");
}

#[test]
fn a_run_without_a_writing_collector_is_cut_off_or_finished() {
    let mut run = Run::begun(60 * SECOND, 1);
    run.mark_steps(0, every(SECOND, 20));
    let mut follower = run.follower();
    assert_eq!(follower.poll().state, RunState::Running);
    // A collector rewrites `run.json` regularly, so an old one means that the collector is gone.
    let info = File::options().write(true).open(run.path().join("run.json")).unwrap();
    let long_ago = SystemTime::now() - std::time::Duration::from_secs(600);
    info.set_modified(long_ago).unwrap();
    let cut = follower.poll();
    assert_eq!((cut.state, cut.time_ns), (RunState::CutOff, 20 * SECOND));
    run.info.finished = true;
    run.info.end_ns = Some(START + 25 * SECOND);
    run.write_info();
    let finished = follower.poll();
    assert_eq!((finished.state, finished.time_ns), (RunState::Finished, 25 * SECOND));
    assert_eq!(finished.command, ["python", "train.py"]);
}
