//! Aligns the files of a run of several hosts.

use std::collections::BTreeMap;
use std::path::PathBuf;

use tprof_facts::communication::on_host::HostCollectives;
use tprof_facts::{Clock, Zero};
use tprof_trace::model::Collective;
use tprof_trace::{RankFile, RunDir, TraceFile};

use super::{ClockName, RankTimes, RelatedClock, relate};
use crate::base::parallel;
use crate::collectives::operations;
use crate::meetings::ComparedCollectives;
use crate::{Needs, RankTrace};

/// The collectives of a file.
struct FileTimes {
    name: ClockName,
    clock: Clock,
    compared: ComparedCollectives,
}

/// Aligns the clocks of a run's files, if they were recorded on several hosts, and returns how the
/// clocks relate to the first rank's; empty for one host. Files that can't be read are left out:
/// whoever reads them next reports that.
///
/// One rank of each host is read, and all ranks if these did not meet.
pub fn align(run: &mut RunDir) -> Vec<RelatedClock> {
    let mut hosts: BTreeMap<ClockName, Vec<&RankFile>> = BTreeMap::new();
    let mut names: Vec<(PathBuf, ClockName)> = Vec::new();
    for file in run.files() {
        let Ok(header) = TraceFile::read_header(&file.path) else { continue };
        let name = ClockName::of(&header.host, &file.label.to_string());
        names.push((file.path.clone(), name.clone()));
        if file.rank.is_some() {
            hosts.entry(name).or_default().push(file);
        }
    }
    if hosts.len() < 2 {
        return Vec::new();
    }
    let place = |file: &&RankFile| run.files().iter().position(|one| one.path == file.path);
    let mut read: Vec<&RankFile> =
        hosts.values().filter_map(|files| files.first().copied()).collect();
    read.sort_by_key(place);
    let mut related = related(run, &read);
    let has_more = hosts.values().any(|files| files.len() > 1);
    if has_more && related.iter().any(|clock| clock.line.is_err()) {
        let all: Vec<&RankFile> = run.files().iter().filter(|file| file.rank.is_some()).collect();
        related = self::related(run, &all);
    }
    let lines: BTreeMap<&ClockName, _> =
        (related.iter()).filter_map(|clock| Some((&clock.name, clock.line.ok()?.line))).collect();
    let of_files = names.into_iter();
    let of_files = of_files.filter_map(|(path, name)| Some((path, *lines.get(&name)?))).collect();
    run.correct_clocks(of_files);
    related
}

fn related(run: &RunDir, files: &[&RankFile]) -> Vec<RelatedClock> {
    let zero = Zero::of(run);
    let times = parallel::each(files, |file| times_of(run, zero, file));
    let times: Vec<FileTimes> = times.into_iter().flatten().collect();
    let ranks = times.iter().map(|of| RankTimes {
        name: of.name.clone(),
        clock: of.clock,
        compared: &of.compared,
    });
    relate(&ranks.collect::<Vec<_>>())
}

fn times_of(run: &RunDir, zero: Zero, file: &RankFile) -> Option<FileTimes> {
    let trace = TraceFile::open(&file.path).ok()?;
    let name = ClockName::of(&trace.header().host, &file.label.to_string());
    let clock = zero.clock(&trace, run);
    // Only collectives with their arguments are of use, and most time goes into reading kernels.
    let has_any = trace.row_count::<Collective>() > 0 || HostCollectives::of(&trace).is_some();
    if !has_any {
        return Some(FileTimes { name, clock, compared: ComparedCollectives::default() });
    }
    let needs = Needs::WORK | Needs::CALLS | Needs::COLLECTIVES | Needs::STEPS;
    let mut rank = RankTrace::load(&trace, needs);
    rank.world_size = file.world_size;
    let steps = rank.steps();
    let steps_of_work = rank.steps_of_work(&steps);
    let (operations, _) = operations(&rank);
    let compared = ComparedCollectives::of(&rank, &operations, &steps, &steps_of_work, |_| true);
    Some(FileTimes { name, clock, compared })
}
