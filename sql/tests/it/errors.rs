//! Tests the error messages of `tprof sql` for wrong queries and command lines.

use crate::runs::{ended, runs};

#[test]
fn unknown_names_are_shown_with_their_place_and_a_suggestion() {
    for (query, place, error, suggestion) in [
        (
            "SELECT rank,\n  durations_ns FROM kernels",
            "2 |   durations_ns FROM kernels\n  |   ^\n",
            "error: there is no column `durations_ns` in `kernels`\n",
            "`duration_ns`",
        ),
        (
            "SELECT * FROM kernel",
            "1 | SELECT * FROM kernel\n  |               ^\n",
            "error: there is no table `kernel`\n",
            "`kernels`",
        ),
        (
            "SELECT interval_unoin(1, 2)",
            "1 | SELECT interval_unoin(1, 2)\n  |        ^\n",
            "error: there is no function `interval_unoin`\n",
            "`interval_union`",
        ),
        // The empty text means that the place isn't checked.
        ("SELECT * FROM breakdwn()", "", "error: there is no function `breakdwn`\n", "`breakdown`"),
    ] {
        let ended = ended([runs().run().as_os_str(), query.as_ref()]);
        assert_eq!(ended.code, 1, "{}", ended.err);
        assert!(ended.err.starts_with(place), "{}", ended.err);
        assert!(ended.err.contains(error), "{}", ended.err);
        assert!(ended.err.contains(suggestion), "{}", ended.err);
    }
}

#[test]
fn syntax_errors_are_shown_with_their_place() {
    let ended = ended(["SELECT 1;\nSELECT 2 FORM kernels WHERE"]);
    assert_eq!((ended.code, ended.out.as_str()), (1, ""), "no statement is executed");
    assert!(
        ended.err.starts_with("2 | SELECT 2 FORM kernels WHERE\n  |               ^\n"),
        "{}",
        ended.err
    );
}

#[test]
fn a_wrong_command_line_exits_with_2_and_runs_nothing() {
    for arguments in [
        // The last argument is the query; what comes before it are runs.
        &["no-such-run", "SELECT 1"][..],
        &["SELECT 1", "SELECT 2"],
        &["SELECT 1", "--format=xml"],
        &["SELECT 1", "--memory-limit=3 apples"],
        &["SELECT 1", "--threads=0"],
        &["SELECT 1", "-f", "q.sql"],
        &["-f", "no-such-file.sql"],
        // A directory that is not a run.
        &["/", "SELECT 1"],
    ] {
        let ended = ended(arguments);
        assert_eq!((ended.code, ended.out.as_str()), (2, ""), "{arguments:?}: {}", ended.err);
        assert!(ended.err.starts_with("error: "), "{arguments:?}: {}", ended.err);
    }
}
