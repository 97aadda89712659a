use std::path::PathBuf;

use tprof_document::{Cell, Table, Value};
use tprof_facts::compile::RankCompile;
use tprof_fixture::Fixture;
use tprof_trace::compile_log::{CompileId, CompiledFrame};

use super::*;

/// Reads a stored log of `scripts/compile/job.py`.
fn log_of(version: &str) -> RankCompile {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join(format!("../trace/tests/compile/torch-{version}.log.zst"));
    RankCompile::of_logs(&[path])
}

fn made(compile: RankCompile) -> Body {
    let file = Fixture::new().finish();
    let mut rank = RankTrace::load(&file, Needs::WORK);
    rank.compile = compile;
    let at = RankContext {
        rank: Some(0),
        label: "rank 0".to_owned(),
        file: "rank-0.tprof".to_owned(),
        clock: tprof_facts::Clock::default(),
        machine: Default::default(),
    };
    let part = Compile.rank(&rank, &at, &Options::default());
    Compile.join(vec![(at, part)], &Options::default())
}

fn table<'b>(body: &'b Body, key: &str) -> &'b Table {
    body.tables.iter().find(|table| table.key == key).unwrap()
}

fn column(table: &Table, key: &str) -> Vec<Cell> {
    let at = table.columns.iter().position(|column| column.key == key).unwrap();
    table.rows.iter().map(|row| row[at].clone()).collect()
}

fn texts(table: &Table, key: &str) -> Vec<String> {
    let text = |cell: &Cell| match cell {
        Cell::Is(Value::Text(text)) => text.clone(),
        other => panic!("{other:?}"),
    };
    column(table, key).iter().map(text).collect()
}

#[test]
fn breaks_and_recompilations_are_those_of_the_job() {
    for version in ["2.15", "2.8"] {
        let body = made(log_of(version));
        let breaks = table(&body, "graph_breaks");
        assert_eq!(column(breaks, "line"), [14_u64, 16].map(Cell::from), "{version}");
        assert_eq!(column(breaks, "count"), [1_u64, 1].map(Cell::from));
        let again = table(&body, "recompiles");
        assert_eq!(texts(again, "function"), ["recompiles", "recompiles", "recompiles", "forward"]);
        assert_eq!(texts(again, "compile_id"), ["3/1", "3/2", "3/3", "4/1"]);
        assert!(texts(again, "reason")[0].contains("size mismatch at index 0"));
        let ranks = table(&body, "compile_ranks");
        assert_eq!(column(ranks, "compilations"), [Cell::from(9_u64)]);
        assert!(body.notes.is_empty(), "{:?}", body.notes);
    }
}

#[test]
fn a_reason_that_was_not_logged_is_missing() {
    let body = made(log_of("2.4"));
    let breaks = table(&body, "graph_breaks");
    assert_eq!(column(breaks, "line"), [14_u64, 16].map(Cell::from));
    assert!(column(breaks, "reason").iter().all(|cell| matches!(cell, Cell::Missing(_))));
    let again = table(&body, "recompiles");
    assert_eq!(again.rows.len(), 4);
    assert!(column(again, "reason").iter().all(|cell| matches!(cell, Cell::Missing(_))));
    assert!(table(&body, "caches").rows.is_empty());
}

#[test]
fn phases_add_up_to_each_compilation() {
    for version in ["2.15", "2.8", "2.4"] {
        let body = made(log_of(version));
        let frames = table(&body, "frames");
        let number = |cell: &Cell| cell.value().and_then(Value::number).unwrap_or(0.0);
        let columns = ["dynamo_ns", "aot_ns", "inductor_ns", "kernels_ns"];
        let parts = columns.map(|key| column(frames, key));
        for (at, total) in column(frames, "total_ns").iter().enumerate() {
            let sum: f64 = parts.iter().map(|part| number(&part[at])).sum();
            assert!((sum - number(total)).abs() < 1.0, "{version}: {sum} of {total:?}");
        }
    }
}

#[test]
fn without_a_log_the_tables_say_how_to_get_one() {
    let body = made(RankCompile::default());
    assert!(body.tables.iter().all(|table| table.rows.is_empty()));
    assert!(body.tables.iter().all(|table| table.empty.contains("tprof run --compile")));
}

#[test]
fn a_number_that_several_functions_share_identifies_none() {
    let frame = |given_before, line| CompiledFrame {
        id: CompileId { frame: Some(0), compile: Some(1), given_before, ..CompileId::default() },
        line: Some(line),
        ..CompiledFrame::default()
    };
    let found = |lines: [u32; 2]| {
        let frames = [frame(0, lines[0]), frame(1, lines[1])];
        let found = words::by_number(frames.iter());
        found.into_iter().map(|(number, of)| (number, of.map(|of| of.line))).collect::<Vec<_>>()
    };
    assert_eq!(found([3, 3]), [("0/1".to_owned(), Some(Some(3)))]);
    assert_eq!(found([3, 8]), [("0/1".to_owned(), None)]);
}

/// The first compilation of `0/0` has no end, and a later compilation has the same number.
#[test]
fn a_compilation_without_an_end_has_the_function_of_its_number() {
    let frame = |number, given_before, name: Option<&str>| CompiledFrame {
        id: CompileId {
            frame: Some(number),
            compile: Some(0),
            given_before,
            ..CompileId::default()
        },
        function: name.map(str::to_owned),
        file: name.map(|_| "/a.py".to_owned()),
        is_ended: name.is_some(),
        ..CompiledFrame::default()
    };
    let again = [frame(0, 0, None), frame(0, 1, Some("work"))];
    assert_eq!(words::functions(again.iter()), 1);
    // The code belongs to the compilation that ended.
    let found = words::by_number(again.iter());
    let names: Vec<_> = found.values().map(|of| of.and_then(|of| of.function.clone())).collect();
    assert_eq!(names, [Some("work".to_owned())]);
    // Functions without a name in any of their compilations are distinguished by their numbers.
    let unnamed = [frame(1, 0, None), frame(1, 1, None), frame(2, 0, None)];
    assert_eq!(words::functions(unnamed.iter()), 2);
    assert_eq!(words::functions(again.iter().chain(&unnamed)), 3);
    assert_eq!(words::functions([frame(0, 0, Some("f")), frame(0, 1, Some("g"))].iter()), 2);
}
