//! Determines the rank of a process from the variables that launchers set in its environment.

use tprof_os::proc;
use tprof_os::variables::Variables;
use tprof_wire::env::{
    HYDRA_LOCAL_RANK, LOCAL_RANK, MPI_JOB_VARIABLES, RANK_VARIABLES, SLURM_FIRST_OWN_STEP,
    SLURM_JOB, SLURM_STEP, TORCH_RESTART, TORCH_RUN,
};
use tprof_wire::hash::fnv1a;

/// A rank as an environment names it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rank {
    /// Number of the rank, from 0.
    pub number: u32,
    /// Number of ranks that the same launcher started, if the launcher tells that.
    pub size: Option<u32>,
    /// Index of the rank's variable in [`RANK_VARIABLES`]. The lower the index, the more the
    /// variable is trusted.
    source: usize,
    /// Hash of the name of the launch, if the launch has a name.
    pub launch: Option<u64>,
    /// Number of times that an elastic launcher has restarted the rank.
    pub restarts: u32,
    /// Whether `LOCAL_RANK` is set.
    is_worker: bool,
    /// Whether torchrun started the rank.
    is_elastic: bool,
    /// Whether MPICH's launcher (Hydra) started the rank.
    is_hydra: bool,
}

impl Rank {
    /// Returns the rank of a process, from the environment that it began with.
    pub fn of_process(pid: u32) -> Option<Rank> {
        Rank::of(&Variables::of(&proc::environment_of(pid)))
    }

    /// Returns the rank that an environment names.
    pub fn of(environ: &Variables<'_>) -> Option<Rank> {
        let value = |name: &str| {
            environ.values(name).find_map(|value| {
                std::str::from_utf8(value).ok().map(str::trim).filter(|text| !text.is_empty())
            })
        };
        let number = |name: &str| value(name).and_then(|text| text.parse::<u32>().ok());
        // Slurm sets a task's number for a batch script too, although the script isn't a task.
        let step = number(SLURM_STEP).filter(|step| *step < SLURM_FIRST_OWN_STEP);
        let of = |source: usize| {
            let (rank, size) = RANK_VARIABLES[source];
            let counts = match rank {
                "RANK" => value(size).is_some(),
                "SLURM_PROCID" => step.is_some(),
                _ => true,
            };
            number(rank).filter(|_| counts)
        };
        let (source, rank) = (0..RANK_VARIABLES.len()).find_map(|at| Some((at, of(at)?)))?;
        let size = match RANK_VARIABLES[source] {
            // Slurm's size counts only Slurm's own tasks, so it is used only if their rank is the
            // same.
            ("PMIX_RANK", size) => number(size).filter(|_| of(4) == Some(rank)),
            (_, size) => number(size),
        };
        let launch = match RANK_VARIABLES[source].0 {
            "RANK" => value(TORCH_RUN).filter(|run| *run != "none").map(str::to_owned),
            "SLURM_PROCID" => value(SLURM_JOB).zip(step).map(|(job, step)| format!("{job}.{step}")),
            "PMI_RANK" => None,
            _ => MPI_JOB_VARIABLES.iter().find_map(|name| value(name)).map(str::to_owned),
        };
        Some(Rank {
            number: rank,
            size: size.filter(|size| *size > rank),
            source,
            launch: launch.map(|text| fnv1a(text.as_bytes())),
            restarts: if source == 0 { number(TORCH_RESTART).unwrap_or(0) } else { 0 },
            is_worker: value(LOCAL_RANK).is_some(),
            is_elastic: value(TORCH_RUN).is_some(),
            is_hydra: value(HYDRA_LOCAL_RANK).is_some(),
        })
    }

    /// Whether an ancestor with the rank `other` only launched this rank. It did not if both are
    /// the same rank under different variables. That is so when a script below `mpirun` or `srun`
    /// sets PyTorch's variables.
    pub fn is_launched_by(&self, other: &Rank) -> bool {
        let differs = (self.number, self.size) != (other.number, other.size);
        let by_torch = self.is_elastic && !other.is_elastic;
        let by_workers = self.is_worker && !other.is_worker && differs;
        let by_trust = self.source < other.source && (self.source > 0 || differs);
        // Under Slurm, Hydra's proxies are tasks of srun, so they have ranks through PMI too.
        let by_hydra = self.is_hydra && !other.is_hydra;
        by_torch || by_workers || by_trust || by_hydra
    }

    /// Whether both are the same rank of the same launch, as far as launches have names.
    pub fn is_same(&self, other: &Rank) -> bool {
        let one = |a: Option<u64>, b: Option<u64>| a.zip(b).is_none_or(|(a, b)| a == b);
        self.number == other.number
            && self.restarts == other.restarts
            && one(self.launch, other.launch)
    }

    /// Returns the variable that names the rank, and its number. Two collectors of one job have the
    /// same text only if both record the same rank.
    pub fn named(&self) -> String {
        format!("{}={}", RANK_VARIABLES[self.source].0, self.number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Option<Rank> {
        Rank::of(&Variables::of(text.replace(' ', "\0").as_bytes()))
    }

    fn number(text: &str) -> Option<u32> {
        of(text).map(|rank| rank.number)
    }

    fn size(text: &str) -> Option<u32> {
        of(text)?.size
    }

    #[test]
    fn variables_are_trusted_in_order() {
        assert_eq!(number("PATH=/bin"), None);
        assert_eq!(number("RANK=3"), None, "RANK alone may mean anything");
        assert_eq!(number("RANK=3 WORLD_SIZE=8 SLURM_PROCID=0 SLURM_STEP_ID=0"), Some(3));
        assert_eq!(number("SLURM_PROCID=5 PMI_RANK=4"), Some(4));
        assert_eq!(number("OMPI_COMM_WORLD_RANK=1 PMIX_RANK=9"), Some(1));
        assert_eq!(number("RANK=x WORLD_SIZE=8 PMI_RANK=2"), Some(2));
    }

    #[test]
    fn batch_scripts_and_interactive_shells_of_slurm_have_no_rank() {
        assert_eq!(number("SLURM_JOB_ID=7 SLURM_PROCID=0"), None);
        assert_eq!(number("SLURM_PROCID=0 SLURM_STEP_ID=4294967290"), None);
        assert_eq!(number("SLURM_PROCID=0 SLURM_STEP_ID=4294967291"), None);
        assert_eq!(number("SLURM_PROCID=0 SLURM_STEP_ID=0"), Some(0));
    }

    #[test]
    fn the_number_of_ranks_comes_from_the_launcher_of_the_rank() {
        let step = "SLURM_STEP_ID=0 SLURM_PROCID=1 SLURM_STEP_NUM_TASKS=2";
        assert_eq!(size(step), Some(2));
        assert_eq!(size(&format!("{step} OMPI_COMM_WORLD_RANK=3 OMPI_COMM_WORLD_SIZE=4")), Some(4));
        assert_eq!(size(&format!("{step} PMIX_RANK=1")), Some(2));
        assert_eq!(size(&format!("{step} PMIX_RANK=3")), None);
        assert_eq!(size("PMI_RANK=1 PMI_SIZE=1"), None, "rank 1 of 1 is impossible");
    }

    #[test]
    fn a_process_whose_children_have_more_trusted_ranks_is_a_launcher() {
        let task = of("SLURM_PROCID=0 SLURM_STEP_ID=0 SLURM_STEP_NUM_TASKS=2").unwrap();
        let below = |text: &str| of(text).unwrap().is_launched_by(&task);
        assert!(below("OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=2"));
        assert!(below("PMI_RANK=0 PMI_SIZE=4"));
        assert!(below("RANK=1 WORLD_SIZE=4 LOCAL_RANK=1"));
        assert!(below("RANK=0 WORLD_SIZE=2 LOCAL_RANK=0 TORCHELASTIC_RUN_ID=none"));
        let proxy = of("PMI_RANK=1 PMI_SIZE=2 SLURM_STEP_ID=0 SLURM_PROCID=1").unwrap();
        let hydra = "MPI_LOCALRANKID=0";
        assert!(of(&format!("PMI_RANK=1 PMI_SIZE=4 {hydra}")).unwrap().is_launched_by(&proxy));
        assert!(!of("PMI_RANK=1 PMI_SIZE=2").unwrap().is_launched_by(&proxy));
        // These are the rank's own workers, because the rank has PyTorch's variables with the same
        // number.
        assert!(!below("RANK=0 WORLD_SIZE=2 LOCAL_RANK=0"));
        // This is an agent in a Kubernetes job, whose rank is the number of a node.
        let node = of("RANK=0 WORLD_SIZE=2").unwrap();
        assert!(of("RANK=1 WORLD_SIZE=4 LOCAL_RANK=1").unwrap().is_launched_by(&node));
    }

    #[test]
    fn launches_and_restarts_are_distinguished() {
        let first = of("OMPI_COMM_WORLD_RANK=0 PMIX_NAMESPACE=a").unwrap();
        assert!(!first.is_same(&of("OMPI_COMM_WORLD_RANK=0 PMIX_NAMESPACE=b").unwrap()));
        assert!(first.is_same(&of("OMPI_COMM_WORLD_RANK=0").unwrap()));
        let worker = "RANK=0 WORLD_SIZE=2 TORCHELASTIC_RUN_ID=x TORCHELASTIC_RESTART_COUNT=";
        let started = |count: u32| of(&format!("{worker}{count}")).unwrap();
        assert!(started(0).is_same(&started(0)) && !started(0).is_same(&started(1)));
    }
}
