//! Tests that a query writes nothing except the file of `-o`, and reads no other file.

use crate::runs::{ended, runs};

#[test]
fn statements_that_could_write_or_read_other_files_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let other = directory.path().join("other.csv");
    std::fs::write(&other, "secret\n1\n").unwrap();
    let new = directory.path().join("new.csv");
    let (other, shown) = (other.display(), new.display());
    for (query, why) in [
        (format!("COPY (SELECT 1) TO '{shown}'"), "COPY is refused"),
        (format!("EXPLAIN ANALYZE COPY (SELECT 1) TO '{shown}'"), "COPY is refused"),
        (
            format!("CREATE EXTERNAL TABLE t STORED AS CSV LOCATION '{other}'"),
            "CREATE EXTERNAL TABLE is refused",
        ),
        ("CREATE TABLE t AS SELECT 1".into(), "CREATE TABLE is refused"),
        ("SELECT 1 INTO t".into(), "refused"),
        ("INSERT INTO kernels SELECT * FROM kernels".into(), "INSERT INTO is refused"),
        ("DROP TABLE kernels".into(), "DROP TABLE is refused"),
        ("SET datafusion.runtime.temp_directory = '/'".into(), "SET is refused"),
        (format!("SELECT * FROM '{other}'"), "there is no table"),
        (format!("SELECT * FROM read_csv('{other}')"), "there is no function"),
        ("CREATE VIEW kernels AS SELECT 1".into(), "kernels"),
        ("CREATE OR REPLACE VIEW kernels AS SELECT 1".into(), "kernels"),
    ] {
        let ended = ended([runs().run().as_os_str(), query.as_ref()]);
        assert_eq!((ended.code, ended.out.as_str()), (1, ""), "{query}: {}", ended.err);
        assert!(ended.err.contains(why), "{query}: {}", ended.err);
        assert!(!ended.err.contains("secret"), "{query}: {}", ended.err);
    }
    assert!(!new.exists());
}
