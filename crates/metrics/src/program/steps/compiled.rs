//! Finds the steps in which `torch.compile` compiled functions.

use tprof_rank::base::intervals::{Cover, Interval};
use tprof_rank::{RankTrace, Step};

use super::judge::warm_up;

/// Returns the time in which functions were compiled. Returns `None` if there is no log, if the log
/// isn't whole, or if the time of a compilation isn't on the run's clock.
pub(crate) fn compiling(rank: &RankTrace<'_>) -> Option<Cover> {
    let logs = &rank.compile.logs;
    if logs.is_empty() || !logs.iter().all(|read| read.log.is_whole()) {
        return None;
    }
    let frames = logs.iter().flat_map(|read| read.log.frames.iter().map(move |one| (read, one)));
    let times: Option<Vec<Interval>> = frames
        .map(|(read, frame)| read.interval_ns(frame).map(|(from, to)| Interval::new(from, to)))
        .collect();
    Some(Cover::of(times?))
}

/// Returns the time in each step in which functions were compiled, ns.
pub(super) fn in_steps(rank: &RankTrace<'_>, steps: &[Step]) -> Option<Vec<u64>> {
    let cover = compiling(rank)?;
    Some(steps.iter().map(|step| cover.length_within(step.interval)).collect())
}

/// Returns the steps without warm-up and without those in which functions were compiled.
pub(crate) fn steady(rank: &RankTrace<'_>, mut steps: Vec<Step>) -> Vec<Step> {
    let times: Vec<u64> = steps.iter().map(|step| step.time().length()).collect();
    steps.drain(..warm_up(&times).unwrap_or(0));
    if let Some(compiled) = in_steps(rank, &steps) {
        let mut compiled = compiled.into_iter();
        steps.retain(|_| compiled.next() == Some(0));
    }
    steps
}

/// Filters the values of all steps down to those of the kept steps.
pub(super) fn of_kept<T>(all: &[Step], of_all: Vec<T>, kept: &[Step]) -> Vec<T> {
    let mut kept = kept.iter().peekable();
    let is_kept = |step: &Step| {
        let is_it = |one: &&Step| one.interval == step.interval && one.process == step.process;
        kept.next_if(is_it).is_some()
    };
    let mut is_kept = all.iter().map(is_kept);
    of_all.into_iter().filter(|_| is_kept.next() == Some(true)).collect()
}

#[cfg(test)]
mod tests {
    use tprof_facts::compile::RankCompile;
    use tprof_fixture::Fixture;
    use tprof_rank::Needs;

    use super::*;

    #[test]
    fn steps_in_which_functions_are_compiled_are_left_out() {
        let path = std::path::PathBuf::from(env!("CARGO_MANIFEST_DIR"))
            .join("../trace/tests/compile/torch-2.8.log.zst");
        let file = Fixture::new().finish();
        let mut rank = RankTrace::load(&file, Needs::WORK);
        let step = |number, start, end| Step::on_host(number, 0, Interval::new(start, end));
        assert_eq!(in_steps(&rank, &[step(0, 0, 10)]), None);
        // Put the log's clock, which counts from 1970, on the run's clock without an offset.
        rank.compile = RankCompile::of_logs_at(&[path], Some(0));
        let read = &rank.compile.logs[0];
        let (start, end) = read.interval_ns(&read.log.frames[8]).unwrap();
        let steps = [
            step(0, start - 2_000_000_000, start - 1_500_000_000),
            step(1, start, start + 1_000),
            step(2, end + 60_000_000_000, end + 61_000_000_000),
        ];
        let compiled = in_steps(&rank, &steps).unwrap();
        assert_eq!((compiled[1], compiled[2]), (1_000, 0));
        // If rows were left out of a log, it may lack compilations, so the steps are unknown.
        rank.compile.logs[0].log.left_out.rows = 1;
        assert_eq!(in_steps(&rank, &steps), None);
        rank.compile.logs[0].log.left_out.rows = 0;
        let left: Vec<u64> = steady(&rank, steps.to_vec()).iter().map(|step| step.number).collect();
        assert!(left.contains(&2) && !left.contains(&1), "{left:?}");
    }

    #[test]
    fn values_of_left_out_steps_are_left_out() {
        let step = |number, start| Step::on_host(number, 0, Interval::new(start, start + 10));
        let all = [step(0, 0), step(1, 10), step(2, 20), step(3, 30)];
        assert_eq!(of_kept(&all, vec!['a', 'b', 'c', 'd'], &all[1..3]), ['b', 'c']);
        assert_eq!(of_kept(&all, vec!['a', 'b', 'c', 'd'], &all), ['a', 'b', 'c', 'd']);
        assert!(of_kept(&all, Vec::<char>::new(), &all[1..3]).is_empty());
    }
}
