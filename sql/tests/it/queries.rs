//! Tests queries and runs from all possible sources.

use std::io::Write;
use std::process::Stdio;

use crate::runs::{RANKS, copy, ended, number, of, program, rows, runs};

#[test]
fn a_run_and_its_data_set_give_the_same_rows() {
    for query in [
        "SELECT rank, count(*), sum(duration_ns), min(start_ns) FROM kernels GROUP BY rank ORDER BY rank",
        "SELECT name, count(*) AS n FROM kernels GROUP BY name ORDER BY n DESC, name",
        "SELECT rank, start_ns, name FROM spans WHERE rank IN (2, 5) ORDER BY 1, 2, 3 LIMIT 50",
        "SELECT count(*) FROM spans WHERE start_ns BETWEEN 2000000 AND 6000000",
        "SELECT rank, name, step FROM kernels WHERE rank = 3 ORDER BY start_ns, name LIMIT 20",
    ] {
        let of_run = rows(&runs().run(), query);
        assert!(!of_run.is_empty(), "{query}");
        assert_eq!(of_run, rows(&runs().set(), query), "{query}");
    }
}

#[test]
fn conditions_that_select_files_and_blocks_leave_out_no_row() {
    let count = |of: &str| number(&runs().run(), &format!("SELECT count(*) FROM spans WHERE {of}"));
    // `checked` has the same condition with `+ 0` on the column, which the selection of files and
    // blocks does not recognize.
    for (chosen, checked) in [
        ("rank = 3", "rank + 0 = 3"),
        ("rank > 2 AND rank <= 5", "rank + 0 > 2 AND rank + 0 <= 5"),
        ("rank IS NULL OR rank = 1", "rank + 0 IS NULL OR rank + 0 = 1"),
        ("start_ns < 3000000", "start_ns + 0 < 3000000"),
        ("start_ns >= 3000000", "start_ns + 0 >= 3000000"),
        ("5000000 > start_ns AND start_ns > 4000000", "start_ns + 0 BETWEEN 4000001 AND 4999999"),
    ] {
        assert_eq!(count(chosen), count(checked), "{chosen}");
        assert!(count(chosen) > 0, "{chosen}");
    }
    assert_eq!(count("run = 'another'"), 0);
    assert_eq!(count("run = 'r8'"), count("true"));
}

#[test]
fn runs_data_sets_and_files_form_one_table() {
    let one = number(&runs().run(), "SELECT count(*) FROM kernels");
    let (run, set) = (runs().run(), runs().set());
    let query = "SELECT count(*), count(DISTINCT run) FROM kernels";
    let other = copy();
    let both =
        ended([run.as_os_str(), other.path().as_os_str(), query.as_ref(), "--format=csv".as_ref()]);
    assert_eq!(both.out.lines().nth(1).unwrap(), format!("{},2", 2 * one), "{}", both.err);
    let both = ended([query.as_ref(), run.as_os_str(), set.as_os_str(), "--format=csv".as_ref()]);
    assert!(both.out.lines().nth(1).unwrap().starts_with(&format!("{},", 2 * one)), "{}", both.err);
    let file = run.join("rank-3.tprof");
    assert_eq!(rows(&file, "SELECT DISTINCT rank FROM kernels"), ["3"]);
}

#[test]
fn statements_come_from_a_file_or_stdin_and_follow_one_another() {
    let text = "-- how many\nCREATE VIEW long AS SELECT * FROM kernels WHERE rank < 2;\n\
                SELECT count(DISTINCT rank) AS n FROM long; SELECT 'a;b' AS t;";
    let expected = "n\n2\n\nt\na;b\n";
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), text).unwrap();
    let words = [runs().run().into_os_string(), "--format=csv".into(), "-f".into()];
    let from_file = ended(words.iter().cloned().chain([file.path().into()]));
    assert_eq!((from_file.out.as_str(), from_file.code), (expected, 0), "{}", from_file.err);
    let mut child = program(&words[..2])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    assert_eq!(of(child.wait_with_output().unwrap()).out, expected);
}

#[test]
fn by_default_the_newest_run_here_is_read_if_one_is_needed() {
    let here = ended(["SELECT count(DISTINCT rank) FROM kernels", "--format=csv"]);
    assert!(here.err.starts_with("note: tables of "), "{}", here.err);
    assert_eq!(here.code, 0);
    let none = ended(["SELECT 1 AS one", "--format=csv"]);
    assert_eq!((none.out.as_str(), none.err.as_str()), ("one\n1\n", ""));
    let empty = tempfile::tempdir().unwrap();
    let nothing = of(program(["SELECT * FROM kernels"]).current_dir(&empty).output().unwrap());
    assert_eq!(nothing.code, 1);
    assert!(nothing.err.contains("no run was named"), "{}", nothing.err);
}

#[test]
fn tables_and_columns_are_listed_with_their_meaning() {
    for source in [runs().run(), runs().set()] {
        let tables = rows(&source, "SHOW TABLES");
        assert!(tables.iter().any(|line| line.starts_with("kernels,")), "{tables:?}");
        let columns = rows(&source, "DESCRIBE kernels");
        let duration = columns.iter().find(|line| line.starts_with("duration_ns,int64,"));
        assert!(
            duration.is_some_and(|line| line.len() > "duration_ns,int64,".len()),
            "{columns:?}"
        );
        assert!(columns.iter().any(|line| line.starts_with("rank,int32,")), "{columns:?}");
    }
    let functions = rows(&runs().run(), "SHOW FUNCTIONS");
    assert!(functions.iter().any(|line| line.starts_with("interval_union,aggregate,")));
}

#[test]
fn tables_about_the_whole_run_can_be_queried() {
    let ranks = rows(&runs().run(), "SELECT run, rank, whole FROM ranks ORDER BY rank");
    assert_eq!(ranks.len(), RANKS as usize);
    assert_eq!(ranks[7], "r8,7,true");
    assert_eq!(rows(&runs().run(), "SELECT run, ranks FROM runs"), ["r8,8"]);
}

#[test]
fn the_history_of_steps_adds_up_to_its_report() {
    for source in [runs().run(), runs().set()] {
        let of_rows = "SELECT sum(steps), max(longest_ns) FROM history GROUP BY rank ORDER BY rank";
        let of_rows = rows(&source, of_rows);
        let reported = "SELECT steps, longest_ns FROM report('history', 'history') ORDER BY rank";
        assert_eq!(of_rows, rows(&runs().run(), reported));
        assert!(of_rows.len() == RANKS as usize && !of_rows[0].starts_with("0,"), "{of_rows:?}");
        // Another tool recorded the run: its rows come from the events, without CPU time.
        let computed = "SELECT count(*) FROM history WHERE NOT computed OR cpu_ns IS NOT NULL";
        assert_eq!(number(&source, computed), 0);
    }
}
