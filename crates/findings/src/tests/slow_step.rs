//! Tests of SlowStep.

use tprof_trace::model::property;

use super::job::{Job, MS};

fn job(facts: &[(String, &str)]) -> Job {
    let mut job = Job::new(3, 100 * MS);
    for (key, value) in facts {
        job.fact(key, value);
    }
    job
}

#[test]
fn the_longest_slow_step_is_found_with_its_line_and_its_length() {
    let of = |age_ms: u64, name| {
        format!(
            r#"{{"age_ns":{},"stacks":"slow-step-1.json","text":"rank 0 is late in {name}",
                "function":"{name}","file":"/u/data.py","line":41}}"#,
            age_ms * MS
        )
    };
    let (short, long) = (of(30, "saves"), of(50, "loads"));
    let facts = [
        (format!("{}150000000", property::SLOW_STEP), long.as_str()),
        (format!("{}250000000", property::SLOW_STEP), short.as_str()),
    ];
    let of_dump = |key: &str, value| [&facts[..], &[(key.to_owned(), value)]].concat();
    for (dump, function) in [
        (of_dump(property::DUMPED_WHY, "a step took long: rank 0 is late in saves"), "saves"),
        (of_dump(property::DUMPED_FOR, "SlowStep"), "saves"),
    ] {
        let (finding, places) = &job(&dump).ask("SlowStep").found[0];
        assert_eq!((&finding.line.as_ref().unwrap().function[..], places.len()), (function, 1));
    }
    let outcome = job(&facts).ask("SlowStep");
    let (finding, places) = &outcome.found[0];
    let seen = "Seen while a step took long: rank 0 is late in loads. The step took 100.0 ms. The \
                run's slow-step-1.json has the stacks of all ranks. 1 shorter one was looked at \
                too.";
    assert_eq!((finding.seen.as_str(), places.len()), (seen, 2));
    let line = finding.line.as_ref().unwrap();
    assert_eq!((line.function.as_str(), line.line), ("loads", 41));
}

#[test]
fn without_a_slow_step_it_is_clear_only_if_somebody_watched() {
    let watched = job(&[(property::ON_SLOW_STEP.to_owned(), "3")]).ask("SlowStep");
    assert!(watched.no_problem.unwrap().contains("no step over 3 times the usual"));
    assert!(job(&[]).ask("SlowStep").unchecked.is_some());
}
