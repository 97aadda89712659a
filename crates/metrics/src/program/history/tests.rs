//! Tests of the tables of planted rows.

use tprof_document::{Analysis, Body, Cell, Options, RankContext};
use tprof_facts::Clock;
use tprof_fixture::Fixture;
use tprof_rank::RankTrace;
use tprof_trace::model::{HistoryRow, HistorySource};

use super::History;

const MS: u64 = 1_000_000;
const S: u64 = 1_000_000_000;

/// Makes the report of ranks with these rows.
fn report(ranks: &[Vec<HistoryRow>], options: &Options) -> Body {
    let part = |(rank, rows): (usize, &Vec<HistoryRow>)| {
        let mut made = Fixture::new();
        made.writer.write(&mut rows.clone()).unwrap();
        let file = made.finish();
        let trace = RankTrace::load(&file, History.needs(options));
        let label = format!("rank {rank}");
        let (clock, file) = (Clock::default(), format!("rank-{rank}.tprof"));
        let rank = Some(rank as u32);
        let at = RankContext { rank, label, file, clock, machine: Default::default() };
        let part = History.rank(&trace, &at, options);
        (at, part)
    };
    History.join(ranks.iter().enumerate().map(part).collect(), options)
}

fn cells(body: &Body, table: &str, key: &str) -> Vec<Cell> {
    let table = body.tables.iter().find(|one| one.key == table).unwrap();
    let at = table.place(key).unwrap();
    table.rows.iter().map(|row| row[at].clone()).collect()
}

/// Steps of a second each, a tenth of which varies, with a device that works for 700 ms.
fn rows(count: u64, change: impl Fn(u64, &mut HistoryRow)) -> Vec<HistoryRow> {
    let mut now = S;
    let row = |step: u64| {
        let jitter = (step * 7919 % 101) * MS / 10;
        let step_ns = S + jitter;
        let mut row = HistoryRow {
            start_ns: now,
            duration_ns: step_ns,
            source: HistorySource::Explicit,
            first_step: step,
            steps: 1,
            steps_ns: step_ns,
            shortest_ns: step_ns,
            median_ns: step_ns,
            longest_ns: step_ns,
            longest_step: step,
            devices: Some(1),
            busy_ns: Some(700 * MS),
            compute_ns: Some(500 * MS),
            communication_ns: Some(250 * MS),
            exposed_communication_ns: Some(150 * MS),
            cpu_ns: Some(2 * step_ns),
            heap_bytes: Some(1 << 30),
            power_milliwatts: Some(300_000),
            temperature_celsius: Some(60 + step % 3),
            ..HistoryRow::default()
        };
        change(step, &mut row);
        now = row.end_ns();
        row
    };
    (0..count).map(row).collect()
}

#[test]
fn the_whole_job_has_at_most_forty_rows_and_shares_of_its_time() {
    for count in [30, 5000] {
        let body = report(&[rows(count, |_, _| ())], &Options::default());
        let steps = cells(&body, "over_time", "steps");
        assert!((15..=41).contains(&steps.len()), "{}", steps.len());
        let number = |cell: &Cell| cell.value().unwrap().number().unwrap();
        assert_eq!(steps.iter().map(number).sum::<f64>(), count as f64);
        for busy in cells(&body, "over_time", "busy_share") {
            assert!((0.68..0.71).contains(&number(&busy)), "{busy:?}");
        }
        for power in cells(&body, "over_time", "power_watts") {
            assert_eq!(number(&power), 300.0);
        }
        assert_eq!(cells(&body, "history", "steps"), [count.into()]);
        let joules = number(&cells(&body, "history", "energy_joules")[0]);
        assert!((joules / (count as f64 * 301.5) - 1.0).abs() < 0.01, "{joules}");
        assert_eq!(cells(&body, "changes", "kind"), [], "the job is steady");
    }
}

#[test]
fn what_was_not_measured_is_missing_and_takes_no_room() {
    let body = report(&[rows(100, |_, row| row.heap_bytes = None)], &Options::default());
    let table = body.tables.iter().find(|table| table.key == "over_time").unwrap();
    let heading = |key| table.columns[table.place(key).unwrap()].heading;
    assert_eq!((heading("heap_bytes"), heading("busy_share")), ("", "busy"));
    let heap = cells(&body, "over_time", "heap_bytes");
    assert!(heap.iter().all(|cell| matches!(cell, Cell::Missing(_))), "{heap:?}");
    // Rows of a rank are only made for that rank.
    assert_eq!(cells(&body, "rows", "first_step"), []);
    let options = Options { data: true, rank: Some(0), ..Options::default() };
    let body = report(&[rows(100, |_, row| row.heap_bytes = None)], &options);
    assert_eq!(cells(&body, "rows", "first_step").len(), 100);
    assert!(matches!(cells(&body, "rows", "heap_bytes")[0], Cell::Missing(_)));
}

#[test]
fn a_change_of_all_ranks_is_one_and_names_its_first_step() {
    let slower = |step: u64, row: &mut HistoryRow| {
        if step >= 600 {
            row.median_ns += 200 * MS;
            row.longest_ns = row.median_ns;
            row.steps_ns = row.median_ns;
            row.duration_ns = row.median_ns;
        }
    };
    let ranks: Vec<Vec<HistoryRow>> = (0..4).map(|_| rows(1200, slower)).collect();
    let body = report(&ranks, &Options::default());
    let at = cells(&body, "changes", "figure").iter().position(|of| *of == "step_time".into());
    let of = |key| cells(&body, "changes", key)[at.unwrap()].clone();
    assert_eq!((of("kind"), of("ranks")), ("shift".into(), 4_u64.into()));
    assert_eq!(of("rank"), "rank 0".into());
    let step = of("step").value().unwrap().number().unwrap();
    assert!((592.0..=608.0).contains(&step), "{step}");
    assert_eq!(of("until_ns"), Cell::Empty);
    assert_eq!(cells(&body, "history", "changes").len(), 4);
}

#[test]
fn the_rank_that_waits_least_is_late_and_that_it_became_so_is_a_change() {
    // From the middle on, rank 1 computes longer and the others wait for it.
    let ranks: Vec<Vec<HistoryRow>> = (0..4)
        .map(|rank| {
            rows(2000, move |step, row| {
                if step >= 1000 && rank != 1 {
                    row.communication_ns = Some(450 * MS);
                    row.exposed_communication_ns = Some(350 * MS);
                    row.busy_ns = Some(900 * MS);
                }
            })
        })
        .collect();
    let body = report(&ranks, &Options::default());
    let late = cells(&body, "over_time", "late_rank");
    assert_eq!((&late[0], late.last().unwrap()), (&Cell::Empty, &"rank 1".into()));
    let shares = cells(&body, "over_time", "late_share");
    let share = shares.last().unwrap().value().unwrap().number().unwrap();
    assert!((share - 0.2).abs() < 0.01, "{share}");
    let figures = cells(&body, "changes", "figure");
    let at = figures.iter().position(|figure| *figure == "late".into()).unwrap();
    assert_eq!(cells(&body, "changes", "rank")[at], "rank 1".into());
    assert_eq!(figures.iter().filter(|figure| **figure == "late".into()).count(), 1);
}

#[test]
fn steps_that_share_rows_are_counted_and_described() {
    let mut merged = rows(50, |_, _| ());
    for row in &mut merged {
        (row.steps, row.shortest_ns, row.median_ns, row.longest_ns) = (10, 90 * MS, 100 * MS, S);
        (row.first_step, row.longest_step) = (row.first_step * 10, row.first_step * 10 + 3);
    }
    merged[20].longest_ns = 9 * S;
    let body = report(&[merged], &Options::default());
    let of = |key| cells(&body, "history", key)[0].clone();
    assert_eq!((of("steps"), of("median_ns")), (500_u64.into(), (100 * MS).into()));
    assert_eq!((of("longest_ns"), of("longest_step")), ((9 * S).into(), 203_u64.into()));
    assert_eq!(of("most_ns"), S.into());
}

#[test]
fn one_extreme_step_is_named() {
    let slow = |step: u64, row: &mut HistoryRow| {
        (row.steps, row.longest_step) = (3, 3 * step + 1);
        if step == 40 {
            row.longest_ns = 30 * S;
        }
    };
    let body = report(&[rows(100, slow)], &Options::default());
    let of = |key| cells(&body, "changes", key);
    assert_eq!((of("kind"), of("step")), (vec!["spike".into()], vec![121_u64.into()]));
    assert_eq!(of("is"), ["30.00 s".into()]);
}

#[test]
fn a_rank_without_rows_is_left_out_with_a_reason() {
    let body = report(&[Vec::new()], &Options::default());
    assert_eq!(cells(&body, "history", "steps"), []);
    assert!(body.tables[0].empty.contains("no rank"), "{}", body.tables[0].empty);
}
