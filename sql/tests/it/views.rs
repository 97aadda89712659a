//! Tests that built-in views agree with the reports, and that every query in the documentation
//! works.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::runs::{copy, ended, runs};
use crate::view_pairs::{PAIRS, Pair, Rows, assert_same, rows};

/// Returns the rows of a query as texts; empty where there is no value.
fn table(run: &Path, query: &str) -> Vec<Vec<String>> {
    let out = ended([run.as_os_str(), query.as_ref(), "--format=csv".as_ref()]);
    assert_eq!(out.code, 0, "{query}: {}", out.err);
    let mut reader = csv::Reader::from_reader(out.out.as_bytes());
    let texts = |row: csv::StringRecord| row.iter().map(str::to_owned).collect();
    reader.records().map(|row| texts(row.unwrap())).collect()
}

fn of(run: &Path, query: &str, pair: &Pair) -> Rows {
    rows(table(run, query).into_iter().map(|mut row| {
        let figures = row.split_off(pair.keys);
        (row, figures.iter().map(|text| text.parse().unwrap_or(f64::NAN)).collect())
    }))
}

/// Returns the tests' own run, and runs that the library imports from public traces next to the
/// checkout.
pub fn traces(dir: &Path) -> Vec<PathBuf> {
    let mut all = vec![runs().run()];
    let shared = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/data/kineto");
    for name in ["dlrm_8rank_v100", "graphs_a100", "nccl_a100"] {
        if shared.join(name).is_dir() {
            let run = dir.join(name);
            let options = tprof_import::Options::new("test");
            tprof_import::import(&[shared.join(name)], &run, &options).unwrap();
            all.push(run);
        }
    }
    all
}

#[test]
fn views_agree_with_reports() {
    let dir = tempfile::tempdir().unwrap();
    let mut seen = vec![0; PAIRS.len()];
    for run in traces(dir.path()) {
        for (pair, seen) in PAIRS.iter().zip(&mut seen) {
            // For these pairs, `report` covers only the steps, and the view the whole run. The
            // process tests compare them.
            if pair.of_whole_run {
                continue;
            }
            let (kind, key) = pair.report;
            let but = pair.leaves_out.map(|(column, value)| {
                format!(" WHERE CAST({column} AS VARCHAR) IS DISTINCT FROM '{value}'")
            });
            let columns = pair.columns.join(", ");
            let report = format!("SELECT {columns} FROM report('{kind}', '{key}')");
            let reported = of(&run, &(report + &but.unwrap_or_default()), pair);
            let viewed = of(&run, pair.query, pair);
            assert_same(&run.display().to_string(), pair, &viewed, &reported);
            *seen += reported.len();
        }
    }
    let empty: Vec<&str> = PAIRS
        .iter()
        .zip(seen)
        .filter(|(pair, seen)| *seen == 0 && !pair.of_whole_run)
        .map(|(pair, _)| pair.report.0)
        .collect();
    assert_eq!(empty, ["cpu"], "nothing sampled these runs, and all else has rows");
}

#[test]
fn every_question_of_the_documentation_is_answered() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/sql.md");
    let text = std::fs::read_to_string(docs).unwrap();
    let blocks = text.split("```sql\n").skip(1).map(|rest| rest.split("```").next().unwrap());
    // Queries with `read_parquet` are for other engines, so they are skipped.
    let queries: Vec<&str> = blocks.filter(|query| !query.contains("read_parquet")).collect();
    assert!(queries.len() >= 20, "{}", queries.len());
    let (run, other) = (runs().run(), copy());
    let other = other.path().as_os_str();
    let mut answered = 0;
    for query in queries {
        let out = ended([run.as_os_str(), other, query.as_ref(), "--format=csv".as_ref()]);
        assert_eq!((out.code, out.err.as_str()), (0, ""), "{query}");
        answered += usize::from(out.out.lines().count() > 1);
    }
    assert!(answered >= 16, "{answered} queries gave rows");
}

#[test]
fn views_are_listed_described_and_printed_for_other_engines() {
    let run = runs().run();
    let tables = table(&run, "SHOW TABLES");
    let breakdown = tables.iter().find(|row| row[0] == "breakdown").unwrap();
    assert!(breakdown[1].starts_with("view: "), "{breakdown:?}");
    let columns = table(&run, "DESCRIBE breakdown");
    assert!(columns.iter().any(|row| row[..2] == ["idle_ns", "int64"]), "{columns:?}");
    let printed = Command::new(env!("CARGO_BIN_EXE_tprof-sql")).arg("--views").output().unwrap();
    let text = String::from_utf8(printed.stdout).unwrap();
    let created = text.lines().filter(|line| line.starts_with("CREATE VIEW ")).count();
    assert_eq!((printed.status.code(), created), (Some(0), tprof_tables::VIEWS.len()));
    // A user's own view of that name takes its place.
    let own = "CREATE OR REPLACE VIEW breakdown AS SELECT 7 AS seven; SELECT * FROM breakdown";
    assert_eq!(table(&run, own), [["7"]]);
}
