//! Tests of the report's tables.

use tprof_document::{Body, Cell, RankContext, Table};
use tprof_facts::Clock;
use tprof_rank::base::reading::Reading;
use tprof_rank::{Needs, RankTrace};

use super::super::lines::{self, Line};
use super::super::outcome::RankFindings;
use super::super::rules::stragglers;
use super::super::severity::Severity;
use super::super::tables;
use super::job::{Job, MS, judged};

fn report(steps: u64, idle_ms: &[u64]) -> Body {
    let rank = |(at, idle): (usize, &u64)| {
        let mut job = Job::new(steps, 100 * MS);
        job.busy(0, (100 - idle) * MS);
        job.kernel(99 * MS, 100 * MS, 100 * MS * steps.max(2), "k");
        judged(&job.fixture.finish(), &format!("rank {at}"))
    };
    let mut ranks: Vec<RankFindings> = idle_ms.iter().enumerate().map(rank).collect();
    stragglers::judge(&mut ranks);
    tables::body(&ranks)
}

fn cell<'t>(table: &'t Table, row: usize, key: &str) -> &'t Cell {
    let at = table.columns.iter().position(|column| column.key == key).unwrap();
    &table.rows[row][at]
}

#[test]
fn severity_follows_from_the_share_of_a_step() {
    let of = [0.25, 0.249, 0.1, 0.099, 0.03, 0.029, 0.01, 0.0099].map(Severity::of);
    use Severity::{Critical, High, Low, Medium, Note};
    assert_eq!(of, [Critical, High, High, Medium, Medium, Low, Low, Note]);
}

#[test]
fn a_finding_on_several_ranks_is_one_row_with_the_worst_ranks_figures() {
    let body = report(2, &[20, 40, 30]);
    let findings = &body.tables[0];
    let gaps = (0..findings.rows.len())
        .find(|&row| *cell(findings, row, "rule") == Cell::from("GpuGaps"))
        .unwrap();
    // In two steps, the worst rank has gaps of 40 ms in total.
    assert_eq!(*cell(findings, gaps, "gain_step_ns"), Cell::from(20 * MS));
    assert_eq!(*cell(findings, gaps, "gain_ns"), Cell::from(40 * MS));
    assert_eq!(*cell(findings, gaps, "gain_share"), Cell::from(0.2));
    assert_eq!(*cell(findings, gaps, "severity"), Cell::from("high"));
    let on = "3 of 3 ranks; the figures are those of rank 1, the worst";
    assert_eq!(*cell(findings, gaps, "ranks"), Cell::from(on));
    let number = cell(findings, gaps, "finding");
    let evidence = &body.tables[1];
    let places: Vec<_> =
        (0..evidence.rows.len()).filter(|&row| cell(evidence, row, "finding") == number).collect();
    let ranks: Vec<&Cell> = places.iter().map(|&row| cell(evidence, row, "rank")).collect();
    assert_eq!(ranks, [&"rank 1".into(), &"rank 0".into(), &"rank 2".into()] as [&Cell; 3]);
    assert_eq!(*cell(evidence, places[0], "start_ns"), Cell::from(60 * MS));
    assert_eq!(*cell(evidence, places[0], "end_ns"), Cell::from(100 * MS));
}

#[test]
fn without_steps_the_gain_per_step_is_missing() {
    let body = report(0, &[40]);
    let findings = &body.tables[0];
    assert!(matches!(cell(findings, 0, "gain_step_ns"), Cell::Missing(_)));
    assert_eq!(*cell(findings, 0, "gain_share"), Cell::from(0.2));
    assert_eq!(body.notes[0], "no steps were recorded, so gains are for the recorded 200.0 ms");
}

#[test]
fn every_rule_has_a_row_for_a_rank() {
    let body = report(1, &[0]);
    let rules = |key: &str, column: &str| -> Vec<String> {
        let table = body.tables.iter().find(|table| table.key == key).unwrap();
        let text = |row| format!("{:?}", cell(table, row, column).value());
        (0..table.rows.len()).map(text).collect()
    };
    let rules_shown =
        [rules("findings", "rule"), rules("not_checked", "rule"), rules("clear", "rule")].concat();
    for rule in super::super::rules().into_iter().map(|rule| rule.name) {
        assert!(rules_shown.iter().any(|text| text.contains(rule)), "{rule}: {rules_shown:?}");
    }
}

#[test]
fn a_summary_has_a_line_for_each_of_the_first_findings() {
    let mut job = Job::new(2, 100 * MS);
    job.busy(0, 60 * MS);
    job.kernel(99 * MS, 100 * MS, 200 * MS, "k");
    let file = job.fixture.finish();
    let at = RankContext {
        rank: Some(0),
        label: "rank 0".into(),
        file: String::new(),
        clock: Clock::default(),
        machine: Default::default(),
    };
    let rank = RankTrace::load(&file, Needs::ALL);
    let found = lines::lines(lines::of_rank(&rank, &at).into_iter().collect());
    let gaps = Line {
        severity: "high",
        rule: "GpuGaps",
        subject: String::new(),
        place: String::new(),
        what: "the device has long idle gaps".into(),
        function: None,
        file: None,
        line: None,
        gain_ns: Reading::Is(40 * MS),
        gain_step_ns: Reading::Is(20 * MS),
        gain_share: Reading::Is(0.2),
        size_bytes: None,
    };
    assert!(found.value().unwrap().contains(&gaps), "{found:?}");
    let launcher = RankContext { rank: None, ..at };
    assert!(lines::of_rank(&rank, &launcher).is_none());
    assert!(lines::lines(Vec::new()).value().is_none(), "nothing judged is not nothing found");
}

#[test]
fn summary_lines_without_a_known_gain_have_no_time() {
    let lines_of = |size: Option<u64>, unknown: Option<&'static str>| {
        let mut job = Job::new(2, 100 * MS);
        job.busy(0, 60 * MS);
        job.kernel(99 * MS, 100 * MS, 200 * MS, "k");
        let mut rank = judged(&job.fixture.finish(), "rank 0");
        for (finding, _) in rank.outcomes.iter_mut().flat_map(|outcome| &mut outcome.found) {
            (finding.bytes, finding.gain_unknown) = (size, unknown);
        }
        lines::lines(vec![rank]).value().unwrap().clone()
    };
    for (size, unknown) in [(Some(26 << 20), None), (None, Some("no log"))] {
        let lines = lines_of(size, unknown);
        assert!(!lines.is_empty());
        for line in lines {
            assert_eq!(line.size_bytes, size);
            assert!(
                line.gain_ns.value().is_none() && line.gain_share.value().is_none(),
                "{line:?}"
            );
            assert!(line.gain_step_ns.value().is_none(), "{line:?}");
        }
    }
}

#[test]
fn a_report_without_ranks_is_not_an_error() {
    let body = tables::body(&[]);
    assert!(body.tables[0].rows.is_empty() && body.notes.is_empty());
}

#[test]
fn the_documentation_names_every_column() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/metrics.md");
    let docs = std::fs::read_to_string(path).unwrap();
    for table in &report(1, &[20]).tables {
        for column in &table.columns {
            assert!(docs.contains(&format!("`{}`", column.key)), "{}", column.key);
        }
    }
}
