//! Identifies the job that a collector belongs to, by the variables that launchers set for their
//! ranks. Several `tprof run` may share a run directory only if they belong to one job.
//!
//! `run.json` stores the identity under `job`. A rank that starts later compares that with its own.

use std::collections::BTreeMap;
use tprof_os::proc;
use tprof_os::sys;
use tprof_trace::run::RunInfo;
use tprof_wire::env::{
    HYDRA_VARIABLES, MPI_JOB_VARIABLES, SCHEDULER_JOB_VARIABLES, SLURM_JOB, SLURM_RESTART,
    SLURM_STEP, TORCH_RESTART, TORCH_RUN,
};
use tprof_wire::hash::fnv1a;

/// Key for the pid and the start time of the process that started this host's ranks.
const LAUNCHER: &str = "launcher";
/// The value of torchrun's variable if its user named no run.
const NO_TORCH_RUN: &str = "none";
/// First character of a value that `--redact` has replaced by its hash.
const HASHED: char = '#';
/// Number of ancestors that are searched for the launcher. No real process tree is that deep.
const MAX_ANCESTORS: usize = 64;

/// Whether two collectors belong to the same job, judged by their environments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Relation {
    /// They belong to the same job.
    Same,
    /// They belong to different jobs.
    Other,
    /// The environments don't tell.
    Unknown,
}

/// The variables that identify a job.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JobId {
    values: BTreeMap<String, String>,
    restarted: bool,
}

impl JobId {
    /// Returns the identity of the job that this process belongs to.
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

    /// Returns the identity in an environment, whose entries are separated by NUL.
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

    /// Whether an elastic launcher has restarted these ranks because some had failed.
    pub fn is_restarted(&self) -> bool {
        self.restarted
    }

    /// Returns the identity as `run.json` stores it.
    pub fn shown(&self, redact: bool) -> BTreeMap<String, String> {
        let shown = |(name, value): (&String, &String)| match redact && name != LAUNCHER {
            true => (name.clone(), hashed(value)),
            false => (name.clone(), value.clone()),
        };
        self.values.iter().map(shown).collect()
    }

    /// Returns whether this collector belongs to the same job as the one that wrote `theirs`.
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
        // A user may name two runs of torchrun alike, so on one host the launcher decides.
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
            // A rank that mpirun starts on its own host has no Slurm step, so a missing step is no
            // difference.
            return by(job && restarts && same(SLURM_STEP).unwrap_or(true));
        }
        let scheduler = SCHEDULER_JOB_VARIABLES.iter().find_map(|name| same(name));
        scheduler.map_or(Relation::Unknown, by)
    }
}

/// Returns pid and start time of the launcher. The launcher sets `variable` for its ranks but not
/// for itself, so it is the nearest ancestor whose environment lacks the variable or can't be read.
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
    fn steps_and_restarts_of_a_slurm_job_count_as_different_jobs() {
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
    fn mpis_job_decides_before_that_of_the_scheduler() {
        let first = "PMIX_NAMESPACE=a SLURM_JOB_ID=7 SLURM_STEP_ID=3";
        assert_eq!(relation(first, "PMIX_NAMESPACE=a SLURM_JOB_ID=7"), Relation::Same);
        assert_eq!(relation(first, "PMIX_NAMESPACE=b SLURM_JOB_ID=7"), Relation::Other);
    }

    #[test]
    fn an_unnamed_torchrun_is_identified_by_launcher_or_scheduler() {
        let none = "TORCHELASTIC_RUN_ID=none";
        assert_eq!(relation(none, none), Relation::Unknown);
        assert_eq!(relation("TORCHELASTIC_RUN_ID=x", "TORCHELASTIC_RUN_ID=x"), Relation::Same);
        assert_eq!(relation("TORCHELASTIC_RUN_ID=x", none), Relation::Other);
        let (own, other) = (format!("{none} PBS_JOBID=1"), format!("{none} PBS_JOBID=2"));
        assert_eq!(relation(&own, &own), Relation::Same);
        assert_eq!(relation(&own, &other), Relation::Other);
    }

    #[test]
    fn on_one_host_the_launchers_process_decides() {
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
