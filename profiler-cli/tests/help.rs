//! Tests of the help texts. After an intended change, rewrite the golden files:
//! `UPDATE_GOLDEN=1 cargo test -p tprof-cli --test help`.

use std::path::PathBuf;
use std::process::{Command, Output};

fn tprof(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tprof"));
    for (name, _) in
        std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("TPROF_"))
    {
        command.env_remove(name);
    }
    command.args(arguments).env_remove("COLUMNS").output().expect("run tprof")
}

fn check(name: &str, arguments: &[&str]) {
    let output = tprof(arguments);
    assert!(output.status.success());
    assert!(output.stderr.is_empty());
    let text = String::from_utf8(output.stdout).expect("text");
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, &text).expect("write the golden file");
    }
    assert_eq!(text, std::fs::read_to_string(&path).unwrap_or_default());
    for line in text.lines() {
        assert!(line.chars().count() <= 80, "wider than 80 columns: {line}");
    }
}

#[test]
fn help_matches_its_golden_file() {
    check("help.txt", &["--help"]);
}

#[test]
fn help_of_run_matches_its_golden_file() {
    check("help-run.txt", &["run", "--help"]);
}

#[test]
fn help_of_report_matches_its_golden_file() {
    check("help-report.txt", &["report", "--help"]);
}

#[test]
fn mistakes_print_three_lines_and_exit_with_125() {
    for arguments in [
        &["run"][..],
        &["run", "--"],
        &["run", "--ouput", "x", "--", "true"],
        &["run", "--mem", "exat", "--", "true"],
        &["run", "--activities", "gup", "--", "true"],
        &["run", "--stacks", "lua", "--", "true"],
        &["run", "--sample-rate", "0", "--", "true"],
        &["attach", "0"],
        &["report"],
        &["report", "memry", "x"],
        &["report", "x", "--top", "y"],
        &["export", "x"],
        &["ctl", "strat", "x"],
        &["ctl", "start"],
        &["ctl", "stop", "/nonexistent"],
        &["completions", "tcsh"],
        &["frobnicate"],
        &["__collect", "/nonexistent"],
    ] {
        let output = tprof(arguments);
        let error = String::from_utf8(output.stderr).expect("text");
        assert_eq!(output.status.code(), Some(125), "{arguments:?}: {error}");
        assert!(output.stdout.is_empty());
        let labels: Vec<_> =
            error.lines().map(|line| line.split(": ").next().unwrap_or("")).collect();
        assert_eq!(labels, ["error", "cause", "  try"], "{arguments:?}: {error}");
    }
}

#[test]
fn commands_that_cannot_run_have_the_shell_s_status() {
    assert_eq!(tprof(&["run", "--", "no-such-command"]).status.code(), Some(127));
    assert_eq!(tprof(&["run", "--", "/etc/passwd"]).status.code(), Some(126));
    assert_eq!(tprof(&["run", "--", "/"]).status.code(), Some(126));
}

#[test]
fn completions_and_man_pages_are_made() {
    for shell in ["bash", "zsh", "fish"] {
        let script = String::from_utf8(tprof(&["completions", shell]).stdout).expect("text");
        assert!(script.contains("doctor") && !script.contains("__collect"), "{shell}");
    }
    let page = String::from_utf8(tprof(&["man"]).stdout).expect("text");
    assert!(page.contains(".TH TPROF 1") && !page.contains("__collect"));
}
