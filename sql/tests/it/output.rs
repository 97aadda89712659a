//! Tests the formats and destinations of results.

use std::fs::File;
use std::process::Stdio;

use datafusion::arrow::array::AsArray;
use datafusion::arrow::datatypes::Int64Type;
use datafusion::arrow::ipc::reader::{FileReader, StreamReader};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;

use crate::runs::{ended, number, program, runs};

const QUERY: &str =
    "SELECT name, rank, NULL AS nothing, start_ns FROM kernels ORDER BY start_ns, rank";

#[test]
fn every_format_has_the_same_rows() {
    let rows = number(&runs().run(), "SELECT count(*) FROM kernels") as usize;
    let sum = number(&runs().run(), "SELECT sum(start_ns) FROM kernels");
    let directory = tempfile::tempdir().unwrap();
    let file = |format: &str| {
        let path = directory.path().join(format);
        let words = [QUERY, "--format", format, "-o", path.to_str().unwrap()];
        let ended = ended(words.map(Into::into).into_iter().chain([runs().run().into_os_string()]));
        assert_eq!((ended.code, ended.out.as_str()), (0, ""), "{}", ended.err);
        path
    };
    let csv = std::fs::read_to_string(file("csv")).unwrap();
    assert_eq!(csv.lines().next(), Some("name,rank,nothing,start_ns"));
    assert_eq!(csv.lines().count(), rows + 1);
    let json: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(file("json")).unwrap()).unwrap();
    let objects = json.as_array().unwrap();
    assert_eq!(objects.len(), rows);
    assert!(objects[0]["nothing"].is_null() && objects[0].get("nothing").is_some());
    assert_eq!(objects.iter().map(|one| one["start_ns"].as_i64().unwrap()).sum::<i64>(), sum);
    let reader = ParquetRecordBatchReaderBuilder::try_new(File::open(file("parquet")).unwrap());
    let batches = reader.unwrap().build().unwrap().map(Result::unwrap);
    let starts = |batch: &datafusion::arrow::array::RecordBatch| {
        batch.column(3).as_primitive::<Int64Type>().iter().flatten().sum::<i64>()
    };
    assert_eq!(batches.map(|batch| starts(&batch)).sum::<i64>(), sum);
    let batches = FileReader::try_new(File::open(file("arrow")).unwrap(), None).unwrap();
    assert_eq!(batches.map(|batch| starts(&batch.unwrap())).sum::<i64>(), sum);
    let words = [QUERY.into(), "--format=arrow".into(), runs().run().into_os_string()];
    let stream = program(words).output().unwrap().stdout;
    let batches = StreamReader::try_new(&stream[..], None).unwrap();
    assert_eq!(batches.map(|batch| starts(&batch.unwrap())).sum::<i64>(), sum);
}

#[test]
fn a_table_is_cut_and_says_so() {
    let ended = ended(["SELECT value FROM generate_series(1, 20000)"]);
    assert_eq!(ended.out.lines().count(), 10_001);
    assert_eq!(ended.out.lines().nth(1), Some("      1"), "numbers are to the right");
    assert!(ended.err.starts_with("note: the first 10000 rows"), "{}", ended.err);
}

#[test]
fn an_empty_result_has_its_columns() {
    let none = "SELECT rank, name FROM kernels WHERE rank = 99";
    let of = |format: &str| {
        ended([runs().run().as_os_str(), none.as_ref(), "--format".as_ref(), format.as_ref()]).out
    };
    assert_eq!(of("csv"), "rank,name\n");
    assert_eq!(of("json"), "[]\n");
    assert_eq!(of("table").trim(), "rank  name");
}

#[test]
fn a_failed_query_leaves_the_file_as_it_was() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("result.csv");
    std::fs::write(&path, "before").unwrap();
    let failing = "SELECT 1 / (value - 15000) FROM generate_series(1, 20000)";
    let ended = ended([failing, "--format=csv", "-o", path.to_str().unwrap()]);
    assert_eq!(ended.code, 1, "{}", ended.err);
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "before");
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1);
}

#[test]
fn two_results_do_not_fit_into_one_file() {
    let ended = ended(["SELECT 1; SELECT 2", "--format=parquet"]);
    assert_eq!(ended.code, 1);
    assert!(ended.err.contains("a file of parquet holds one result"), "{}", ended.err);
}

#[test]
fn a_reader_that_leaves_is_not_a_failure() {
    let many = "SELECT value, repeat('x', 100) FROM generate_series(1, 1000000)";
    for format in ["csv", "json", "parquet", "arrow"] {
        let mut child = program([many, "--format", format])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        let err = String::from_utf8_lossy(&output.stderr);
        assert_eq!((output.status.code(), err.as_ref()), (Some(0), ""), "{format}");
    }
}
