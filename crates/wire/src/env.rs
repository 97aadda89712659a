//! The environment variables that tprof sets for a process or reads in one, with the names of a few
//! files and commands.

/// Directory of the session. Its socket is `SESSION/sock`. `tprof run` and `tprof env` set this
/// variable; without it the injected libraries do nothing.
pub const SESSION: &str = "TPROF_SESSION";
/// Absolute path of the `tprof` binary. If no collector listens in the session directory, the first
/// process that attaches starts this binary as the collector.
pub const BIN: &str = "TPROF_BIN";
/// The subcommand of [`BIN`] that runs a collector. Its argument is the session's directory.
pub const COLLECT: &str = "__collect";
/// Absolute path of the run directory, for a collector started on demand.
pub const OUTPUT: &str = "TPROF_OUTPUT";
/// The host on which the session directory is; unset if any host may make one (`tprof env`). A
/// process on this host that finds no session does nothing. A process on another host starts a
/// collector on its own host.
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
/// File for the results of checks of stacks. The hooks append a line at the first
/// comparison of a reused walk with a whole walk, at the first comparison of a guess with a whole
/// walk, and at the first difference of each kind. Only for work on tprof itself.
pub const TEST_STACKS: &str = "TPROF_TEST_STACKS";
/// `1` if the agent is to record each node of CUDA graphs.
pub const GRAPH_NODES: &str = "TPROF_GRAPH_NODES";
/// `1` if the hooks, and not CUPTI, are to record the calls that start work.
pub const CALLS_BY_HOOKS: &str = "TPROF_CALLS_BY_HOOKS";
/// Samples the instructions of kernels, with a period of 2 to the power of this number, in cycles of
/// a device's processors; unset for no samples.
pub const PC_SAMPLING: &str = "TPROF_PC_SAMPLING";
/// The library that `CUDA_INJECTION64_PATH` named before tprof replaced it.
pub const NEXT_INJECTION: &str = "TPROF_NEXT_INJECTION";
/// Names the library that the driver loads in `cuInit`.
pub const CUDA_INJECTION: &str = "CUDA_INJECTION64_PATH";
/// Names the library that every copy of NVTX loads at its first use.
pub const NVTX_INJECTION: &str = "NVTX_INJECTION64_PATH";
/// Names the library that each copy of ITT's static part loads at its first use.
pub const ITT_COLLECTOR: &str = "INTEL_LIBITTNOTIFY64";
/// ITT loads `libittnotify.so` if one of these is set and [`ITT_COLLECTOR`] isn't.
pub const ITT_GROUPS: [&str; 3] = ["INTEL_ITTNOTIFY_GROUPS", "KMP_FOR_TPROFILE", "KMP_FOR_TCHECK"];
/// Names the library that NCCL loads as its profiler plugin with the first communicator. The value
/// is a path, the end of a library's name, or `none`.
pub const NCCL_PROFILER: &str = "NCCL_PROFILER_PLUGIN";
/// How much NCCL logs.
pub const NCCL_DEBUG: &str = "NCCL_DEBUG";
/// The file into which NCCL logs, where `%h` is the host and `%p` the process.
pub const NCCL_DEBUG_FILE: &str = "NCCL_DEBUG_FILE";
/// Comma-separated names of NCCL events to record although recording them is costly: `proxy`,
/// `kernels`.
pub const NCCL_EVENTS: &str = "TPROF_NCCL_EVENTS";
/// File name of the CUPTI agent.
pub const AGENT_LIBRARY: &str = "libtprof_cupti.so";
/// File name of the injected library.
pub const PRELOAD_LIBRARY: &str = "libtprof_preload.so";
/// Socket inside the session directory.
pub const SOCKET_NAME: &str = "sock";

/// Pairs of variables with a process's rank and the number of ranks: of torchrun, Open MPI, PMIx,
/// MPICH and other users of PMI, and Slurm. A launcher may start launchers that come before it in
/// this list, so the first pair that is set wins. `RANK` counts only together with `WORLD_SIZE`,
/// and Slurm's variables only inside a step.
pub const RANK_VARIABLES: [(&str, &str); 5] = [
    ("RANK", "WORLD_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMIX_RANK", "SLURM_STEP_NUM_TASKS"),
    ("PMI_RANK", "PMI_SIZE"),
    ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS"),
];
/// A worker's number on its host. torchrun and other launchers set it.
pub const LOCAL_RANK: &str = "LOCAL_RANK";
/// Slurm steps with this number or a higher one are not started by a user: they are those of the
/// batch script, a container, or an interactive shell.
pub const SLURM_FIRST_OWN_STEP: u32 = 0xffff_fff0;

/// Variables that identify one launch of MPI, the most trusted first: those of Open MPI and other
/// users of PMIx, of older Open MPI, of HPE Cray, and of IBM's jsrun.
pub const MPI_JOB_VARIABLES: [&str; 4] =
    ["PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", "PALS_APID", "JSM_NAMESPACE"];
/// Variables that the launcher of MPICH and Intel MPI (Hydra) sets for its ranks. They identify no
/// job, but show which ancestor is the launcher's helper on this host.
pub const HYDRA_VARIABLES: [&str; 2] = ["PMI_RANK", "PMI_FD"];
/// Variable that Hydra sets for its ranks, but Slurm doesn't. Slurm also sets [`HYDRA_VARIABLES`].
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
