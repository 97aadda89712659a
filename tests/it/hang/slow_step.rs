//! `--on slow-step`: what a rank does in a step that takes long is read while it does it.

use super::{line_of, source};
use serde_json::Value;
use tprof_tests::{Job, Scratch, Traced, document, program, tprof, traced};

/// Runs a job that makes 20 steps of some 10 ms, and then none for a while, in which it does this.
fn run(how: &str, scratch: &Scratch) -> Traced {
    let job = Job::new(program("goes_quiet")).args([how, "4"]);
    traced(&job, &["--mem", "off", "--on", "slow-step=30x"], scratch)
}

fn finding(run: &Traced, rule: &str) -> Option<Value> {
    let findings = document("findings", &run.run);
    let rows = findings["tables"]["findings"].as_array().unwrap();
    rows.iter().find(|row| row["rule"] == rule).cloned()
}

#[test]
fn a_slow_step_has_what_it_did_with_its_line_and_all_stacks() {
    // A process that waits for its child runs no code of its own, and one that computes is sampled.
    for how in ["sleeps", "compiles", "computes"] {
        let scratch = Scratch::new();
        let run = run(how, &scratch);
        assert_eq!(run.outcome.code, Some(0), "{how}: {:?}", run.outcome);
        let file = std::fs::read_to_string(run.run.join("slow-step-1.json")).unwrap();
        let written: Value = serde_json::from_str(&file).unwrap();
        let slow = &written["slow"];
        assert_eq!((&slow["rank"], &slow["function"]), (&0.into(), &how.into()), "{written:#}");
        let line = line_of(&source("programs/goes_quiet.c"), &format!("HERE {how}"));
        assert_eq!(slow["line"], line, "{written:#}");
        assert!(slow["age_ns"].as_u64() > slow["usual_ns"].as_u64().map(|ns| 30 * ns));
        assert!(!written["ranks"][0]["threads"].as_array().unwrap().is_empty(), "{written:#}");
        assert!(!run.run.join("slow-step-2.json").exists(), "one step was slow");
        let found = finding(&run, "SlowStep").unwrap();
        assert_eq!((&found["function"], &found["line"]), (&how.into(), &line.into()), "{found:#}");
        let seen = found["seen"].as_str().unwrap();
        assert!(seen.contains(" times the usual ") && seen.contains("slow-step-1.json"), "{seen}");
        // It may have to take that long, so it isn't called a hang.
        assert_eq!(finding(&run, "Hang"), None, "{how}");
        tprof(["rm", "--yes"]).arg(&run.run).run_in(scratch.path()).expect_code(0);
        assert!(!run.run.exists(), "the file about the step belongs to the run");
    }
}

#[test]
fn steps_before_any_was_usual_and_steps_as_usual_are_left_alone() {
    for how in ["begins", "goes on"] {
        let scratch = Scratch::new();
        let run = run(how, &scratch);
        assert_eq!(run.outcome.code, Some(0), "{how}: {:?}", run.outcome);
        assert!(!run.run.join("slow-step-1.json").exists(), "{how}");
        assert_eq!(finding(&run, "SlowStep"), None, "{how}");
    }
}

#[test]
fn a_bad_event_is_refused_with_an_example() {
    for bad in ["slow-step", "slow-step=1x", "slow-step=often", "thunder"] {
        let refused = tprof(["run", "--on", bad, "true"]).run_in(Scratch::new().path());
        assert_eq!(refused.code, Some(125), "{bad}: {refused:?}");
        assert!(refused.stderr.contains("--on=slow-step=3x"), "{refused:?}");
    }
}
