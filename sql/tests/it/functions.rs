//! Tests that SQL functions on intervals compute the figures that reports print.

use tprof_analyze::{KINDS, document};
use tprof_document::{Options, Value};

use crate::runs::{RANKS, ended, rows, runs};

#[test]
fn a_report_as_a_table_has_the_reports_figures() {
    for (kind, table, short) in [
        ("breakdown", "breakdown", "breakdown()"),
        ("stragglers", "late_arrivals", "stragglers()"),
        ("kernels", "by_rank", ""),
    ] {
        let of_kind = KINDS.iter().find(|one| one.name == kind).unwrap();
        let options = Options { data: true, ..Options::default() };
        let document = document(of_kind, &runs().run(), &options, None).unwrap();
        let report = document.tables.iter().find(|one| one.key == table).unwrap();
        let at = report.columns.iter().position(|column| column.key.ends_with("_ns")).unwrap();
        let key = report.columns[at].key;
        let expected: Vec<String> = report
            .rows
            .iter()
            .map(|row| match row[at].value() {
                Some(Value::Unsigned(value)) => value.to_string(),
                Some(Value::Signed(value)) => value.to_string(),
                Some(Value::Float(value)) => value.to_string(),
                _ => String::new(),
            })
            .collect();
        let call = format!("report('{kind}', '{table}')");
        for call in [call.as_str(), short].into_iter().filter(|call| !call.is_empty()) {
            let query = format!("SELECT coalesce(CAST({key} AS VARCHAR), '') FROM {call}");
            assert_eq!(unquoted(rows(&runs().run(), &query)), expected, "{call}");
        }
    }
}

fn unquoted(rows: Vec<String>) -> Vec<String> {
    rows.into_iter().map(|row| row.trim_matches('"').to_owned()).collect()
}

#[test]
fn the_union_of_kernels_is_the_compute_time_of_the_breakdown() {
    let by_rank = |query: &str| rows(&runs().run(), query);
    let union = by_rank(
        "SELECT rank, interval_union(start_ns, duration_ns) FILTER (WHERE class = 'compute'), \
         interval_union(start_ns, duration_ns) - interval_union(start_ns, duration_ns) \
         FILTER (WHERE class = 'compute') FROM kernels GROUP BY rank ORDER BY rank",
    );
    let report = by_rank(
        "SELECT CAST(substr(rank, 6) AS INT) AS r, compute_ns, exposed_ns FROM breakdown() ORDER BY r",
    );
    assert_eq!(union.len(), RANKS as usize);
    assert_eq!(union, report);
}

#[test]
fn overlap_is_the_common_part_of_two_intervals() {
    let query = "SELECT overlap(0, 10, 5, 20), overlap(0, 10, 10, 20), overlap(5, 6, 0, 9), \
                 overlap(0, NULL, 1, 2)";
    assert_eq!(rows(&runs().run(), query), ["5,0,1,"]);
}

#[test]
fn unknown_kinds_and_runs_are_named() {
    let failed = |query: &str| {
        let ended = ended([runs().run().as_os_str(), query.as_ref()]);
        assert_eq!(ended.code, 1, "{query}");
        ended.err
    };
    assert!(failed("SELECT * FROM report('breakdwon')").contains("the nearest is 'breakdown'"));
    assert!(failed("SELECT * FROM report('kernels', 'x')").contains("it has "));
    assert!(failed("SELECT * FROM breakdown('/etc')").contains("there is r8"));
    assert!(failed("SELECT * FROM report('summary')").contains("tprof report summary --json"));
    let kinds = rows(&runs().run(), "SELECT kind FROM report()");
    assert_eq!(kinds.len(), KINDS.len());
}
