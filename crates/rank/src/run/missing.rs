//! Finds ranks that a launcher started and that no file contains.
//!
//! Each rank's environment says how many ranks there are, so one recorded rank is enough to notice
//! the missing ones. A rank is missing if its host could not load tprof's library, if it was
//! started without tprof's variables, or if each rank records into its own run.

use std::collections::{BTreeMap, BTreeSet};

use tprof_trace::run::{BlindSpot, RunInfo};

/// Most ranks that are named one by one.
const MOST_NAMED: usize = 8;
const WHY: &str = "not in this run; its host may not find tprof's library, it was started \
                   without tprof's variables, or it has a run of its own";

/// Returns the missing ranks, one entry for each launch. It is empty if the run is not over, since
/// ranks may still start.
pub(crate) fn ranks(infos: &[RunInfo]) -> Vec<BlindSpot> {
    if infos.iter().any(|info| !info.finished) {
        return Vec::new();
    }
    // For each launch: the number of its ranks, and the ranks that were recorded. All starts of a
    // launch count together, since they can't be separated by the number of restarts: each agent of
    // torchrun counts only its own restarts, so ranks of one start may have different numbers.
    let mut launches: BTreeMap<(Option<&str>, u32), BTreeSet<u32>> = BTreeMap::new();
    for rank in infos.iter().flat_map(|info| &info.ranks) {
        let Some(size) = rank.size.filter(|size| rank.rank < *size) else { continue };
        launches.entry((rank.launch.as_deref(), size)).or_default().insert(rank.rank);
    }
    let missing = |((_, size), recorded): ((_, u32), BTreeSet<u32>)| {
        let count = size as usize - recorded.len();
        let first: Vec<u32> =
            (0..size).filter(|rank| !recorded.contains(rank)).take(MOST_NAMED).collect();
        (count > 0).then(|| {
            BlindSpot::new(format!("{} of {size}", named(&first, count)), "everything", WHY)
        })
    };
    launches.into_iter().filter_map(missing).collect()
}

/// Returns `rank 3`, `ranks 1, 2 and 5` or `ranks 8, 9, … and 1014 more`: the first of `count`
/// ranks, and the number of the others.
fn named(first: &[u32], count: usize) -> String {
    let words: Vec<String> = first.iter().map(u32::to_string).collect();
    match (words.as_slice(), count - first.len()) {
        ([one], 0) => format!("rank {one}"),
        ([first @ .., last], 0) => format!("ranks {} and {last}", first.join(", ")),
        (all, more) => format!("ranks {} and {more} more", all.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tprof_trace::run::RankInfo;

    fn info(ranks: &[(u32, u32, &str, u32)]) -> RunInfo {
        let rank = |(rank, size, launch, restarts): &(u32, u32, &str, u32)| RankInfo {
            rank: *rank,
            size: Some(*size),
            launch: (!launch.is_empty()).then(|| (*launch).to_owned()),
            restarts: *restarts,
            file: String::new(),
        };
        RunInfo { finished: true, ranks: ranks.iter().map(rank).collect(), ..RunInfo::default() }
    }

    fn missing(infos: &[RunInfo]) -> Vec<String> {
        ranks(infos).into_iter().map(|blind| blind.process).collect()
    }

    #[test]
    fn the_ranks_of_all_collectors_count_together() {
        let (first, second) = (info(&[(0, 4, "", 0), (1, 4, "", 0)]), info(&[(3, 4, "", 0)]));
        assert_eq!(missing(&[first.clone(), second]), ["rank 2 of 4"]);
        assert_eq!(missing(&[first]), ["ranks 2 and 3 of 4"]);
        assert!(missing(&[info(&[])]).is_empty());
    }

    #[test]
    fn starts_of_a_launch_count_together() {
        // The ranks of a second start. Only the agent of ranks 0 and 1 has counted a restart.
        let elastic = info(&[(0, 4, "a", 1), (1, 4, "a", 1), (2, 4, "a", 0), (3, 4, "a", 0)]);
        assert!(missing(&[elastic]).is_empty());
    }

    #[test]
    fn each_launch_and_each_size_has_its_own_ranks() {
        let both = info(&[(0, 2, "a", 0), (1, 2, "a", 0), (0, 2, "b", 0)]);
        assert_eq!(missing(&[both]), ["rank 1 of 2"]);
        let again = info(&[(0, 2, "a", 0), (1, 2, "a", 0), (0, 3, "a", 1), (1, 3, "a", 1)]);
        assert_eq!(missing(&[again]), ["rank 2 of 3"]);
    }

    #[test]
    fn an_unfinished_run_has_no_missing_ranks() {
        let run = RunInfo { finished: false, ..info(&[(0, 2, "", 0)]) };
        assert!(missing(&[run]).is_empty());
    }

    #[test]
    fn a_long_list_of_missing_ranks_is_cut() {
        let named = missing(&[info(&[(0, 1024, "", 0)])]);
        assert_eq!(named, ["ranks 1, 2, 3, 4, 5, 6, 7, 8 and 1015 more of 1024"]);
        let most = missing(&[info(&[(0, u32::MAX, "", 0)])]);
        assert_eq!(most, ["ranks 1, 2, 3, 4, 5, 6, 7, 8 and 4294967286 more of 4294967295"]);
    }
}
