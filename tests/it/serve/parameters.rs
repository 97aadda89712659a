//! A parameter is only a value: it never becomes an option or a file.

use tprof_tests::{Scratch, Served};

use super::runs;

#[test]
fn a_value_never_becomes_an_option() {
    let scratch = Scratch::new();
    let directory = runs(&scratch);
    let served = Served::start(&directory, &[]);
    let target = scratch.join("written");
    let shown = target.to_string_lossy().into_owned();
    let values = [
        format!("--output={shown}"),
        format!("-o{shown}"),
        format!("0%20--output={shown}"),
        format!("0%00--output={shown}"),
        format!("0%0A--output={shown}"),
        "--help".to_owned(),
        "--".to_owned(),
        "-".to_owned(),
        "$(touch%20written)".to_owned(),
        "%FF%FE".to_owned(),
        "a".repeat(5000),
    ];
    let names = [
        "rank",
        "top",
        "steps_from",
        "cycle",
        "within",
        "operator",
        "sort",
        "thread",
        "peaks",
        "hta",
        "steady",
        "lines",
        "mine",
    ];
    for value in &values {
        for name in names {
            let answer = served.get(&format!("/api/v1/runs/1/report/summary?{name}={value}"));
            assert!(matches!(answer.status, 200 | 400 | 422), "{name}={value}: {answer:?}");
            assert!(!answer.text().contains("Usage:"), "{name}={value}: {}", answer.text());
            if answer.status != 200 {
                answer.clone().expect_failure(answer.status);
            }
            answer.json();
        }
        for name in ["rank", "steps", "from_time", "to_time"] {
            let answer = served.get(&format!("/api/v1/runs/1/export/folded?{name}={value}"));
            assert!(matches!(answer.status, 200 | 400 | 422), "{name}={value}: {answer:?}");
            assert!(!answer.text().contains("Usage:"), "{name}={value}: {}", answer.text());
        }
    }
    assert!(!target.exists());
    let left = std::fs::read_dir(served.temporary()).unwrap().count();
    assert_eq!(left, 0, "files are left in the server's own folder");
}

#[test]
fn only_listed_names_are_accepted() {
    let scratch = Scratch::new();
    let served = Served::start(&runs(&scratch), &[]);
    let names = [
        "--help",
        "-h",
        "summary,memory",
        "Summary",
        "summary%20",
        "%20summary",
        "all",
        "--json",
        "..",
        "%2e%2e",
        "%00",
        "__limited",
        "__catalogue",
        "perfetto%20-o%20x",
        "csv%2f",
    ];
    for name in names {
        for what in ["report", "page", "export"] {
            let answer = served.get(&format!("/api/v1/runs/1/{what}/{name}"));
            assert!(matches!(answer.status, 400 | 404), "{what}/{name}: {answer:?}");
            let failure = answer.clone().expect_failure(answer.status);
            assert_ne!(failure["try"], "", "{what}/{name}: {failure}");
        }
    }
    for name in ["output", "json", "o", "csv", "--rank", "html", "weight", "against", "max_size"] {
        for path in ["report/summary", "export/folded", "page/flame"] {
            let answer = served.get(&format!("/api/v1/runs/1/{path}?{name}=1"));
            let failure = answer.expect_failure(400);
            assert_ne!(failure["try"], "", "{path}?{name}: {failure}");
        }
    }
    for query in [
        "heat?metric=--help",
        "heat?metric=step_ns&from=-1",
        "heat?metric=step_ns&over=odd",
        "heat?metric=odd&over=time",
    ] {
        let answer = served.get(&format!("/api/v1/runs/1/{query}"));
        assert!(matches!(answer.status, 200 | 400 | 404), "{query}: {answer:?}");
        answer.json();
    }
    served.assert_answers();
}
