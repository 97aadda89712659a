//! The messages that the engine gets from all other threads of the collector.

use super::pss::PssRound;
use crate::cpu::SamplerEvent;
use crate::nvml;
use crate::out::processes::Unanswered;
use crate::shared::Region;
use crate::targets::attached::Attached;
use serde::{Deserialize, Serialize};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::Duration;
use tprof_trace::run::{BlindSpot, ProcessInfo};

/// A function that finds by a run's processes what was not recorded.
pub type BlindSpotFinder = Box<dyn FnOnce(&[ProcessInfo]) -> Vec<BlindSpot> + Send>;

/// A message to the engine.
pub enum Event {
    /// A process attached.
    Attached(Box<Attached>),
    /// The CUPTI agent of an attached process brings its own region, or its hooks do where the
    /// agent was first.
    JoinCall {
        /// Number of the image.
        image: u64,
        /// The shared memory.
        region: Arc<Region>,
        /// Whether it is the agent's.
        agent: bool,
    },
    /// A process was not answered in time.
    Unanswered(Unanswered),
    /// A process's library is of another tprof, with that version of the interface.
    Refused {
        /// Pid of the process.
        pid: u32,
        /// Version of the wire that it has.
        version: u32,
    },
    /// Now it is: by its hooks, or by its agent.
    Answered {
        /// Pid of the process.
        pid: u32,
        /// Whether it is the agent.
        agent: bool,
    },
    /// An image is over.
    Ended {
        /// Number of the image.
        image: u64,
        /// Time of the end, ns.
        time_ns: u64,
        /// Sends the status later, once the process was reaped.
        pidfd: Option<OwnedFd>,
        /// Its wait status.
        status: Option<i32>,
        /// Replaced by another image.
        exec: bool,
    },
    /// A request and where its reply goes.
    Control(Request, Sender<Reply>),
    /// Something from the sampler.
    Sampler(SamplerEvent),
    /// Something from the sampler of devices.
    Device(nvml::NvmlMessage),
    /// Proportional set sizes were read.
    Sizes(PssRound),
    /// The launcher started this process.
    RootStarted(u32),
    /// The launcher's process ended with this wait status.
    RootEnded(u32, i32),
    /// Stay until the last process of the job has ended.
    Follow,
    /// The launcher was asked to end, by this signal.
    AskedToEnd(i32),
    /// Something that the launcher could not record.
    AddBlindSpot(BlindSpot),
    /// A function that finds at the end, by the run's processes, what the launcher could not
    /// record.
    AddBlindSpotsAtEnd(BlindSpotFinder),
    /// Do not wait any longer.
    StopWaiting,
    /// Finish: wait for descendants that long.
    Finish(Duration),
    /// All processes were served that had found the socket open before this closing of it.
    AllAccepted(u32),
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
        /// Number of the first step; `None` for two after the last one that any process has begun.
        first: Option<u64>,
    },
    /// Stop recording; the run goes on.
    Stop,
    /// Set a mark.
    Mark {
        /// Name of the mark.
        name: String,
    },
    /// A training step begins, of all ranks.
    Step {
        /// Number of the step; without one, the number after the last.
        number: Option<u64>,
    },
    /// Write everything known at this moment into the files.
    Snapshot,
    /// Write everything recorded until a moment into the files, including what is on its way.
    Write {
        /// A time on the monotonic clock; `None` is now.
        until_ns: Option<u64>,
    },
    /// Rates, loss, size.
    Status,
}

/// The result of a request.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq)]
pub struct Reply {
    /// Whether it was done.
    pub ok: bool,
    /// Message of one sentence.
    pub message: String,
    /// The status, for [`Request::Status`].
    pub status: Option<serde_json::Value>,
    /// Whether it was not done because the first step of [`Request::Steps`] had begun.
    #[serde(default)]
    pub late: bool,
}

impl Reply {
    /// A reply to a request that has no result to show.
    pub fn new(ok: bool, message: String) -> Reply {
        Reply { ok, message, status: None, late: false }
    }

    /// A reply that carries what was asked for.
    pub fn with(status: serde_json::Value) -> Reply {
        Reply { ok: true, message: String::new(), status: Some(status), late: false }
    }
}
