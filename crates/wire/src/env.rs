//! All environment variables that tprof sets for a process or reads in one.

/// Directory of the session, whose socket is `SESSION/sock`. Set by `tprof run` and `tprof env`.
/// Without it the injected libraries do nothing.
pub const SESSION: &str = "TPROF_SESSION";
/// Absolute path of the `tprof` binary, which the first process that attaches starts if no
/// collector listens in the session directory.
pub const BIN: &str = "TPROF_BIN";
/// The command that [`BIN`] is started with; the session's directory follows.
pub const COLLECT: &str = "__collect";
/// Absolute path of the run directory, for a collector started on demand.
pub const OUTPUT: &str = "TPROF_OUTPUT";
/// Host on which the session directory is; unset if any host may make one (`tprof env`). A process
/// on this host that finds no session does nothing; a process on another host starts a collector
/// there.
pub const HOST: &str = "TPROF_HOST";
/// Options for a collector started on demand, as one JSON object.
pub const OPTIONS: &str = "TPROF_OPTIONS";
/// Prefix of every variable that configures tprof.
pub const PREFIX: &str = "TPROF_";
/// Path of the CUPTI to use if the job's own is not found.
pub const CUPTI: &str = "TPROF_CUPTI";
/// `1` if the agent is to use CUPTI's interface for several clients.
pub const CUPTI_SUBSCRIBE: &str = "TPROF_CUPTI_SUBSCRIBE";
/// File to which the agent appends CUPTI's buffers unchanged (see `gpu::raw` in `tprof-inject`).
/// Only for work on tprof itself.
pub const CUPTI_RECORD: &str = "TPROF_CUPTI_RECORD";
/// File for the results of checks of stacks: it gets a line at the first comparison of a reused
/// walk and of a guess with a whole walk, and a line at the first difference of each kind. Only for
/// work on tprof itself.
pub const TEST_STACKS: &str = "TPROF_TEST_STACKS";
/// `1` if each node of CUDA graphs is to be recorded.
pub const GRAPH_NODES: &str = "TPROF_GRAPH_NODES";
/// `1` if the hooks are to record calls that start work, and CUPTI not.
pub const CALLS_BY_HOOKS: &str = "TPROF_CALLS_BY_HOOKS";
/// The library that `CUDA_INJECTION64_PATH` named before tprof replaced it.
pub const NEXT_INJECTION: &str = "TPROF_NEXT_INJECTION";
/// Names the library that the driver loads in `cuInit`.
pub const CUDA_INJECTION: &str = "CUDA_INJECTION64_PATH";
/// Names the library that every copy of NVTX loads at its first use.
pub const NVTX_INJECTION: &str = "NVTX_INJECTION64_PATH";
/// Names the library that every static part of ITT loads at its first use.
pub const ITT_COLLECTOR: &str = "INTEL_LIBITTNOTIFY64";
/// ITT loads `libittnotify.so` if one of these is set and [`ITT_COLLECTOR`] is not.
pub const ITT_GROUPS: [&str; 3] = ["INTEL_ITTNOTIFY_GROUPS", "KMP_FOR_TPROFILE", "KMP_FOR_TCHECK"];
/// Names the library that NCCL loads as its profiler plugin, with the first communicator. The value
/// is a path, the end of a name, or `none`.
pub const NCCL_PROFILER: &str = "NCCL_PROFILER_PLUGIN";
/// Comma-separated names of NCCL's costly events that are to be recorded: `proxy`, `kernels`.
pub const NCCL_EVENTS: &str = "TPROF_NCCL_EVENTS";
/// File name of the CUPTI agent.
pub const AGENT_LIBRARY: &str = "libtprof_cupti.so";
/// File name of the injected library.
pub const PRELOAD_LIBRARY: &str = "libtprof_preload.so";
/// Socket inside the session directory.
pub const SOCKET_NAME: &str = "sock";

/// Variables with a process's rank and the number of ranks, for torchrun, Open MPI, PMIx, MPICH and
/// other users of PMI, and Slurm. They are in the order in which they are trusted, since each
/// launcher may start programs of those before it. `RANK` counts only together with `WORLD_SIZE`,
/// and Slurm's variables only inside a step.
pub const RANK_VARIABLES: [(&str, &str); 5] = [
    ("RANK", "WORLD_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMIX_RANK", "SLURM_STEP_NUM_TASKS"),
    ("PMI_RANK", "PMI_SIZE"),
    ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS"),
];
/// A worker's number on its host, set by torchrun and others that start workers.
pub const LOCAL_RANK: &str = "LOCAL_RANK";
/// Slurm steps from this number on are not started by a user: the batch script's, a container's, an
/// interactive shell's.
pub const SLURM_FIRST_OWN_STEP: u32 = 0xffff_fff0;

/// Variables that identify one launch of MPI, in the order in which they are trusted: of OpenMPI
/// and other users of PMIx, of older OpenMPI, of HPE Cray, and of IBM's jsrun.
pub const MPI_JOB_VARIABLES: [&str; 4] =
    ["PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", "PALS_APID", "JSM_NAMESPACE"];
/// Variables that MPICH's and Intel's launcher sets for its ranks, and by which its helper on each
/// host is found. They identify no job.
pub const HYDRA_VARIABLES: [&str; 2] = ["PMI_RANK", "PMI_FD"];
/// Variable that the same launcher, but not Slurm, sets for its ranks; Slurm sets those above too.
pub const HYDRA_LOCAL_RANK: &str = "MPI_LOCALRANKID";
/// Name of the torchrun job, or `none` if its user did not name it.
pub const TORCH_RUN: &str = "TORCHELASTIC_RUN_ID";
/// Number of times that torchrun restarted its ranks.
pub const TORCH_RESTART: &str = "TORCHELASTIC_RESTART_COUNT";
/// The id of a Slurm job.
pub const SLURM_JOB: &str = "SLURM_JOB_ID";
/// The step of a Slurm job; see [`SLURM_JOB`].
pub const SLURM_STEP: &str = "SLURM_STEP_ID";
/// The number of times that a Slurm job was requeued; see [`SLURM_JOB`].
pub const SLURM_RESTART: &str = "SLURM_RESTART_COUNT";
/// Variables in which other schedulers name a job: Flux, PBS, LSF.
pub const SCHEDULER_JOB_VARIABLES: [&str; 3] = ["FLUX_JOB_ID", "PBS_JOBID", "LSB_JOBID"];
