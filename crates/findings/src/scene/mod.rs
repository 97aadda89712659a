//! Prepares the input of every rule: a rank's time, judged over its steps.
//!
//! A rule's bound follows from the work that remains after a fix. The device still has to do its
//! other work, and a host thread its own work, so no step gets shorter than either.
//! `docs/metrics.md` explains the bound of each rule.

mod copies;
mod main_threads;
mod places;
mod ranges;
mod requests;
mod sampled_calls;
mod sampled_loading;
mod search;
mod time_by_cause;

use std::sync::OnceLock;

use tprof_document::Machine;
use tprof_facts::Clock;
use tprof_facts::labels::base_name;
use tprof_metrics::files::JudgedFiles;
use tprof_metrics::gpu::device_memory::{DeviceBlock, Retry, blocks};
use tprof_metrics::gpu::gpu_time::beginning::RecordingStart;
use tprof_metrics::host::RankHost;
use tprof_metrics::program::flops::Modelled;
use tprof_rank::base::intervals::{Cover, Interval};
use tprof_rank::base::parallel;
use tprof_rank::{RankTrace, judged_window, of_devices, steps_of_one_process};
use tprof_trace::model::{FileCalls, Module, Sample, SpanKind};

pub(super) use copies::Copy;
use main_threads::MainThreads;
pub(super) use places::moment_of_call;
use ranges::NamedRange;
use sampled_loading::SampledLoading;
use time_by_cause::TimeByCause;
pub(super) use tprof_metrics::gpu::gpu_time::Gap;
pub(super) use tprof_rank::call_names as calls;

/// The lower bound of the length from which idle times are judged one by one; for short steps.
const LEAST_GAP_NS: u64 = 1_000_000;
/// The upper bound of the length from which idle times are judged one by one; for long steps. It is
/// the default of the rule "GPU gaps" of Nsight Systems.
const MOST_GAP_NS: u64 = 500_000_000;

/// A rank, ready to be judged by rules.
pub(super) struct Scene<'a> {
    /// The rank's rows in memory.
    pub rank: &'a RankTrace<'a>,
    /// Converts the rank's times to times since the run began.
    pub clock: Clock,
    /// The machine that the rank ran on; its fields are `None` unless the caller sets them.
    pub machine: Machine,
    /// Number of steps in the window; 0 if none were recorded.
    pub steps: usize,
    /// The steps after the first one.
    pub later_steps: Vec<Interval>,
    /// The judged time. It consists of the time of each step on each device. Without steps, it
    /// lasts from the first to the last work. Without a device, it is the life of the job.
    pub window: Cover,
    /// Time in the window that counts neither as busy nor as idle, ns: a device may have run work
    /// that was launched before the recording.
    pub unknown_ns: u64,
    /// Time in the window in which a kernel computes.
    pub compute: Cover,
    /// Time in the window in which a kernel communicates.
    pub communication: Cover,
    /// Time in which no device of the rank does anything; the whole window if there is no device.
    pub idle: Cover,
    /// The part of `idle` in which a device waits for the host to launch something; all of `idle`
    /// if there is no device.
    pub late: Cover,
    /// The parts of the idle time, each with the work that ended it.
    pub gaps: Vec<Gap>,
    /// The threads that drive the job.
    pub main_threads: MainThreads,
    /// All recorded copies and memsets, with their calls, in order of start.
    pub copy_rows: Vec<Copy>,
    /// For each piece of work, the length of its part within the window, ns.
    pub work_in_window_ns: Vec<u64>,
    /// Whether the caller needs no texts on evidence and places, so that rules can skip slow ones.
    pub is_brief: bool,
    /// Named ranges and operators, without steps, in nesting order; computed when a rule first
    /// asks.
    ranges: OnceLock<Vec<NamedRange>>,
    /// Samples in PyTorch's DataLoader; computed when a rule first asks.
    sampled_loading: OnceLock<SampledLoading>,
    /// The devices' time by cause; computed when a rule first asks.
    time_by_cause: OnceLock<TimeByCause>,
    /// Runs of operators, each with the least time that it needs; computed when a rule first asks.
    modelled: OnceLock<Modelled>,
    /// The blocks of device memory; computed when a rule first asks.
    blocks: OnceLock<Vec<DeviceBlock>>,
    /// The requests for device memory that were made again; computed when a rule first asks.
    retries: OnceLock<Vec<Retry>>,
    /// The driving thread's wall time; computed when a rule first asks.
    host: OnceLock<Option<RankHost>>,
    /// Calls on files; computed when a rule first asks.
    files: OnceLock<Option<JudgedFiles>>,
}

impl<'a> Scene<'a> {
    /// Prepares a rank for the rules.
    pub fn of(rank: &'a RankTrace<'a>, clock: Clock) -> Scene<'a> {
        let steps = steps_of_one_process(rank);
        // If a sampled job has neither steps nor device work, judge only the time after start-up.
        // Otherwise, a long start-up would make everything else look small.
        let is_sampled = rank.file.row_count::<Sample>() > 0;
        let host =
            (is_sampled && steps.is_empty() && rank.work.is_empty()).then(|| RankHost::of(rank));
        let window = match &host {
            Some(Some(host)) => Cover::of([host.life.window]),
            _ => judged_window(rank, &steps),
        };
        let of_time = || {
            let idle = window.without(&of_devices(rank, |busy| &busy.any));
            let work = rank.all_work();
            let gaps = Gap::all(rank, &idle, &work);
            let unknown = RecordingStart::of(rank).unknown(rank, &gaps, &work);
            let (idle, gaps) = match unknown.is_empty() {
                true => (idle, gaps),
                false => {
                    let idle = idle.without(&unknown);
                    let gaps = Gap::all(rank, &idle, &work);
                    (idle, gaps)
                }
            };
            let late = Cover::of(gaps.iter().map(Gap::late));
            (unknown.length(), idle, gaps, late)
        };
        let of_work = || {
            let measure = window.measure();
            let mut walk = measure.walk();
            let within = rank.work.iter().map(|work| walk.within(work.interval()));
            let work_in_window_ns: Vec<u64> = within.collect();
            let compute = of_devices(rank, |busy| &busy.compute).intersection(&window);
            let communication = of_devices(rank, |busy| &busy.communication).intersection(&window);
            let main_threads = MainThreads::of(rank, &steps);
            (work_in_window_ns, compute, communication, main_threads, copies::all(rank))
        };
        let ((unknown_ns, idle, gaps, late), of_work) =
            parallel::both(rank.cores, of_time, of_work);
        let (work_in_window_ns, compute, communication, main_threads, copy_rows) = of_work;
        Scene {
            clock,
            machine: Machine::default(),
            steps: steps.len(),
            later_steps: steps.iter().skip(1).map(|step| step.interval).collect(),
            window,
            unknown_ns,
            compute,
            communication,
            idle,
            late,
            gaps,
            main_threads,
            copy_rows,
            work_in_window_ns,
            is_brief: false,
            ranges: OnceLock::new(),
            sampled_loading: OnceLock::new(),
            time_by_cause: OnceLock::new(),
            modelled: OnceLock::new(),
            blocks: OnceLock::new(),
            retries: OnceLock::new(),
            host: host.map_or_else(OnceLock::new, OnceLock::from),
            files: OnceLock::new(),
            rank,
        }
    }

    /// Whether anything ran on a device.
    pub fn has_device(&self) -> bool {
        !self.rank.work.is_empty()
    }

    /// Whether the job may use PyTorch. It is known not to if its modules were recorded, and
    /// neither PyTorch's libraries nor any operator are among what was recorded.
    pub fn may_be_pytorch(&self) -> bool {
        let file = self.rank.file;
        let is_pytorchs = |row: &Module| base_name(file.name(row.path)).starts_with("libtorch");
        let modules = file.modules();
        modules.is_empty()
            || !self.rank.spans(SpanKind::Operator).is_empty()
            || modules.iter().any(is_pytorchs)
    }

    /// Returns the length of the window.
    pub fn window_ns(&self) -> u64 {
        self.window.length()
    }

    /// Returns the time in which a device worked outside of the window.
    pub fn outside_ns(&self) -> u64 {
        of_devices(self.rank, |busy| &busy.any).without(&self.window).length()
    }

    /// Returns the mean length of a step. If no steps were recorded, returns the length of the
    /// window.
    pub fn step_ns(&self) -> u64 {
        self.window_ns() / self.steps.max(1) as u64
    }

    /// Returns a time in the window as a share of the window.
    pub fn share(&self, ns: u64) -> f64 {
        ns as f64 / self.window_ns().max(1) as f64
    }

    /// Divides a time in the window by the number of steps.
    pub fn per_step(&self, ns: u64) -> u64 {
        ns / self.steps.max(1) as u64
    }

    /// Returns `a step`, or `in all` if there are no steps.
    pub fn per_step_word(&self) -> &'static str {
        if self.steps > 0 { "a step" } else { "in all" }
    }

    /// Returns the length from which gaps are judged one by one: 1 % of a step, but at least 1 ms
    /// and at most 500 ms. Shorter gaps are judged together.
    pub fn long_gap_ns(&self) -> u64 {
        (self.step_ns() / 100).clamp(LEAST_GAP_NS, MOST_GAP_NS)
    }

    /// Returns the wall time of the thread that drives the rank, if that thread was sampled.
    pub fn host(&self) -> Option<&RankHost> {
        let of_rank = || match self.rank.file.row_count::<Sample>() {
            0 => None,
            _ => RankHost::of(self.rank),
        };
        self.host.get_or_init(of_rank).as_ref()
    }

    /// Returns the calls on files in the judged time, if they were recorded.
    pub fn files(&self) -> Option<&JudgedFiles> {
        let file = self.rank.file;
        let of_rank = || {
            let host = self.host();
            // The same time as that of which gains are reported as a share.
            let of_host = host.filter(|_| !self.has_device());
            let of_host = of_host.map(|host| Cover::of([host.life.window]));
            JudgedFiles::of(file, of_host.as_ref().unwrap_or(&self.window), |thread| {
                host.map_or_else(
                    || self.main_threads.contains(thread),
                    |host| host.driver.thread == thread,
                )
            })
        };
        match file.row_count::<FileCalls>() {
            0 => None,
            _ => self.files.get_or_init(of_rank).as_ref(),
        }
    }

    /// Returns the runs of operators, each with the least time that it needs.
    pub fn modelled(&self) -> &Modelled {
        self.modelled.get_or_init(|| Modelled::of(self.rank))
    }

    /// Returns the blocks that a framework's allocator or a stream-ordered pool gave out.
    pub fn blocks(&self) -> &[DeviceBlock] {
        self.blocks.get_or_init(|| blocks(self.rank))
    }

    /// Returns what the CPU samples show of PyTorch's DataLoader.
    pub fn sampled_loading(&self) -> &SampledLoading {
        self.sampled_loading
            .get_or_init(|| SampledLoading::of(self.rank, &self.main_threads, &self.window))
    }
}
