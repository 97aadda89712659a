//! The messages that the other threads of the collector send to the engine.

use super::pss::PssRound;
use crate::gpu_metrics::MetricsMessage;
use crate::machine::MachineMessage;
use crate::nvml;
use crate::output::processes::Unanswered;
use crate::shared::Region;
use crate::targets::attached::Attached;
use serde::{Deserialize, Serialize};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::Duration;
use tprof_hang::{SlowStep, Verdict};
use tprof_sampler::cpu::SamplerEvent;
use tprof_trace::run::{BlindSpot, ProcessInfo};

/// A function that lists what was not recorded of a run's processes. It runs at the end.
pub type BlindSpotFinder = Box<dyn FnOnce(&[ProcessInfo]) -> Vec<BlindSpot> + Send>;

/// A message to the engine.
pub enum Event {
    /// A process attached.
    Attached(Box<Attached>),
    /// A process that has attached adds a second region: the region of its CUPTI agent, or that of
    /// its hooks if the agent attached first.
    RegionJoined {
        /// Number of the image.
        image: u64,
        /// The region of the process.
        region: Arc<Region>,
        /// Whether the region is the agent's.
        agent: bool,
    },
    /// The collector did not answer a process in time, so the process runs unrecorded.
    Unanswered(Unanswered),
    /// The collector refused a process, because its library belongs to another version of tprof.
    Refused {
        /// Pid of the process.
        pid: u32,
        /// The library's version of the wire interface.
        version: u32,
    },
    /// A process that the collector had not answered in time has been answered now, either for its
    /// hooks or for its agent.
    Answered {
        /// Pid of the process.
        pid: u32,
        /// Whether the answer was for the agent.
        agent: bool,
    },
    /// An image has ended.
    Ended {
        /// Number of the image.
        image: u64,
        /// Time of the end, ns.
        time_ns: u64,
        /// Becomes readable once the process has been reaped, and then yields its wait status.
        pidfd: Option<OwnedFd>,
        /// Wait status of the process, if it is known already.
        status: Option<i32>,
        /// Whether the process replaced the image by an `exec`.
        exec: bool,
    },
    /// A request, and the channel for its reply.
    Control(Request, Sender<Reply>),
    /// A message of the sampler.
    Sampler(SamplerEvent),
    /// A message of the thread that reads the devices (NVML).
    Device(nvml::NvmlMessage),
    /// A message of the process that samples the devices' counters.
    GpuMetrics(MetricsMessage),
    /// A message of the thread that watches the machine for errors.
    Machine(MachineMessage),
    /// A round of proportional set sizes was read (see `pss`).
    Sizes(PssRound),
    /// The launcher started this process.
    RootStarted(u32),
    /// The launcher's process ended with this wait status.
    RootEnded(u32, i32),
    /// Continue after the command has ended, until the last process of the job has ended.
    Follow,
    /// The launcher received this signal, which asks the whole run to end.
    AskedToEnd(i32),
    /// The launcher could not record something: add this to the report of what is missing.
    AddBlindSpot(BlindSpot),
    /// Call this function at the end of the run. It lists what the launcher could not record of the
    /// run's processes.
    AddBlindSpotsAtEnd(BlindSpotFinder),
    /// Stop waiting and end the run.
    StopWaiting,
    /// End the run, but wait up to this long for descendants of the command.
    Finish(Duration),
    /// `--on-hang` has noticed that the job hangs.
    Hung(HangReport),
    /// Return the last step of each process whose steps are watched.
    WatchSteps(Sender<Vec<WatchedStep>>),
    /// `--on slow-step` has looked at a step that takes long.
    SlowStep(SlowStepReport),
    /// The server has accepted all processes that had found the socket open before its closing with
    /// this number.
    AllAccepted(u32),
}

/// A hang that was noticed.
pub struct HangReport {
    /// Why the job stands still.
    pub verdict: Verdict,
    /// Name of the file in the run directory that has all of it, if it could be written.
    pub file: Option<String>,
    /// Time for which nothing had gone on.
    pub limit: Duration,
}

/// The last step of a process, as far as `--on slow-step` needs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WatchedStep {
    /// Pid of the process.
    pub pid: u32,
    /// Number of the step.
    pub number: u64,
    /// Time since then, ns.
    pub age_ns: u64,
    /// The usual time of a step, ns.
    pub usual_ns: u64,
}

/// A slow step that was looked at.
pub struct SlowStepReport {
    /// What a rank did in it.
    pub slow: SlowStep,
    /// Name of the file in the run directory that has the stacks of all ranks, if it could be
    /// written.
    pub file: Option<String>,
}

/// Why what is kept is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DumpCause {
    /// What happened, in a sentence without a full stop.
    pub why: String,
    /// The rule of findings that tells of it, if there is one.
    pub rule: Option<&'static str>,
    /// Name of a file in the run's directory that says more.
    pub file: Option<String>,
}

impl DumpCause {
    /// Returns a cause of which neither a finding nor a file says more.
    pub fn new(why: String) -> DumpCause {
        DumpCause { why, rule: None, file: None }
    }
}

/// A request to a live run.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum Request {
    /// Begin to record.
    Start,
    /// Record this many steps of each process, from `first` on.
    Steps {
        /// Number of steps.
        count: u32,
        /// Number of the first step. With `None`, recording begins two steps after the last step
        /// that any process has begun.
        first: Option<u64>,
        /// Tells this request, which may be repeated for later steps, from those of others.
        #[serde(default)]
        asker: String,
    },
    /// Stop recording; the run goes on.
    Stop,
    /// Set a mark.
    Mark {
        /// Name of the mark.
        name: String,
    },
    /// Mark the beginning of a training step of all ranks.
    Step {
        /// Number of the step; with `None`, one more than the last step.
        number: Option<u64>,
    },
    /// Write everything that was recorded before a moment into the files, and reply only when the
    /// samples and names from before it are written too.
    Write {
        /// A time on the monotonic clock; with `None`, now.
        until_ns: Option<u64>,
    },
    /// Write what is kept into a run within the run, `dump-1`. The first request of a name begins, and
    /// the reply is [`Reply::waits`] until all is written.
    Dump {
        /// Name of the run within the run. Its directory exists.
        name: String,
        /// What happened, as the dump's note says it.
        why: String,
        /// The rule of findings that tells of it, if there is one.
        #[serde(default)]
        rule: Option<String>,
    },
    /// Return rates, losses and sizes.
    Status,
    /// Return what each rank does and waits for now.
    Where,
    /// End the job, because it hangs.
    EndJob,
}

/// The result of a request.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq)]
pub struct Reply {
    /// Whether the request was fulfilled.
    pub ok: bool,
    /// A message of one sentence.
    pub message: String,
    /// The status, for [`Request::Status`].
    pub status: Option<serde_json::Value>,
    /// Whether the request failed because the first step of [`Request::Steps`] had begun.
    #[serde(default)]
    pub late: bool,
    /// Whether the request must be repeated: [`Request::Steps`] once the job has made some steps,
    /// which are counted from now on, and [`Request::Dump`] until all is written.
    #[serde(default)]
    pub waits: bool,
}

impl Reply {
    /// Returns a reply that has only a message.
    pub fn new(ok: bool, message: String) -> Reply {
        Reply { ok, message, status: None, late: false, waits: false }
    }

    /// Returns a reply to a request that must be repeated.
    pub fn waiting(message: String) -> Reply {
        Reply { waits: true, ..Reply::new(false, message) }
    }

    /// Returns a successful reply that carries the requested data.
    pub fn with(status: serde_json::Value) -> Reply {
        Reply { status: Some(status), ..Reply::new(true, String::new()) }
    }
}
