//! Reports in Markdown have the content of the text reports, in a form that GitHub accepts.

use std::path::{Path, PathBuf};

use tprof_tests::{Job, Scratch, foreign, need, tprof, tprof_at};

/// Returns the output of a report or comparison.
fn printed(words: &[&str], runs: &[&Path], more: &[&str]) -> String {
    let job = tprof(words.iter().copied()).args(runs).args(more);
    job.run_in(std::env::temp_dir()).expect_code(0).stdout
}

/// Returns the text that Markdown renders to.
fn rendered(markdown: &str) -> String {
    let mut text = markdown.to_owned();
    for (from, to) in [("&#8203;", ""), ("&lt;", "<"), ("&gt;", ">"), ("&amp;", "&"), ("**", "")] {
        text = text.replace(from, to);
    }
    let mut seen = String::new();
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        let escapes = c == '\\' && chars.peek().is_some_and(char::is_ascii_punctuation);
        if !escapes && c != '`' {
            seen.push(c);
        }
    }
    seen.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Returns the numbers that the text has and the Markdown lacks. With `cut`, the Markdown may
/// shorten long words.
fn missing<'t>(text: &'t str, markdown: &str) -> Vec<&'t str> {
    let seen = rendered(markdown);
    let numbers = text.split_whitespace().filter(|word| {
        let is_number =
            word.starts_with(|c: char| c.is_ascii_digit() || matches!(c, '~' | '+' | '-'));
        is_number && word.contains(|c: char| c.is_ascii_digit()) && !word.contains('…')
    });
    numbers.map(|word| word.trim_matches('`')).filter(|word| !seen.contains(word)).collect()
}

/// Checks that each table's rows have as many cells as its headings, and that the length is within
/// the limit.
#[track_caller]
fn assert_well_formed(markdown: &str) {
    let mut columns = 0;
    let mut is_fixed = false;
    let mut tables = 0;
    for line in markdown.lines() {
        if line.starts_with("```") {
            is_fixed = !is_fixed;
        } else if !is_fixed && line.starts_with('|') {
            // A bar behind a backslash ends no cell, unless the backslash is escaped itself.
            let bare = line.replace("\\\\", "").replace("\\|", "");
            let cells = bare.matches('|').count() - 1;
            tables += usize::from(columns == 0);
            columns = if columns == 0 { cells } else { columns };
            assert_eq!(cells, columns, "{line}");
        } else {
            columns = 0;
        }
    }
    assert!(!is_fixed && tables > 0, "{tables} tables");
    assert!(markdown.chars().count() <= 60_000);
}

#[track_caller]
fn assert_same_content(words: &[&str], runs: &[&Path], top: &str) {
    let text = printed(words, runs, &["--top", top]);
    let markdown = printed(words, runs, &["--top", top, "--markdown"]);
    assert_well_formed(&markdown);
    let missing = missing(&text, &markdown);
    assert!(missing.is_empty(), "{missing:?} of\n{text}\nare not in\n{markdown}");
}

fn corpus(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/import/tests/corpus").join(name)
}

#[test]
fn reports_have_the_numbers_of_the_text() {
    need!(Path::new("/usr/bin/python3").exists(), "there is no /usr/bin/python3");
    let scratch = Scratch::new();
    let run = scratch.join("run");
    let made = "kept = [bytes(1 << 20) for _ in range(30)]\nsum(i * i for i in range(10**7))";
    let job =
        tprof(["run", "--mem", "exact", "-q", "-o"]).arg(&run).arg("--").arg("/usr/bin/python3");
    job.args(["-c", made]).run_in(scratch.path()).expect_code(0);
    for kind in ["summary", "memory", "cpu", "threads", "findings", "counters"] {
        assert_same_content(&["report", kind], &[&run], "4");
    }
    let trace = scratch.join("trace.json");
    foreign::first_kineto(3).write(&trace);
    for path in [&trace, &corpus("kineto.json")] {
        assert_same_content(
            &["report", "breakdown,steps,kernels,idle,overlap,queue"],
            &[path],
            "3",
        );
        assert_same_content(&["report", "operators"], &[path], "100");
    }
    assert_same_content(&["diff"], &[&corpus("kineto.json"), &trace], "5");
}

#[test]
fn a_long_report_is_cut_with_a_note() {
    let scratch = Scratch::new();
    let trace = scratch.join("trace.json");
    foreign::first_kineto(2_000).write(&trace);
    let markdown = printed(&["report", "all"], &[&trace], &["--top", "100000", "--markdown"]);
    assert_well_formed(&markdown);
    assert!(
        markdown.ends_with("`--json` has all of it._\n"),
        "{}",
        &markdown[markdown.len() - 300..]
    );
}

/// Returns the shell script of a step of `examples/github-actions.yml`.
fn step(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/github-actions.yml");
    let text = std::fs::read_to_string(path).unwrap();
    let step = text.split("      - name: ").find(|step| step.starts_with(&format!("{name}\n")));
    let (_, script) = step.unwrap().split_once("        run: |\n").unwrap();
    let indented = script.lines().take_while(|line| line.starts_with("          "));
    indented.map(|line| format!("{}\n", line.trim_start())).collect()
}

#[test]
fn the_example_for_github_compares_two_runs() {
    let scratch = Scratch::new();
    for (side, steps) in [("main", 6), ("branch", 7)] {
        let trace = scratch.join(format!("{side}.json"));
        foreign::first_kineto(steps).write(&trace);
        let run = scratch.join(format!("{side}.tprof-run"));
        tprof(["import"]).arg(&trace).arg("-o").arg(&run).run_in(scratch.path()).expect_code(0);
    }
    std::os::unix::fs::symlink(tprof_at(), scratch.join("tprof")).unwrap();
    let (summary, output) = (scratch.join("summary.md"), scratch.join("output"));
    let path = std::env::var("PATH").unwrap();
    for (condition, status) in
        [("launches>+1000%", 0), ("wall_time>+5%", 1), ("peak_heap>+5%", 125)]
    {
        let job = Job::new("bash").args(["-e", "-o", "pipefail", "-c", &step("Compare")]);
        let job = job.env("PATH", format!("{}:{path}", scratch.path().display()));
        let job = job.env("GITHUB_STEP_SUMMARY", &summary).env("GITHUB_OUTPUT", &output);
        job.env("CONDITION", condition).run_in(scratch.path()).expect_code(0);
        let read = |name: &str| std::fs::read_to_string(scratch.join(name)).unwrap();
        assert_eq!(read("output").lines().last(), Some(format!("status={status}").as_str()));
        let failed = u32::from(status == 1);
        assert!(read("junit.xml").contains(&format!("failures=\"{failed}\"")));
        let comment = read("comment.md");
        assert_well_formed(&comment);
        assert!(comment.starts_with("## tprof diff\n") && comment.ends_with("```\n"), "{comment}");
        assert!(read("summary.md").ends_with(&printed_summary(&scratch)), "{}", read("summary.md"));
    }
}

fn printed_summary(scratch: &Scratch) -> String {
    let job = tprof(["report", "summary,findings", "branch.tprof-run", "--markdown"]);
    job.run_in(scratch.path()).expect_code(0).stdout
}
