//! Every environment name that tprof gives to, or reads from, a process.

/// Directory of the session: its socket is `SESSION/sock`. Set by `tprof run`
/// and `tprof env`; absence makes the injected libraries inert.
pub const SESSION: &str = "TPROF_SESSION";
/// Absolute path of the `tprof` binary, started by the first attached process
/// when no collector listens in the session directory.
pub const BIN: &str = "TPROF_BIN";
/// The command of [`BIN`] that it starts, before the session's directory.
pub const COLLECT: &str = "__collect";
/// Absolute path of the run directory, for a collector started on demand.
pub const OUTPUT: &str = "TPROF_OUTPUT";
/// Host on which the session directory lives; unset when any host may make one
/// (`tprof env`). A process on this host that finds no session stays inert, a
/// process on another host starts a collector there.
pub const HOST: &str = "TPROF_HOST";
/// Options for a collector started on demand, as one JSON object.
pub const OPTIONS: &str = "TPROF_OPTIONS";
/// Prefix of every variable that configures tprof.
pub const PREFIX: &str = "TPROF_";
/// Path of the CUPTI to use, where the job's own is not found.
pub const CUPTI: &str = "TPROF_CUPTI";
/// `1` where the agent is to use CUPTI's interface for several clients.
pub const CUPTI_SUBSCRIBE: &str = "TPROF_CUPTI_SUBSCRIBE";
/// File to which the agent appends CUPTI's buffers unchanged (see `gpu::raw` in `tprof-inject`).
/// Only for work on tprof itself.
pub const CUPTI_RECORD: &str = "TPROF_CUPTI_RECORD";
/// File that gets a line when a thread walked again the first stack that it remembers, and another
/// when the first result differed. Only for work on tprof itself.
pub const TEST_STACKS: &str = "TPROF_TEST_STACKS";
/// `1` where each node of CUDA graphs is to be recorded.
pub const GRAPH_NODES: &str = "TPROF_GRAPH_NODES";
/// `1` where calls that start work come from the hooks, and CUPTI records none of these.
pub const CALLS_BY_HOOKS: &str = "TPROF_CALLS_BY_HOOKS";
/// The library that `CUDA_INJECTION64_PATH` named before tprof's took its place.
pub const NEXT_INJECTION: &str = "TPROF_NEXT_INJECTION";
/// The driver loads the library that this names, in `cuInit`.
pub const CUDA_INJECTION: &str = "CUDA_INJECTION64_PATH";
/// Every copy of NVTX loads the library that this names, at its first use.
pub const NVTX_INJECTION: &str = "NVTX_INJECTION64_PATH";
/// Every static part of ITT loads the library that this names, at its first use.
pub const ITT_COLLECTOR: &str = "INTEL_LIBITTNOTIFY64";
/// ITT loads `libittnotify.so` if one of these is set and [`ITT_COLLECTOR`] is not.
pub const ITT_GROUPS: [&str; 3] = ["INTEL_ITTNOTIFY_GROUPS", "KMP_FOR_TPROFILE", "KMP_FOR_TCHECK"];
/// NCCL loads the library that this names as its profiler plugin, with the first communicator. The
/// value is a path, the end of a name, or `none`.
pub const NCCL_PROFILER: &str = "NCCL_PROFILER_PLUGIN";
/// Names of NCCL's costly events that are to be recorded, with commas: `proxy`, `kernels`.
pub const NCCL_EVENTS: &str = "TPROF_NCCL_EVENTS";
/// File name of the CUPTI agent.
pub const AGENT_LIBRARY: &str = "libtprof_cupti.so";
/// File name of the injected library.
pub const PRELOAD_LIBRARY: &str = "libtprof_preload.so";
/// Socket inside the session directory.
pub const SOCKET_NAME: &str = "sock";

/// Variables that name a process's rank and the number of ranks, for torchrun, Open MPI, PMIx,
/// MPICH and other users of PMI, and Slurm. They are in the order in which they are trusted: each
/// launcher may start programs of those before it. `RANK` counts only beside `WORLD_SIZE`, and
/// Slurm's only inside a step.
pub const RANK_VARIABLES: [(&str, &str); 5] = [
    ("RANK", "WORLD_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMIX_RANK", "SLURM_STEP_NUM_TASKS"),
    ("PMI_RANK", "PMI_SIZE"),
    ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS"),
];
/// A worker's number on its host: torchrun's, and that of others who start workers.
pub const LOCAL_RANK: &str = "LOCAL_RANK";
/// Steps of Slurm from this number on are no steps of a user's: the batch script, a
/// container's, an interactive shell.
pub const SLURM_FIRST_OWN_STEP: u32 = 0xffff_fff0;

/// Variables that name one launch of MPI, in the order in which they are trusted:
/// OpenMPI and other users of PMIx, OpenMPI before it, HPE Cray, IBM's jsrun.
pub const MPI_JOB_VARIABLES: [&str; 4] =
    ["PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", "PALS_APID", "JSM_NAMESPACE"];
/// Variables that MPICH's and Intel's launcher gives to its ranks, and by which its
/// helper on each host is found; they name no job.
pub const HYDRA_VARIABLES: [&str; 2] = ["PMI_RANK", "PMI_FD"];
/// Variable that the same launcher gives to its ranks only; Slurm gives those above too.
pub const HYDRA_LOCAL_RANK: &str = "MPI_LOCALRANKID";
/// Name of the torchrun job, or `none` if its user gave it none.
pub const TORCH_RUN: &str = "TORCHELASTIC_RUN_ID";
/// Number of times that torchrun restarted its ranks.
pub const TORCH_RESTART: &str = "TORCHELASTIC_RESTART_COUNT";
/// The id of a Slurm job.
pub const SLURM_JOB: &str = "SLURM_JOB_ID";
/// The step of a Slurm job; see [`SLURM_JOB`].
pub const SLURM_STEP: &str = "SLURM_STEP_ID";
/// The number of times that a Slurm job was requeued; see [`SLURM_JOB`].
pub const SLURM_RESTART: &str = "SLURM_RESTART_COUNT";
/// Variables by which other schedulers name a job: Flux, PBS, LSF.
pub const SCHEDULER_JOB_VARIABLES: [&str; 3] = ["FLUX_JOB_ID", "PBS_JOBID", "LSB_JOBID"];
