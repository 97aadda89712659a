//! Starts and ends a collector with all its threads. `tprof run` starts one in its own process. If
//! no collector serves the session of an attaching process, that process starts one.

use crate::config::{Activity, Config, NcclEvent, PerfEvent};
use crate::directory::lock;
use crate::directory::owned::{self, Owned};
use crate::directory::socket::SessionSocket;
use crate::engine::inbox::{DumpCause, Event};
use crate::engine::measure_costs::CostEstimator;
use crate::engine::prebuilt_tables::PrebuiltTables;
use crate::engine::pss::PssReader;
use crate::engine::workers;
use crate::engine::{Engine, EngineParts};
use crate::error::CollectError;
use crate::gpu_metrics::{MetricsLink, MetricsRows};
use crate::machine::{MachineWatcher, WatchedProcesses};
use crate::nvml;
use crate::output::destination::Output;
use crate::output::files::Files;
use crate::output::keeping::Keeping;
use crate::output::run_json;
use crate::output::stepping::Stepping;
use crate::session::answerer::Answerer;
use crate::session::asker::Asker;
use crate::session::configure::TargetClock;
use crate::session::dumps::DumpWriter;
use crate::session::first_info::first_info;
use crate::session::hang_watch::HangWatch;
use crate::session::idle_times::IdleTimes;
use crate::session::injections::{Libraries, injections};
use crate::session::nccl_log;
use crate::session::rundir;
use crate::session::server::Server;
use crate::session::shared_requests::SharedRequests;
use crate::session::slow_steps::SlowStepWatch;
use crate::session::standstill::Standstill;
use crate::shared::clock::Clock;
use crate::shared::{self, Tables};
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::*};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;
use tprof_os::proc;
use tprof_os::sys;
use tprof_sampler::cpu::{CpuSampler, SamplingOptions, processors};
use tprof_symbols::disk_cache::DiskCache;
use tprof_trace::TraceHeader;
use tprof_trace::model::property;
use tprof_trace::run::{BlindSpot, ProcessInfo, RunInfo};
use tprof_wire::env;

/// Longest time that a target waits on a full ring before it drops records, ns. If the collector's
/// last pass is longer ago than this, a target assumes that the collector doesn't run.
const FULL_WAIT_NS: u64 = 2_000_000_000;
/// Longest time that a run waits for descendants of the command that it launched.
const GRACE: Duration = Duration::from_millis(900);
/// A collector on demand ends when no process has been attached for this long.
const LINGER: Duration = Duration::from_millis(500);

const MAKE_MEMORY: &str = "make shared memory (memfd_create)";
const START_THREAD: &str = "start a thread";

/// A running collector, with its threads.
pub struct Session {
    directory: PathBuf,
    output: PathBuf,
    config: Config,
    libraries: Libraries,
    page: Arc<shared::SessionMemory>,
    events: Sender<Event>,
    socket: Arc<SessionSocket>,
    stop: Arc<AtomicBool>,
    has_ended_job: Arc<AtomicBool>,
    dumps: Option<Sender<DumpCause>>,
    sampler: Option<Arc<CpuSampler>>,
    stepping: Arc<Stepping>,
    devices: Mutex<Option<nvml::Sampler>>,
    engine: Option<JoinHandle<RunInfo>>,
    server: Option<JoinHandle<()>>,
    sweeper: Option<JoinHandle<()>>,
    dump_writer: Option<JoinHandle<()>>,
    renamed: Option<CollectError>,
    /// Marks the session's directory as in use by this process. The kernel may not show other
    /// users' collectors who uses a directory.
    _owned: Option<Owned>,
}

impl Session {
    /// Creates the session and the run directory and starts collecting.
    pub fn start(mut config: Config, libraries: Libraries) -> Result<Session, CollectError> {
        let (path, info_path) = rundir::create(&config)?;
        config.output = path.directory;
        let directory = match make_session_directory() {
            Ok(directory) => directory,
            Err(e) => {
                rundir::withdraw(&config.output, &info_path);
                return Err(e);
            }
        };
        let (output, made, info) = (config.output.clone(), directory.clone(), info_path.clone());
        let begun = Session::begin(config, libraries, directory, info_path, None);
        let mut session = begun.inspect_err(|_| {
            rundir::withdraw(&output, &info);
            let _ = std::fs::remove_dir_all(&made);
        })?;
        session.renamed = path.renamed;
        Ok(session)
    }

    /// Returns why the run isn't in the requested directory; `None` if it is.
    pub fn renamed(&self) -> Option<&CollectError> {
        self.renamed.as_ref()
    }

    fn begin(
        config: Config,
        libraries: Libraries,
        directory: PathBuf,
        info_path: PathBuf,
        linger: Option<Duration>,
    ) -> Result<Session, CollectError> {
        shared::check_room().map_err(system("map the memory that processes record into"))?;
        sys::raise_file_limit();
        let owned = owned::claim(&directory).ok();
        let (socket, listener) =
            SessionSocket::open(&directory).map_err(system("listen on a Unix socket"))?;
        let socket = Arc::new(socket);
        let (page, session_fd) = shared::SessionMemory::new().map_err(system(MAKE_MEMORY))?;
        let (tables, tables_fd) = Tables::new().map_err(system(MAKE_MEMORY))?;
        let page = Arc::new(page);
        let clock = Clock::new();
        let counted = why_not_counted(&config);
        let mut info = first_info(&config, &directory, &clock);
        info.machine["events"] = counted.clone();
        run_json::write(&info_path, &info)
            .map_err(|source| CollectError::Unwritable { path: info_path.clone(), source })?;
        let (events, engine_events) = channel();
        let (answers, engine_answers) = channel();
        let disk_cache = config.table_cache.clone().map(|path| Arc::new(DiskCache::new(path)));
        let prebuilt = Arc::new(PrebuiltTables::new(disk_cache.clone()));
        let (for_workers, memory) = (Arc::clone(&prebuilt), Arc::clone(&page));
        let caches_names = !config.redact;
        let workers =
            workers::start(tables, for_workers, memory, disk_cache, caches_names, answers)
                .map_err(system(START_THREAD))?;
        let sampler = start_sampler(&config, &counted, &events, &page)?;
        let stop = Arc::new(AtomicBool::new(false));
        let has_ended_job = Arc::new(AtomicBool::new(false));
        let idle_times = config.on_hang.map(|_| Arc::new(Mutex::new(IdleTimes::default())));
        let asker = Asker { events: events.clone(), session: Arc::clone(&page) };
        let answerer = Arc::new(Answerer {
            asker: asker.clone(),
            standstill: Standstill {
                kept: config.table_cache.clone(),
                redact: config.redact,
                idle_times: idle_times.clone(),
            },
            has_ended_job: Arc::clone(&has_ended_job),
        });
        let requests = SharedRequests {
            run: config.output.clone(),
            session: directory.clone(),
            answerer: Arc::clone(&answerer),
            stop: Arc::clone(&stop),
        };
        let (dumps, causes) = channel();
        let dumps = config.keep.map(|_| dumps);
        let dump_writer = dumps.is_some().then(|| DumpWriter {
            run: config.output.clone(),
            causes,
            stop: Arc::clone(&stop),
        });
        let slow_steps = config.on_slow_step.map(|times| SlowStepWatch {
            times,
            run: config.output.clone(),
            answerer: Arc::clone(&answerer),
            dumps: dumps.clone(),
            stop: Arc::clone(&stop),
        });
        let server = Server {
            listener,
            socket: Arc::clone(&socket),
            config: config.clone(),
            session: Arc::clone(&page),
            prebuilt: Arc::clone(&prebuilt),
            session_fd,
            tables_fd,
            targets_clock: TargetClock {
                is_tsc: clock.is_tsc(),
                wait_ticks: clock.ticks_in(FULL_WAIT_NS),
            },
            events: events.clone(),
            answerer,
            stop: Arc::clone(&stop),
        };
        let watch = config.on_hang.zip(idle_times).map(|(option, idle_times)| HangWatch {
            option,
            run: config.output.clone(),
            session: directory.clone(),
            asker,
            idle_times,
            dumps: dumps.clone(),
            stop: Arc::clone(&stop),
        });
        let files = files_of(&config, &info, &counted);
        let (watcher, watched) = start_watcher(&config, &events);
        let parts = EngineParts {
            config: config.clone(),
            session: Arc::clone(&page),
            prices: CostEstimator::new(clock.is_tsc(), sampler.as_ref()),
            events: engine_events,
            answers: engine_answers,
            workers,
            prebuilt,
            info,
            info_path,
            linger,
            socket: Arc::clone(&socket),
            sampler: sampler.clone(),
            sizer: start_sizer(&events, &page),
            watcher,
            watched,
            dumps: dumps.clone(),
            gpu_metrics: gpu_metrics(&config, &events),
        };
        let recorded = Output::new(clock, files);
        let stepping = Arc::clone(&recorded.processes.stepping);
        let engine = Engine::new(parts, recorded);
        let sweeper = spawn("tprof-sweeper", || _ = owned::sweep(&owned::places()))?;
        // Nothing waits for the end of these: they may sleep or be asking other hosts.
        spawn("tprof-requests", move || requests.run())?;
        if let Some(watch) = watch {
            spawn("tprof-hang", move || watch.run())?;
        }
        if let Some(watch) = slow_steps {
            spawn("tprof-slow", move || watch.run())?;
        }
        let dump_writer = dump_writer.map(|writer| spawn("tprof-dumps", move || writer.run()));
        let dump_writer = dump_writer.transpose()?;
        let server = spawn("tprof-server", move || server.run())?;
        let engine = spawn("tprof-engine", move || engine.run())?;
        Ok(Session {
            directory,
            output: config.output.clone(),
            config,
            libraries,
            page,
            events,
            socket,
            stop,
            has_ended_job,
            dumps,
            sampler,
            stepping,
            devices: Mutex::new(None),
            engine: Some(engine),
            server: Some(server),
            sweeper: Some(sweeper),
            dump_writer,
            renamed: None,
            _owned: owned,
        })
    }

    /// Returns the environment variables that the job needs to attach to this session.
    pub fn environment(&self, existing_ld_preload: Option<&OsStr>) -> Vec<(OsString, OsString)> {
        let mut preload = self.libraries.preload.clone().into_os_string();
        if let Some(existing) = existing_ld_preload.filter(|e| !e.is_empty()) {
            preload.push(":");
            preload.push(existing);
        }
        let binary = std::env::current_exe().unwrap_or_default().into_os_string();
        let options = serde_json::to_string(&self.config).unwrap_or_default();
        let mut pairs: Vec<(&str, OsString)> = vec![
            ("LD_PRELOAD", preload),
            (env::SESSION, self.directory.clone().into()),
            (env::HOST, sys::host_name().into()),
            (env::BIN, binary),
            (env::OUTPUT, self.output.clone().into()),
            (env::OPTIONS, options.into()),
        ];
        if let Some(agent) = &self.libraries.agent {
            pairs.extend(injections(agent, &self.config, &|name| std::env::var_os(name)));
        }
        if self.config.nccl.contains(&NcclEvent::Log)
            && self.config.activities.contains(&Activity::Comm)
        {
            pairs.extend(nccl_log::variables(&self.output, &|name| std::env::var_os(name)));
        }
        pairs.into_iter().map(|(name, value)| (name.into(), value)).collect()
    }

    fn send(&self, event: Event) {
        let _ = self.events.send(event);
        self.page.wake();
    }

    /// Tells the engine which process was launched. The caller still holds the process back.
    pub fn root_started(&self, pid: u32) {
        self.send(Event::RootStarted(pid));
        self.sample_devices();
        if let Some(sampler) = &self.sampler {
            sampler.launch(pid);
        }
    }

    /// Begins to sample devices, if they should be recorded.
    fn sample_devices(&self) {
        if self.config.activities.contains(&Activity::Gpu)
            && let Ok(mut devices) = self.devices.lock()
        {
            let events = self.events.clone();
            let deliver = move |message| drop(events.send(Event::Device(message)));
            *devices = nvml::Sampler::start(self.config.gpu_interval, deliver);
        }
    }

    /// Samples a running process and its descendants, or only the process if `alone` is set.
    /// Returns the number of processes.
    pub fn attach(&self, pid: u32, alone: bool) -> Result<usize, String> {
        let Some(sampler) = &self.sampler else {
            return Err("--activities does not have cpu".to_owned());
        };
        let pids = if alone { vec![pid] } else { proc::with_descendants(pid) };
        let count = pids.len();
        sampler.attach(pids).map(|()| count)
    }

    /// Tells the engine how the launched process ended, by its wait status.
    pub fn root_ended(&self, pid: u32, status: i32) {
        self.send(Event::RootEnded(pid, status));
    }

    /// Makes the run continue until the last process of the job has ended, or until recording is
    /// switched off for good.
    pub fn follow(&self) {
        self.send(Event::Follow);
    }

    /// Notes that a signal asked tprof to end. Batch systems send such a signal before SIGKILL.
    pub fn asked_to_end(&self, signal: i32) {
        self.send(Event::AskedToEnd(signal));
    }

    /// Returns the shared record of which processes run PyTorch's operators and which have made a
    /// step.
    pub fn stepping(&self) -> Arc<Stepping> {
        Arc::clone(&self.stepping)
    }

    /// Adds something that the launcher could not record to the list of what is missing.
    pub fn add_blind_spot(&self, blind: BlindSpot) {
        self.send(Event::AddBlindSpot(blind));
    }

    /// Adds such things at the end of the run: the engine's thread then calls `judge` with the
    /// processes of the run.
    pub fn add_blind_spots_at_end(
        &self,
        judge: impl FnOnce(&[ProcessInfo]) -> Vec<BlindSpot> + Send + 'static,
    ) {
        self.send(Event::AddBlindSpotsAtEnd(Box::new(judge)));
    }

    /// Whether the run has ended without a call of [`Session::finish`].
    pub fn is_over(&self) -> bool {
        self.engine.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Returns whether `--on-hang` has ended the job, in a form that can be read after the session.
    pub fn has_ended_job(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.has_ended_job)
    }

    /// Ends the run without waiting for processes that still run.
    pub fn stop_waiting(&self) {
        self.send(Event::StopWaiting);
    }

    /// Asks for a dump of what is kept, because this happened.
    pub fn dump(&self, why: String) {
        if let Some(dumps) = &self.dumps {
            let _ = dumps.send(DumpCause::new(why));
        }
    }

    /// Returns the directory of the run.
    pub fn run_dir(&self) -> &Path {
        &self.output
    }

    /// Waits less than a second for descendants of the launched process, writes all files and ends
    /// the session.
    pub fn finish(mut self) -> Result<RunInfo, CollectError> {
        self.send(Event::Finish(GRACE));
        self.end()
    }

    fn end(&mut self) -> Result<RunInfo, CollectError> {
        let info = self.engine.take().and_then(|engine| engine.join().ok());
        self.close();
        info.ok_or(CollectError::System {
            what: "finish the run",
            source: std::io::Error::other("the collector's thread failed"),
        })
    }

    fn close(&mut self) {
        self.stop.store(true, Release);
        // This wakes the thread that writes dumps.
        self.dump(String::new());
        self.socket.wake_listener();
        self.socket.leave();
        let threads = [self.server.take(), self.sweeper.take(), self.dump_writer.take()];
        for thread in threads.into_iter().flatten() {
            let _ = thread.join();
        }
        nccl_log::remove_if_empty(&self.output);
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if let Some(engine) = self.engine.take() {
            self.send(Event::Finish(Duration::ZERO));
            let _ = engine.join();
            self.close();
        }
    }
}

/// Prepares to sample the devices' counters, if they should be sampled.
fn gpu_metrics(config: &Config, events: &Sender<Event>) -> Option<MetricsRows> {
    let interval = config.gpu_metrics.filter(|_| config.activities.contains(&Activity::Gpu))?;
    let events = events.clone();
    let deliver = move |message| drop(events.send(Event::GpuMetrics(message)));
    Some(MetricsRows::new(interval, MetricsLink::start(interval, deliver)))
}

/// Runs a collector on demand. An attaching process starts a hidden command with this body if no
/// collector listens in its session directory. Returns at once if another collector has the
/// directory.
pub fn collect_on_demand(session: &Path, config: Config) -> Result<(), CollectError> {
    let Some(_charge) = lock::lock_session(session)? else { return Ok(()) };
    let info_path = rundir::join(&config.output, config.redact)?;
    let libraries = Libraries { preload: PathBuf::new(), agent: None };
    let mut running =
        Session::begin(config, libraries, session.to_owned(), info_path, Some(LINGER))?;
    running.sample_devices();
    running.end()?;
    Ok(())
}

/// Returns for each requested event the reason why this machine doesn't count it, or `null` if it
/// does.
fn why_not_counted(config: &Config) -> serde_json::Value {
    let sampled = config.activities.contains(&Activity::Cpu);
    let why_not = |event: &PerfEvent| match sampled {
        true => event.counts().err(),
        false => Some("--activities does not have cpu".to_owned()),
    };
    let all = config.counters.iter().map(|event| (event.name(), why_not(event)));
    serde_json::json!(all.collect::<BTreeMap<_, _>>())
}

fn system(what: &'static str) -> impl FnOnce(std::io::Error) -> CollectError {
    move |source| CollectError::System { what, source }
}

fn spawn<T: Send + 'static>(
    name: &str,
    body: impl FnOnce() -> T + Send + 'static,
) -> Result<JoinHandle<T>, CollectError> {
    let named = std::thread::Builder::new().name(name.to_owned());
    named.spawn(body).map_err(system(START_THREAD))
}

/// Starts the sampler of CPUs, unless CPU samples are off.
fn start_sampler(
    config: &Config,
    counted: &serde_json::Value,
    events: &Sender<Event>,
    page: &Arc<shared::SessionMemory>,
) -> Result<Option<Arc<CpuSampler>>, CollectError> {
    if !config.activities.contains(&Activity::Cpu) {
        return Ok(None);
    }
    let counted = |event: &PerfEvent| counted[event.name()].is_null();
    let wanted = SamplingOptions {
        rate: config.sample_rate,
        stacks: config.stacks,
        events: config.counters.iter().copied().filter(counted).collect(),
        pauses: config.pauses_session() || config.budget_percent.is_some(),
    };
    let events = events.clone();
    let deliver = move |event| {
        let _ = events.send(Event::Sampler(event));
    };
    let page = Arc::clone(page);
    let sampler = CpuSampler::start(wanted, Box::new(deliver), Box::new(move || page.wake()));
    Ok(Some(Arc::new(sampler.map_err(system(START_THREAD))?)))
}

/// Starts the reader of proportional set sizes; `None` if its thread can't be started.
fn start_sizer(events: &Sender<Event>, page: &Arc<shared::SessionMemory>) -> Option<PssReader> {
    let (events, page) = (events.clone(), Arc::clone(page));
    let deliver = move |round| {
        let taken = events.send(Event::Sizes(round)).is_ok();
        page.wake();
        taken
    };
    PssReader::start(deliver).ok()
}

/// Starts the reader of the machine's errors and traffic, `None` if its thread can't be started, and
/// returns where it finds the job's processes.
fn start_watcher(
    config: &Config,
    events: &Sender<Event>,
) -> (Option<Arc<Mutex<MachineWatcher>>>, WatchedProcesses) {
    let events = events.clone();
    let deliver = move |message| drop(events.send(Event::Machine(message)));
    let watcher = MachineWatcher::new(Path::new("/"), config.redact);
    let watched = watcher.processes();
    (watcher.start(deliver), watched)
}

/// Returns the files of the run, none of which exists yet.
fn files_of(config: &Config, info: &RunInfo, counted: &serde_json::Value) -> Files {
    let header = TraceHeader {
        host: info.host.clone(),
        rank: None,
        provisional: false,
        instance: 0,
        start_ns: info.start_ns,
        start_unix_ns: info.start_unix_ns,
        tprof: info.tprof.clone(),
        segments: String::new(),
    };
    let mut facts = vec![
        (property::EVENTS, counted.to_string()),
        (property::COUNTERS_PER_THREAD, processors().len().to_string()),
    ];
    let watched = config.on_hang.map(|option| option.after.as_nanos().to_string());
    facts.extend(watched.map(|after_ns| (property::ON_HANG, after_ns)));
    facts.extend(config.on_slow_step.map(|times| (property::ON_SLOW_STEP, times.to_string())));
    let keeping = config.keep.map(|keep| Keeping::new(keep, info.start_ns));
    Files::new(&config.output, header, facts, keeping)
}

fn make_session_directory() -> Result<PathBuf, CollectError> {
    let places = [
        std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from),
        Some(std::env::temp_dir()),
        Some(PathBuf::from("/tmp")),
    ];
    let mut tried = Vec::new();
    let mut last = std::io::Error::other("no place to try");
    for place in places.into_iter().flatten().filter(|p| p.is_absolute()) {
        // The path of a socket can have at most 107 bytes, and some are needed for the names in it.
        if place.as_os_str().len() > 80 {
            continue;
        }
        match sys::make_private_directory(&place, owned::PREFIX) {
            Ok(directory) => return Ok(directory),
            Err(e) => {
                tried.push(format!("`{}`", place.display()));
                last = e;
            }
        }
    }
    Err(CollectError::NoSession { tried: tried.join(", "), source: last })
}
