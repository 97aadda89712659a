//! Identifies the job that a collector belongs to, by the variables that launchers set for their
//! ranks. Several `tprof run` that share a directory must belong to one job.
//!
//! `run.json` has the identity under `job`, and a rank that starts later compares it with its own.

use crate::os::proc;
use crate::os::sys;
use std::collections::BTreeMap;
use tprof_trace::run::RunInfo;
use tprof_wire::env::{
    HYDRA_VARIABLES, MPI_JOB_VARIABLES, SCHEDULER_JOB_VARIABLES, SLURM_JOB, SLURM_RESTART,
    SLURM_STEP, TORCH_RESTART, TORCH_RUN,
};
use tprof_wire::hash::fnv1a;

/// Key under which the process that started this host's ranks is stored: its pid and start time.
const LAUNCHER: &str = "launcher";
/// The value that torchrun sets if its user named no run.
const NO_TORCH_RUN: &str = "none";
/// Prefix of a value that `--redact` replaced by its hash.
const HASHED: char = '#';
/// Number of ancestors that are searched for the launcher, deeper than any real process tree.
const MAX_ANCESTORS: usize = 64;

/// The relation of two jobs, judged by the environments of their collectors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Relation {
    /// Both are the same job.
    Same,
    /// They are different jobs.
    Other,
    /// It is unknown whether they are the same.
    Unknown,
}

/// The variables that identify a job.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JobId {
    values: BTreeMap<String, String>,
    restarted: bool,
}

impl JobId {
    /// Returns the identity in the environment of this process.
    pub fn own() -> JobId {
        let environ = proc::environment_of(std::process::id());
        let mut id = JobId::of(&environ);
        let by_launcher = if id.values.contains_key(TORCH_RUN) {
            Some(TORCH_RUN)
        } else {
            let hydra = HYDRA_VARIABLES.iter().all(|name| value_of(&environ, name).is_some());
            HYDRA_VARIABLES.first().copied().filter(|_| hydra)
        };
        if let Some(launcher) = by_launcher.and_then(launcher) {
            id.values.insert(LAUNCHER.to_owned(), launcher);
        }
        id
    }

    /// Returns the identity in a NUL-separated environment.
    fn of(environ: &[u8]) -> JobId {
        let slurm = [SLURM_JOB, SLURM_STEP, SLURM_RESTART];
        let names = MPI_JOB_VARIABLES.iter().chain(SCHEDULER_JOB_VARIABLES.iter());
        let names = names.chain(&slurm).chain(std::iter::once(&TORCH_RUN));
        let values = names.filter_map(|name| {
            let value = value_of(environ, name).filter(|value| !value.is_empty())?;
            Some(((*name).to_owned(), value))
        });
        let restarts = value_of(environ, TORCH_RESTART).and_then(|text| text.parse::<u32>().ok());
        JobId { values: values.collect(), restarted: restarts.is_some_and(|count| count > 0) }
    }

    /// Whether an elastic launcher restarted these ranks after some had failed.
    pub fn is_restarted(&self) -> bool {
        self.restarted
    }

    /// Returns the identity in the form that `run.json` has.
    pub fn shown(&self, redact: bool) -> BTreeMap<String, String> {
        let shown = |(name, value): (&String, &String)| match redact && name != LAUNCHER {
            true => (name.clone(), hashed(value)),
            false => (name.clone(), value.clone()),
        };
        self.values.iter().map(shown).collect()
    }

    /// Returns whether the collector that wrote `theirs` was started by the same job.
    pub fn relation(&self, theirs: &RunInfo) -> Relation {
        let here = theirs.host == sys::host_name();
        let same = |name: &str| {
            let (own, other) = (self.values.get(name)?, theirs.job.get(name)?);
            Some(own == other || other.starts_with(HASHED) && hashed(own) == *other)
        };
        let by = |same: bool| if same { Relation::Same } else { Relation::Other };
        if let Some(same) = MPI_JOB_VARIABLES.iter().find_map(|name| same(name)) {
            return by(same);
        }
        if same(TORCH_RUN) == Some(false) {
            return Relation::Other;
        }
        // A user may choose the same id twice, so on one host the launcher decides.
        match same(LAUNCHER).filter(|_| here) {
            Some(true) => return Relation::Same,
            Some(false) => return Relation::Unknown,
            None => {}
        }
        if same(TORCH_RUN).is_some()
            && self.values.get(TORCH_RUN).is_some_and(|id| id != NO_TORCH_RUN)
        {
            return Relation::Same;
        }
        if let Some(job) = same(SLURM_JOB) {
            let restart = |values: &BTreeMap<String, String>| values.get(SLURM_RESTART).is_some();
            let restarts = same(SLURM_RESTART)
                .unwrap_or_else(|| restart(&self.values) == restart(&theirs.job));
            // Ranks that mpirun starts on its own host belong to no Slurm step.
            return by(job && restarts && same(SLURM_STEP).unwrap_or(true));
        }
        let scheduler = SCHEDULER_JOB_VARIABLES.iter().find_map(|name| same(name));
        scheduler.map_or(Relation::Unknown, by)
    }
}

/// Returns pid and start time of the launcher. It is the nearest ancestor whose environment lacks
/// `variable`, which the launcher sets for its ranks, or whose environment can't be read.
fn launcher(variable: &str) -> Option<String> {
    let mut pid = std::process::id();
    for _ in 0..MAX_ANCESTORS {
        pid = proc::parent_of(pid).filter(|parent| *parent > 0)?;
        let environ = proc::environment_of(pid);
        if value_of(&environ, variable).is_none() {
            return Some(format!("pid {pid}, tick {}", proc::start_tick(pid)?));
        }
    }
    None
}

fn value_of(environ: &[u8], name: &str) -> Option<String> {
    environ.split(|byte| *byte == 0).find_map(|entry| {
        let value = entry.strip_prefix(name.as_bytes())?.strip_prefix(b"=")?;
        Some(String::from_utf8_lossy(value).into_owned())
    })
}

fn hashed(value: &str) -> String {
    format!("{HASHED}{:016x}", fnv1a(value.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(text: &str) -> JobId {
        JobId::of(text.replace(' ', "\0").as_bytes())
    }

    fn relation(own: &str, other: &str) -> Relation {
        let plain = RunInfo { job: id(other).shown(false), ..RunInfo::default() };
        let redacted = RunInfo { job: id(other).shown(true), ..RunInfo::default() };
        assert_eq!(id(own).relation(&plain), id(own).relation(&redacted), "{own} / {other}");
        id(own).relation(&plain)
    }

    #[test]
    fn environments_without_a_job_have_an_unknown_relation() {
        assert_eq!(relation("RANK=0", "RANK=1"), Relation::Unknown);
        assert_eq!(relation("SLURM_JOB_ID=7", "RANK=1"), Relation::Unknown);
        assert_eq!(relation("SLURM_JOB_ID=", "SLURM_JOB_ID="), Relation::Unknown);
    }

    #[test]
    fn steps_and_restarts_of_a_slurm_job_are_jobs_of_their_own() {
        let step = "SLURM_JOB_ID=7 SLURM_STEP_ID=0";
        assert_eq!(relation(step, step), Relation::Same);
        assert_eq!(relation(step, "SLURM_JOB_ID=7"), Relation::Same);
        assert_eq!(relation(step, "SLURM_JOB_ID=7 SLURM_STEP_ID=1"), Relation::Other);
        assert_eq!(relation(step, "SLURM_JOB_ID=8 SLURM_STEP_ID=0"), Relation::Other);
        let again = format!("{step} SLURM_RESTART_COUNT=1");
        assert_eq!(relation(step, &again), Relation::Other);
        assert_eq!(relation(&again, &again), Relation::Same);
    }

    #[test]
    fn a_launch_of_mpi_outranks_the_scheduler() {
        let first = "PMIX_NAMESPACE=a SLURM_JOB_ID=7 SLURM_STEP_ID=3";
        assert_eq!(relation(first, "PMIX_NAMESPACE=a SLURM_JOB_ID=7"), Relation::Same);
        assert_eq!(relation(first, "PMIX_NAMESPACE=b SLURM_JOB_ID=7"), Relation::Other);
    }

    #[test]
    fn torchrun_without_a_name_is_named_by_its_launcher_or_scheduler() {
        let none = "TORCHELASTIC_RUN_ID=none";
        assert_eq!(relation(none, none), Relation::Unknown);
        assert_eq!(relation("TORCHELASTIC_RUN_ID=x", "TORCHELASTIC_RUN_ID=x"), Relation::Same);
        assert_eq!(relation("TORCHELASTIC_RUN_ID=x", none), Relation::Other);
        let (own, other) = (format!("{none} PBS_JOBID=1"), format!("{none} PBS_JOBID=2"));
        assert_eq!(relation(&own, &own), Relation::Same);
        assert_eq!(relation(&own, &other), Relation::Other);
    }

    #[test]
    fn on_one_host_the_launcher_decides() {
        let with = |launcher: &str| {
            let mut id = id("TORCHELASTIC_RUN_ID=x PBS_JOBID=1");
            id.values.insert(LAUNCHER.to_owned(), launcher.to_owned());
            id
        };
        let info =
            |host: String| RunInfo { host, job: with("a").shown(true), ..RunInfo::default() };
        let here = info(sys::host_name());
        assert_eq!(with("a").relation(&here), Relation::Same);
        assert_eq!(with("b").relation(&here), Relation::Unknown);
        assert_eq!(with("b").relation(&info("elsewhere".to_owned())), Relation::Same);
    }
}
