//! What a collector gathers of its ranks at one moment. Times are ages, so that the states of hosts
//! with different clocks can be compared.

use serde::{Deserialize, Serialize};

/// The ranks that one collector records.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct HostState {
    /// Name of the host.
    pub host: String,
    /// States of its ranks.
    pub ranks: Vec<RankState>,
    /// Pids of all processes of the job on the host that record.
    pub processes: Vec<u32>,
    /// Pid of the job's command, if tprof started it.
    pub root: Option<u32>,
}

/// What is known of one rank.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RankState {
    /// Number of the rank; 0 in a job without ranks.
    pub rank: u32,
    /// Name of the host.
    pub host: String,
    /// Pid of the process that runs the rank's steps.
    pub pid: u32,
    /// Pids of all processes of the rank that record.
    pub processes: Vec<u32>,
    /// How the rank ended; `None` while one of its processes runs.
    pub end: Option<RankEnd>,
    /// Its last step; `None` if no step was recorded.
    pub step: Option<StepState>,
    /// The groups in which it communicates.
    pub groups: Vec<GroupState>,
    /// The last kernel that a hooked call launched; `None` if none was recorded.
    pub launch: Option<LaunchState>,
    /// Streams with kernels that were launched a while ago and whose end was not recorded, the one
    /// with the oldest first; `None` if CUPTI doesn't tell.
    #[serde(default)]
    pub streams: Option<Vec<StreamState>>,
    /// Time since the last hooked call that gave a device work, ns; `None` if none was recorded.
    pub work_age_ns: Option<u64>,
    /// CPU time that the process used between the two readings, as a share of the time between
    /// them; `None` if it was not read.
    pub cpu_share: Option<f64>,
    /// Whether its steps or operations between ranks went on between the two readings.
    pub goes_on: bool,
    /// Time since it was last seen to do something, ns: to go on, compute, launch, read or write.
    /// Waiting for others by spinning is not computing. `None` if nobody has watched.
    pub idle_ns: Option<u64>,
    /// Bytes that it read or wrote between the two readings; `None` if they may not be read.
    pub transferred_bytes: Option<u64>,
    /// Hooked calls of its threads that have begun and not returned.
    pub calls: Vec<CallState>,
    /// Threads of the process, its main thread first.
    pub threads: Vec<ThreadState>,
    /// Number of further threads that were not read.
    pub unread_threads: u64,
    /// The file that this was read from; `None` if a collector tells what the rank does now. A dump
    /// has only operations, and the stacks from which they were called: the one thread has the stack
    /// of the operation that is open, or of the last one. It has no host, pid and step.
    #[serde(default)]
    pub dump: Option<DumpFile>,
}

/// A dump of a rank's operations, as PyTorch's Flight Recorder writes it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DumpFile {
    /// Name of the file.
    pub file: String,
    /// When the file was last changed, ns since 1970; `None` if unknown.
    pub time_unix_ns: Option<u64>,
}

/// How a rank ended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RankEnd {
    /// Exit status, if it exited and the status is known.
    pub status: Option<i32>,
    /// Number of the signal that ended it.
    pub signal: Option<i32>,
    /// Time since then, ns.
    pub age_ns: u64,
}

/// The last step of a rank.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepState {
    /// Number of the step, as its source counts them.
    pub number: u64,
    /// Time since it ended, or since it began if the program marks beginnings, ns.
    pub age_ns: u64,
    /// Median time from one step to the next, ns; `None` with too few steps.
    pub usual_ns: Option<u64>,
}

/// A kernel that was launched. Whether it has ended is unknown.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LaunchState {
    /// Its name; empty if unknown.
    pub kernel: String,
    /// Time since the launch, ns.
    pub age_ns: u64,
}

/// A stream with kernels that were launched and whose end was not recorded. All but the oldest wait
/// for another one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamState {
    /// Handle of the stream, as CUDA has it: 1 is the default stream, 2 that of each thread. `None` if
    /// unknown.
    pub stream: Option<u64>,
    /// Number of these kernels.
    pub kernels: u64,
    /// The oldest of them.
    pub oldest: LaunchState,
}

/// A hooked call that has not returned, and may wait.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallState {
    /// Tid of the thread.
    pub tid: u32,
    /// Name of the function.
    pub function: String,
    /// Time since the call began, ns.
    pub age_ns: u64,
}

/// A library for operations between ranks.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize,
)]
#[serde(rename_all = "lowercase")]
pub enum Backend {
    /// NCCL or RCCL. Its operations are put on a stream, so calls return early.
    #[default]
    Nccl,
    /// gloo and MPI below PyTorch.
    Torch,
    /// Calls of MPI.
    Mpi,
}

/// What a rank has done in one group of ranks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupState {
    /// Library whose operations these are.
    pub backend: Backend,
    /// Identity of the group, the same in all of its ranks. `None` if the library doesn't tell:
    /// then this is the sum over all groups.
    pub id: Option<String>,
    /// Number of ranks in the group.
    pub size: Option<u32>,
    /// Number of operations that the rank has entered so far, or one more than the number of the
    /// last one, if the library counts from another number than 0.
    pub entered: u64,
    /// Number of operations that are over; `None` if that can't be known.
    pub finished: Option<u64>,
    /// The last operations, the newest last.
    pub recent: Vec<Operation>,
    /// Ranks of the group of which there is no dump.
    #[serde(default)]
    pub without_dump: Vec<u32>,
}

/// An operation between ranks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Operation {
    /// Its number in the group's order, from 0.
    pub number: u64,
    /// Its name, such as `all_reduce`.
    pub name: String,
    /// Bytes, if known.
    pub bytes: Option<u64>,
    /// Time since the rank entered it, or, if it is over and its beginning isn't known, since it
    /// was over, ns.
    pub age_ns: u64,
    /// Whether it is known to be over.
    pub is_over: bool,
    /// Types and sizes of its tensors, as far as they must be the same in all ranks: `Float [8, 4]`.
    /// `None` if unknown or if none must be.
    #[serde(default)]
    pub tensors: Option<String>,
    /// Whether the device has begun it; `None` if unknown.
    #[serde(default)]
    pub has_begun: Option<bool>,
    /// The frame that names the line that called it, if known.
    #[serde(default)]
    pub place: Option<FrameState>,
}

/// What a thread does.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ThreadState {
    /// Tid of the thread.
    pub tid: u32,
    /// Name of the thread, as the kernel has it.
    pub name: String,
    /// The kernel's letter for its state.
    pub state: char,
    /// What it waits for; `None` while it runs.
    pub wait: Option<Wait>,
    /// Whether it holds Python's lock, if that is known.
    pub gil: Option<bool>,
    /// Its frames, innermost first.
    pub frames: Vec<FrameState>,
    /// Whether its outermost frames are missing.
    pub is_cut: bool,
}

/// What a thread waits for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wait {
    /// The kind of wait.
    pub kind: WaitKind,
    /// The file, peer or kernel's function, if known.
    pub on: Option<String>,
    /// Tid of the thread that holds the lock, if known.
    pub holder: Option<u32>,
}

/// Kinds of waits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum WaitKind {
    /// For a lock or a condition.
    Lock,
    /// For Python's lock.
    Gil,
    /// For a file, a pipe or the network.
    Io,
    /// For one of several events.
    Poll,
    /// For a time.
    Sleep,
    /// For a device.
    Device,
    /// For something else.
    #[default]
    Other,
}

/// A frame of a stack.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct FrameState {
    /// The function; empty if unknown.
    pub function: String,
    /// Source file; empty if unknown.
    pub file: String,
    /// Line; 0 if unknown.
    pub line: u32,
    /// Path of the module; empty for Python.
    pub module: String,
    /// The layer of its code.
    pub layer: Layer,
}

/// The layer of software that a frame belongs to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Layer {
    /// A function of compiled code.
    #[default]
    Native,
    /// A function of Python.
    Python,
}

/// What changes when a rank goes on: its step, and the numbers of its operations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    step: Option<u64>,
    entered: u64,
    finished: u64,
}

impl RankState {
    /// Returns how far the rank has come.
    pub fn progress(&self) -> Progress {
        let sum = |of: fn(&GroupState) -> u64| self.groups.iter().map(of).sum();
        Progress {
            step: self.step.as_ref().map(|step| step.number),
            entered: sum(|group| group.entered),
            finished: sum(|group| group.finished.unwrap_or(0)),
        }
    }

    /// The thread that runs the steps: the main thread.
    pub fn driving(&self) -> Option<&ThreadState> {
        self.threads.first()
    }

    /// Time since the last sign of progress: a step, or an operation between ranks that the rank
    /// entered or left, ns. `None` if none was recorded.
    pub fn quiet_ns(&self) -> Option<u64> {
        let operations = self.groups.iter().flat_map(|group| &group.recent);
        let ages = operations.map(|operation| operation.age_ns);
        ages.chain(self.step.as_ref().map(|step| step.age_ns)).min()
    }

    /// Whether a signal has stopped the process.
    pub fn is_stopped(&self) -> bool {
        self.driving().is_some_and(|thread| matches!(thread.state, 'T' | 't'))
    }
}
