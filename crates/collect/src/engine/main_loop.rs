//! The engine: the collector's main loop, which drains every target and does periodic work when it
//! is due.

use super::budget::JobBudget;
use super::inbox::{BlindSpotFinder, DumpCause, Event, Reply};
use super::keep::Dumps;
use super::measure_costs::CostEstimator;
use super::prebuilt_tables::PrebuiltTables;
use super::pss::PssReader;
use super::recording::{self, Recording};
use super::reserve::Reserve;
use super::workers::{Answer, ModuleTask, ModulesQuestion, Workers};
use crate::config::Config;
use crate::directory::socket::SessionSocket;
use crate::gpu_metrics::MetricsRows;
use crate::machine::{MachineRows, MachineWatcher, WatchedProcesses};
use crate::nvml::Devices;
use crate::output::destination::Output;
use crate::output::survivors::Survivor;
use crate::shared::SessionMemory;
use crate::targets::attribution::{Attribution, Destination};
use crate::targets::ending::RecordedWork;
use crate::targets::target::{Pass, Targets};
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::Ordering::*;
use std::sync::mpsc::{Receiver, Sender};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tprof_os::cgroup::Cgroup;
use tprof_os::host_cpu::HostCpu;
use tprof_os::sys;
use tprof_os::wall_clock::WallClock;
use tprof_sampler::cpu::CpuSampler;
use tprof_symbols::Allocators;
use tprof_trace::model::counter;
use tprof_trace::run::RunInfo;
use tprof_wire::region::off;

pub(super) const MS: u64 = 1_000_000;
/// Time between two writes of rows and totals. If the collector is killed, the rows and totals of
/// that time are lost.
const FLUSH_NS: u64 = 150 * MS;
/// Time between two readings of processes' CPU time; the overhead is a share of that time.
const CPU_TIME_NS: u64 = 100 * MS;
/// Time between two checks for threads that have ended.
const THREADS_NS: u64 = 50 * MS;
/// Longest sleep while images are attached. Targets wake the collector when a chunk is full; this
/// limit bounds what is lost if the collector is killed.
const MAX_SLEEP: Duration = Duration::from_millis(10);
/// If a pass read at most this number of records, the engine may sleep longer before the next pass.
/// A thread that fills a chunk wakes the engine.
const LITTLE: u64 = 128;
/// Size that a `run.json` with one process has, bytes.
pub(super) const LEAST_INFO_BYTES: usize = 3 << 10;

/// The parts that the engine is created with.
pub struct EngineParts {
    /// Options of the run.
    pub config: Config,
    /// The session's shared page.
    pub session: Arc<SessionMemory>,
    /// Measures the cost of hooks and samples.
    pub prices: CostEstimator,
    /// Messages from other threads.
    pub events: Receiver<Event>,
    /// Answers of the worker threads.
    pub answers: Receiver<Answer>,
    /// The worker threads.
    pub workers: Workers,
    /// Unwind tables for programs that asked for them before.
    pub prebuilt: Arc<PrebuiltTables>,
    /// Content of `run.json`.
    pub info: RunInfo,
    /// Path of `run.json`.
    pub info_path: PathBuf,
    /// A collector that was started on demand ends when no image has been attached for this long.
    /// `None` for other collectors.
    pub linger: Option<Duration>,
    /// The socket through which processes attach.
    pub socket: Arc<SessionSocket>,
    /// The sampler of CPUs, unless CPU samples are off.
    pub sampler: Option<Arc<CpuSampler>>,
    /// The reader of proportional set sizes, unless its thread could not be started.
    pub sizer: Option<PssReader>,
    /// Where to ask for a dump of what is kept, if only the last part is.
    pub dumps: Option<Sender<DumpCause>>,
    /// The reader of the machine's errors, unless its thread could not be started.
    pub watcher: Option<Arc<Mutex<MachineWatcher>>>,
    /// Where that reader finds the job's processes, whose network namespaces it reads.
    pub watched: WatchedProcesses,
    /// The process that samples the devices' counters, with `--gpu-metrics`.
    pub gpu_metrics: Option<MetricsRows>,
}

/// The times when periodic work was last done or is due next, ns.
#[derive(Default)]
pub(super) struct Timers {
    pub flushed_ns: u64,
    pub info_due_ns: u64,
    pub cpu_time_ns: u64,
    pub observed_ns: u64,
    pub threads_ns: u64,
    pub samples_ns: u64,
}

/// Training steps that `tprof ctl step` has marked so far.
#[derive(Debug, Default)]
pub(super) struct MarkedSteps {
    /// Number of the last step.
    pub last: Option<u64>,
    /// For each file, the image whose steps are marked, by its number in the run.
    pub of_file: HashMap<usize, u64>,
}

/// The state that decides when the run ends.
#[derive(Default)]
pub(super) struct Ending {
    pub finish_by_ns: Option<u64>,
    /// Whether the run ends with the job's last process.
    pub follows: bool,
    pub survivors: SurvivorSearch,
    pub empty_since_ns: Option<u64>,
    /// Number of the last closing of the socket whose waiting processes have all been accepted. If
    /// the socket's current closing has this number, no process can still attach.
    pub all_accepted: Option<u32>,
    /// Functions that list at the end what was not recorded.
    pub blind_spot_finders: Vec<BlindSpotFinder>,
}

/// The result of the last search for processes of the job that still run.
#[derive(Default)]
pub(super) struct SurvivorSearch {
    pub at_ns: u64,
    /// Number of searches in a row that found no process.
    pub nobody: u32,
    pub found: Vec<Survivor>,
}

/// Numbers of tasks that the engine has sent and the workers have not completed yet.
#[derive(Default)]
pub(super) struct OpenQuestions {
    pub symbols: usize,
    pub modules: usize,
    /// Number of workers that are still writing tables or names to the disk cache.
    pub writing_cache: usize,
}

/// A request to write everything that was recorded before a moment. The engine has not replied yet.
pub(super) struct WriteRequest {
    /// The requested moment.
    pub until_ns: u64,
    /// Once the sampler has delivered all samples up to this time, no requested sample is missing.
    pub sampled_ns: u64,
    /// The reply is sent at this time, even if something is missing.
    pub reply_by_ns: u64,
    /// Whether everything that had arrived has been written, and the names for it were requested.
    pub is_written: bool,
    pub reply: Sender<Reply>,
}

/// The engine's state.
pub struct Engine {
    pub(super) parts: EngineParts,
    pub(super) out: Output,
    pub(super) targets: Targets,
    /// Assigns samples to their processes.
    pub(super) attribution: Attribution,
    /// The known allocators in programs and modules.
    pub(super) allocators: Allocators,
    pub(super) cgroup: Cgroup,
    pub(super) host_cpu: HostCpu,
    pub(super) devices: Devices,
    /// Samples of the devices' counters, with `--gpu-metrics`.
    pub(super) gpu_metrics: Option<MetricsRows>,
    pub(super) machine: MachineRows,
    pub(super) reserve: Reserve,
    pub(super) timers: Timers,
    pub(super) recording: Recording,
    pub(super) ending: Ending,
    pub(super) open: OpenQuestions,
    /// The work of recording in targets that are finished and removed from `targets`.
    pub(super) written_off: RecordedWork,
    /// Number of messages received so far. Callers compare it to notice new messages.
    pub(super) messages: u64,
    /// All samples before this time have been received, ns.
    pub(super) sampled_until_ns: u64,
    pub(super) oom_at_start: Option<u64>,
    /// Size of `run.json` when it was last written, bytes.
    pub(super) info_bytes: usize,
    /// Whether the last write of `run.json` failed.
    pub(super) is_marked_unwritten: bool,
    /// The time of day when the run began.
    pub(super) wall_at_start: WallClock,
    /// Training steps that `tprof ctl step` has marked.
    pub(super) steps: MarkedSteps,
    pub(super) idle: u32,
    /// Requests that wait until everything before a moment is written.
    pub(super) write_requests: Vec<WriteRequest>,
    pub(super) dumps: Dumps,
    /// Number of OOM kills that were noticed for `--on oom`.
    pub(super) oom_kills_noticed: u64,
    /// How the job keeps to `--budget`.
    pub(super) budget: JobBudget,
}

impl Engine {
    /// Returns an engine at the beginning of its run.
    pub fn new(mut parts: EngineParts, out: Output) -> Engine {
        let gpu_metrics = parts.gpu_metrics.take();
        let now = sys::monotonic_ns();
        let config = &parts.config;
        let after = |d: Option<Duration>| d.map(|d| now + d.as_nanos() as u64);
        let start_at_ns = if config.paused { None } else { after(config.delay) };
        let always_on = start_at_ns.is_none() && !config.paused && !config.is_in_part();
        let begins_on = match config.seconds() {
            Some(timetable) => timetable.schedule().records(0),
            None => start_at_ns.is_none() && !config.paused,
        };
        let from_start = start_at_ns.map_or(0, |at| at - now);
        let stop_at_ns =
            after(config.duration).map(|at| at + from_start).filter(|_| !config.paused);
        parts.session.eager.store(parts.linger.is_some(), Release);
        let cgroup = Cgroup::find();
        let oom_at_start = cgroup.read(counter::CGROUP_CACHE_SHARE).oom_kills;
        let page = parts.session.page();
        page.off.store(if begins_on { 0 } else { config.session_off() }, Release);
        if let Some(sampler) = parts.sampler.as_ref().filter(|_| !begins_on) {
            sampler.pause(true);
        }
        page.coarse_clock.store(out.clock.now(), Release);
        let mut reserve = Reserve::new(&config.output);
        reserve.hold(LEAST_INFO_BYTES, 1);
        let mut engine = Engine {
            attribution: Attribution::new(config.redact),
            out,
            targets: Targets::new(),
            allocators: Allocators::default(),
            cgroup,
            host_cpu: HostCpu::find(),
            devices: Devices::default(),
            gpu_metrics,
            machine: MachineRows::default(),
            reserve,
            timers: Timers { flushed_ns: now, ..Timers::default() },
            recording: Recording { always_on, start_at_ns, stop_at_ns, ..Recording::default() },
            ending: Ending::default(),
            open: OpenQuestions::default(),
            written_off: RecordedWork::default(),
            messages: 0,
            sampled_until_ns: 0,
            oom_at_start,
            info_bytes: 0,
            is_marked_unwritten: false,
            wall_at_start: WallClock::now(),
            steps: MarkedSteps::default(),
            idle: 0,
            write_requests: Vec::new(),
            dumps: Dumps::default(),
            oom_kills_noticed: 0,
            budget: JobBudget::default(),
            parts,
        };
        if !begins_on {
            let by = recording::begins_off_by(&engine.parts.config);
            engine.note_off(engine.parts.info.start_ns, by);
        }
        engine
    }

    /// Runs until [`Event::Finish`] arrives. A collector on demand runs until no process is left.
    pub fn run(mut self) -> RunInfo {
        loop {
            // The coarse clock is set before any answer is sent. A thread that gets an answer
            // relies on the collector from then on, so it must not see the time before a
            // standstill.
            self.beat(sys::monotonic_ns());
            self.take_messages();
            let now = sys::monotonic_ns();
            let taken = self.pass(now);
            self.housekeeping(now);
            self.reply_to_write_requests();
            self.follow_dumps();
            if self.is_over(now) {
                break;
            }
            self.sleep_while_idle(taken);
        }
        self.end()
    }

    /// Sets the coarse clock, by which the job's threads see that the collector runs. A thread
    /// waits on a full ring only while it does.
    fn beat(&mut self, now: u64) {
        self.notice_standstill(now);
        self.parts.session.page().coarse_clock.store(self.out.clock.now(), Release);
    }

    /// Reads every ring once, and returns the number of records.
    pub(super) fn pass(&mut self, now: u64) -> u64 {
        self.read_rings(now, Pass::Live)
    }

    /// Reads every ring once, up to the limit of `pass`, and returns the number of records.
    pub(super) fn read_rings(&mut self, now: u64, pass: Pass) -> u64 {
        self.beat(now);
        let mut taken = 0;
        for target in self.targets.values_mut() {
            taken += target.drain(&mut self.out, now, pass);
            let request = target.modules_request();
            if request.is_some() {
                let finds_rows = target.hooks.region.finds_rows();
                self.parts.prebuilt.request_tables(&target.exe, finds_rows);
            }
            if request.is_some() || target.needs_modules() {
                self.open.modules += 1;
                target.modules.asked = true;
                target.modules.open += 1;
                let _ = self.parts.workers.modules.send(ModuleTask::Read(ModulesQuestion {
                    image: target.number,
                    pid: target.pid,
                    region: Arc::clone(&target.hooks.region),
                    request,
                    ended: target.end.is_some(),
                    begun_ns: target.start_ns,
                    begun_with: std::mem::take(&mut target.modules.begun_with),
                }));
            }
        }
        self.align_steps(now);
        self.follow_steps(now);
        taken
    }

    /// Sleeps until there is something to do, longer and longer while there is little to read.
    fn sleep_while_idle(&mut self, taken: u64) {
        // Busy rings are read again at once. Otherwise each sleep is longer than the last, until a
        // thread that fills a chunk wakes the engine.
        if taken >= 2048 {
            self.idle = 0;
            return;
        }
        self.idle = if taken >= LITTLE { 1 } else { (self.idle + 1).min(6) };
        let time = Duration::from_micros(500 << self.idle).min(MAX_SLEEP);
        let session = Arc::clone(&self.parts.session);
        let page = session.page();
        let seen = page.sleep.load(Acquire);
        page.sleeping.store(1, SeqCst);
        if !self.has_messages() {
            sys::futex_wait(&page.sleep, seen, time);
        }
        page.sleeping.store(0, SeqCst);
    }

    fn housekeeping(&mut self, now: u64) {
        self.notice_standstill(sys::monotonic_ns());
        if let Some(most) = self.parts.config.max_size
            && !self.recording.full
            && self.out.files.bytes() >= most
        {
            (self.recording.full, self.recording.over) = (true, true);
            // Totals take little room, and nobody asked for a gap in them.
            self.set_off(off::SESSION, "--max-size is reached");
            self.out.processes.losses.lose("events after the limit", "--max-size was reached", 0);
        }
        if self.recording.start_at_ns.is_some_and(|at| now >= at) {
            self.recording.start_at_ns = None;
            self.switch(true, "--delay is over");
        }
        if self.recording.stop_at_ns.is_some_and(|at| now >= at) {
            self.recording.stop_at_ns = None;
            self.recording.over = true;
            self.switch(false, "--duration is over");
        }
        self.follow_seconds(now);
        if now - self.timers.threads_ns >= THREADS_NS {
            self.timers.threads_ns = now;
            for target in self.targets.values_mut() {
                target.reap_threads(&mut self.out, now);
            }
        }
        self.assign_samples(now);
        self.finish_ended_images(now);
        if now - self.timers.cpu_time_ns >= CPU_TIME_NS {
            self.timers.cpu_time_ns = now;
            for target in self.targets.values_mut() {
                target.read_cpu_time();
                target.show_cpu_time(&mut self.out, now);
            }
        }
        self.keep_to_budget(now);
        if now - self.timers.observed_ns >= self.parts.config.rss_interval.as_nanos() as u64 {
            self.timers.observed_ns = now;
            self.observe(now, false);
        }
        if now - self.timers.flushed_ns >= FLUSH_NS {
            self.timers.flushed_ns = now;
            self.out.clock.join();
            self.flush(now);
        }
    }

    /// Assigns samples to their processes.
    pub(super) fn assign_samples(&mut self, now: u64) {
        let Engine { targets, out, attribution, .. } = self;
        attribution.assign(&mut Destination { targets, out }, None, now);
    }
}
