//! Tests that reports and exports of one run agree on these facts: which work communicates, how
//! long devices were busy, the steps' times and numbers, when the run began, and the names of
//! copies. The runs are random.

mod exported;
mod made;
mod reported;

use made::Plan;
use proptest::prelude::*;
use tprof_trace::RunDir;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn reports_and_exports_agree(plan in made::plan()) {
        agree(&plan)?;
    }
}

fn agree(plan: &Plan) -> Result<(), TestCaseError> {
    let dir = tempfile::tempdir().unwrap();
    plan.write(dir.path());
    let run = RunDir::open(dir.path()).unwrap();
    let reported = reported::of(dir.path());

    let flame = exported::flame(&run);
    prop_assert_eq!(&flame.work, &reported.work, "class and number of runs by name");
    let difference = (flame.busy_ns - reported.busy_ns).abs();
    prop_assert!(difference < 1.0, "busy {} and {}", flame.busy_ns, reported.busy_ns);

    prop_assert_eq!(exported::copies(&run), reported.copies(), "names of copies");
    prop_assert_eq!(exported::start_unix_ns(&run), reported.start_unix_ns);
    prop_assert_eq!(exported::steps(&run), reported.steps, "rank, number, start and end");
    prop_assert_eq!(exported::labels(&run), reported.labels, "what files are called");
    Ok(())
}
