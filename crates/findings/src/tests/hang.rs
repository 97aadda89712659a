//! Tests of Hang.

use tprof_trace::model::property;

use super::job::{Job, MS};

fn job(facts: &[(String, &str)]) -> Job {
    let mut job = Job::new(1, 100 * MS);
    for (key, value) in facts {
        job.fact(key, value);
    }
    job
}

#[test]
fn a_hang_is_found_with_its_line_and_its_file() {
    let value = r#"{"after_ns":300000000000,"file":"hang-1.json","verdict":{"kind":"late_rank",
        "rank":1,"text":"rank 1 is late","function":"load","file":"/u/data.py","line":41}}"#;
    let outcome = job(&[(format!("{}50", property::HANG), value)]).ask("Hang");
    let (finding, places) = &outcome.found[0];
    let seen = "Nothing went on for 5 min 00 s: rank 1 is late (late rank). The run's hang-1.json \
                has the stacks of all ranks.";
    assert_eq!((finding.seen.as_str(), places.len()), (seen, 1));
    let line = finding.line.as_ref().unwrap();
    assert_eq!((line.function.as_str(), line.line), ("load", 41));
}

#[test]
fn without_a_hang_it_is_clear_only_if_somebody_watched() {
    let watched = job(&[(property::ON_HANG.to_owned(), "5000000000")]).ask("Hang");
    assert!(watched.no_problem.unwrap().contains("for 5.00 s"));
    assert!(job(&[]).ask("Hang").unchecked.is_some());
}

#[test]
fn of_a_job_without_steps_and_operations_it_is_not_checked() {
    let mut job = Job::new(0, 100 * MS);
    job.fact(property::ON_HANG, "5000000000");
    let why = job.ask("Hang").unchecked.unwrap().why;
    assert!(why.contains("this rank made none"), "{why}");
}
