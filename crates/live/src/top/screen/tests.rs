//! Tests of screens of made-up snapshots, and of the effects of keys.

use super::*;
use crate::metric::Metric;
use crate::snapshot::{
    Event, EventKind, History, MetricValues, RankState, Stall, StallVerdict, Totals,
};
use ratatui::Terminal;
use ratatui::backend::TestBackend;

const SECOND: u64 = 1_000_000_000;

fn metric(metric: Metric, values: Vec<Option<f64>>) -> MetricValues {
    let why = values.iter().all(Option::is_none).then(|| metric.missing().to_owned());
    let [key, unit, about] = [metric.key(), metric.unit(), metric.about()].map(str::to_owned);
    MetricValues { key, unit, about, values, why }
}

/// Returns a snapshot of a run with this many ranks, of which rank 1 is stalled and rank 2 was
/// killed.
fn snapshot(ranks: u32) -> Snapshot {
    let state = |rank: u32| RankState {
        rank: Some(rank),
        label: format!("rank {rank}"),
        host: "node-1".to_owned(),
        file: format!("rank-{rank}.tprof"),
        processes: 1,
        ended: (rank == 2).then(|| "SIGKILL".to_owned()),
        recording: Some(true),
        behind_ns: Some(SECOND / 5),
        problem: None,
        out_of_memory: None,
    };
    let each = |of: fn(u32) -> Option<f64>| (0..ranks).map(of).collect::<Vec<_>>();
    let event = |time_ns, rank: u32, kind, text: &str| {
        let (label, text) = (format!("rank {rank}"), text.to_owned());
        Event { time_ns, rank: Some(rank), label, kind, text }
    };
    Snapshot {
        version: 1,
        command: vec!["python3".to_owned(), "train.py".to_owned(), "\x1b[2J".to_owned()],
        time_ns: 75 * SECOND,
        recording: Some(true),
        totals: Totals {
            recorded: 12_345,
            lost: 7,
            bytes: 3 << 20,
            processes: u64::from(ranks),
            collector_cpu_ns: 2 * SECOND,
            ..Totals::default()
        },
        ranks: (0..ranks).map(state).collect(),
        metrics: vec![
            metric(Metric::Steps, each(|rank| Some(f64::from(7000 - rank)))),
            metric(Metric::StepsPerSecond, each(|rank| (rank != 2).then_some(9.9))),
            metric(Metric::StepTime, each(|rank| Some(1e8 + f64::from(rank)))),
            metric(Metric::SinceStep, each(|rank| Some(if rank == 1 { 4.2e9 } else { 6e7 }))),
            metric(Metric::Rss, each(|rank| (rank != 2).then_some(17e6))),
            metric(Metric::GpuUtilization, each(|_| None)),
            metric(Metric::Lost, each(|_| Some(0.0))),
        ],
        stalls: vec![Stall {
            rank: Some(1),
            label: "rank 1".to_owned(),
            since_ns: 70 * SECOND,
            for_ns: 4_200_000_000,
            usual_ns: SECOND / 10,
            step: 6999,
            what: None,
        }],
        events: vec![
            event(60 * SECOND, 2, EventKind::ProcessEnd, "python3 [77]: SIGKILL"),
            event(72 * SECOND, 1, EventKind::Stall, "no step for 2.10 s, usually 100.0 ms"),
        ],
        ..Snapshot::default()
    }
}

fn picture(view: &View, width: u16, height: u16) -> String {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| draw(frame, view)).unwrap();
    terminal.backend().to_string()
}

/// Returns a view of a run with a history of step times.
fn view(ranks: u32) -> View {
    let mut view = View::default();
    let mut first = snapshot(ranks);
    let course = |rank: u32| {
        let step = |at: u64| Some(1e8 + 1e7 * (at % 5) as f64 + f64::from(rank));
        (0..30).map(step).collect()
    };
    first.history = Some(History {
        times_ns: (0..30).map(|at| at * SECOND).collect(),
        series: [("step_ns".to_owned(), (0..ranks.min(32)).map(course).collect())].into(),
    });
    view.take(first);
    view
}

fn key(view: &mut View, code: KeyCode) -> bool {
    handle_key(view, KeyEvent::new(code, KeyModifiers::NONE))
}

#[test]
fn a_run_fits_a_small_terminal_and_uses_a_large_one() {
    insta::assert_snapshot!("small", picture(&view(3), 80, 24));
    insta::assert_snapshot!("large", picture(&view(3), 120, 40));
}

#[test]
fn why_ranks_stand_still_is_above_the_table_as_a_whole() {
    let mut view = view(3);
    let text =
        "rank 1 (host c12) has not entered all_reduce 25: it is in `read` at load (data.py:41)";
    let verdict = StallVerdict { kind: "late_rank".to_owned(), text: text.to_owned() };
    view.take(Snapshot { verdict: Some(verdict), ..snapshot(3) });
    for (width, height) in [(80, 24), (120, 40)] {
        let picture = picture(&view, width, height);
        let (why, table) = (picture.find("late rank: rank 1"), picture.find("rank 0  "));
        assert!(why.is_some() && why < table, "{picture}");
        assert!(picture.contains("(data.py:41)"), "{picture}");
    }
}

#[test]
fn screens_of_every_size_can_be_drawn() {
    let mut view = view(5);
    view.now.verdict = Some(StallVerdict { kind: "unknown".to_owned(), text: "word ".repeat(99) });
    for width in [1, 2, 10, 39, 80, 300] {
        for height in [1, 2, 5, 11, 16, 24, 100] {
            view.help = width % 2 == 0;
            picture(&view, width, height);
        }
    }
    picture(&View::default(), 80, 24);
}

#[test]
fn the_worst_ranks_come_first_and_the_selected_one_is_visible() {
    let mut view = view(1024);
    let order = view.order();
    assert_eq!(order[..3], [1, 2, 1023]);
    key(&mut view, KeyCode::End);
    let last = view.selected(&order).unwrap();
    assert_eq!(last, 0);
    assert!(picture(&view, 80, 24).contains("rank 0  "));
    key(&mut view, KeyCode::Char('s'));
    assert_eq!(view.order()[..3], [0, 1, 2]);
    assert_eq!(view.selected(&view.order()), Some(0), "the rank stays chosen in another order");
    key(&mut view, KeyCode::Char('j'));
    key(&mut view, KeyCode::PageDown);
    key(&mut view, KeyCode::Up);
    assert_eq!(view.selected(&view.order()), Some(10));
    assert!(picture(&view, 80, 24).contains("step of rank 10:"));
}

#[test]
fn a_key_selects_among_known_metrics() {
    let mut view = view(3);
    let mut seen = Vec::new();
    for _ in 0..7 {
        seen.push(view.metric().unwrap().key.clone());
        key(&mut view, KeyCode::Char('m'));
    }
    let turn = ["step_ns", "since_step_ns", "rss_bytes", "lost", "steps", "steps_per_second"];
    assert_eq!(seen[..6], turn);
    assert_eq!(seen[6], "step_ns");
}

#[test]
fn keys_end_the_program_or_show_help() {
    let mut view = view(3);
    assert!(key(&mut view, KeyCode::Char('?')) && view.help);
    assert!(picture(&view, 80, 24).contains("end; the run goes on"));
    assert!(key(&mut view, KeyCode::Esc) && !view.help);
    assert!(key(&mut view, KeyCode::Char('c')));
    assert!(!key(&mut view, KeyCode::Char('q')));
    assert!(!handle_key(&mut view, KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL)));
}

#[test]
fn the_last_screen_of_a_run_stays_and_a_broken_connection_is_shown() {
    let (to, from) = mpsc::channel();
    let mut view = view(3);
    to.send(Ok(Some(Snapshot { state: RunState::Finished, ..snapshot(3) }))).unwrap();
    to.send(Ok(None)).unwrap();
    assert!(taken(&mut view, &from).unwrap() && view.ended.is_none());
    assert!(picture(&view, 80, 24).contains("finished after 75.00 s"));
    to.send(Ok(Some(snapshot(3)))).unwrap();
    to.send(Ok(None)).unwrap();
    taken(&mut view, &from).unwrap();
    assert!(picture(&view, 80, 24).contains("(the connection ended)"));
    drop(to);
    assert!(!taken(&mut view, &from).unwrap(), "the last picture stays");
    assert!(taken(&mut View::default(), &from).is_err(), "a reader that is gone without an end");
}
