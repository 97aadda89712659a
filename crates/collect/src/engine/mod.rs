//! The collector's main loop: drains every image, writes the files, keeps
//! `run.json`, and comes to an end.

pub mod ahead;
pub mod calibrate;
mod ending;
pub mod pss;
mod requests;
pub mod reserve;
pub mod standstill;
pub mod survivors;
pub mod workers;

use crate::config::Config;
use crate::cpu::{Heard, Sampler};
use crate::elf;
use crate::engine::ahead::Ahead;
use crate::engine::calibrate::Costs;
use crate::engine::pss::{Round, Sharer, Sizer, Sizes};
use crate::engine::reserve::Reserve;
use crate::engine::survivors::Survivor;
use crate::engine::workers::{Answer, ModulesWanted, Nameless, Read, SymbolsWanted, Workers};
use crate::error::CollectError;
use crate::nvml::Devices;
use crate::os::cgroup::Cgroup;
use crate::os::proc;
use crate::os::sys;
use crate::out::files::Files;
use crate::out::info;
use crate::out::story::Story;
use crate::session::door::Door;
use crate::session::server::{Attached, Event};
use crate::shared::Session;
use crate::shared::clock::Clock;
use crate::symbols::Allocators;
use crate::symbols::KERNEL;
use crate::target::sampled::{Room, Sampled};
use crate::target::tracked::{End, Tracked};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering::*;
use std::sync::mpsc::Receiver;
use std::time::Duration;
use tprof_trace::model::{Counter, counter, property};
use tprof_trace::run::{Blind, RunInfo};

const MS: u64 = 1_000_000;
/// How often rows and totals are written: what a kill of the collector loses.
const FLUSH_NS: u64 = 150 * MS;
/// How often `run.json` is written, at most; less often where that is dear.
const INFO_NS: u64 = 500 * MS;
/// Share of the time that writing `run.json` may take.
const INFO_SHARE: u64 = 50;
/// How often the CPU time of processes is read: what overhead is a share of.
const CPU_TIME_NS: u64 = 100 * MS;
/// How often threads are looked after that may be gone.
const THREADS_NS: u64 = 50 * MS;
/// Longest sleep while images are attached. Targets wake the collector when a
/// chunk is full; this bounds what a kill of the collector can lose.
const SLEEP_MOST: Duration = Duration::from_millis(10);
/// How often samples are written, at least: small blocks are dear.
const SAMPLES_NS: u64 = 1000 * MS;
/// Records that are not worth another look soon: who fills a chunk wakes the engine.
const LITTLE: u64 = 128;
/// Stacks that were taken this long ago have been read from the rings.
const SETTLED_NS: u64 = 200 * MS;
/// How long the end of a process waits to learn how it ended.
const STATUS_NS: u64 = 1000 * MS;
/// How long it waits for its mappings to be read.
const MODULES_NS: u64 = 10_000 * MS;
/// What is lost of devices, and why.
const READINGS: &str = "readings of devices";
const NO_FILE: &str = "no process was recorded whose file would hold them";

/// The engine's state.
pub struct Engine {
    /// Options.
    pub config: Config,
    /// Clocks.
    pub clock: Clock,
    /// Session page.
    pub session: Arc<Session>,
    /// Rank files.
    pub files: Files,
    /// Images that are not written off yet, by number.
    pub images: BTreeMap<u64, Tracked>,
    /// What is known of every process.
    pub story: Story,
    /// Costs of the hooks.
    pub costs: Costs,
    /// Messages.
    pub events: Receiver<Event>,
    /// Answers of the workers.
    pub answers: Receiver<Answer>,
    /// Workers.
    pub workers: Workers,
    /// Tables for programs that are known to ask.
    pub ahead: Arc<Ahead>,
    /// What `run.json` says; rewritten from the story.
    pub info: RunInfo,
    /// Where `run.json` lies.
    pub info_path: PathBuf,
    /// The cgroup.
    pub cgroup: Cgroup,
    /// Leave when nothing has been attached for this long (a collector that was
    /// started on demand).
    pub linger: Option<Duration>,
    /// Where processes come in.
    pub door: Arc<Door>,
    /// Recording was on all the time.
    pub always_on: bool,
    /// Takes samples of the CPU.
    pub sampler: Option<Arc<Sampler>>,
    /// Reads proportional set sizes.
    pub sizer: Option<Sizer>,
    /// Whose samples they are.
    pub sampled: Sampled,
    /// Allocators that the programs hold.
    pub allocators: Allocators,
    devices: Devices,
    reserve: Reserve,
    state: Loop,
}

/// A `run.json` of one process.
const LEAST_INFO_BYTES: usize = 3 << 10;

/// What only the loop needs.
#[derive(Default)]
struct Loop {
    flushed_at: u64,
    info_due: u64,
    cpu_time_at: u64,
    observed_at: u64,
    threads_at: u64,
    idle: u32,
    symbols_open: usize,
    modules_open: usize,
    finish_by: Option<u64>,
    /// The run ends with the job's last process.
    follows: bool,
    looked: Looked,
    empty_since: Option<u64>,
    all_heard: Option<u32>,
    oom_at_start: Option<u64>,
    samples_at: u64,
    /// All samples until then are among the messages taken.
    sampled_until: u64,
    /// The run ended while recording was on.
    ends_on: bool,
    start_at: Option<u64>,
    stop_at: Option<u64>,
    full: bool,
    /// Recording was switched off for good.
    over: bool,
    /// Bytes of `run.json` as it was last written.
    info_bytes: usize,
}

/// The last look at who of the job still runs.
#[derive(Default)]
struct Looked {
    at_ns: u64,
    /// Nobody, this many times in a row.
    nobody: u32,
    found: Vec<Survivor>,
}

/// Everything the engine is made of.
pub struct Parts {
    #[allow(missing_docs)]
    pub config: Config,
    #[allow(missing_docs)]
    pub clock: Clock,
    #[allow(missing_docs)]
    pub session: Arc<Session>,
    #[allow(missing_docs)]
    pub files: Files,
    #[allow(missing_docs)]
    pub costs: Costs,
    #[allow(missing_docs)]
    pub events: Receiver<Event>,
    #[allow(missing_docs)]
    pub answers: Receiver<Answer>,
    #[allow(missing_docs)]
    pub workers: Workers,
    #[allow(missing_docs)]
    pub ahead: Arc<Ahead>,
    #[allow(missing_docs)]
    pub info: RunInfo,
    #[allow(missing_docs)]
    pub info_path: PathBuf,
    #[allow(missing_docs)]
    pub linger: Option<Duration>,
    #[allow(missing_docs)]
    pub door: Arc<Door>,
    #[allow(missing_docs)]
    pub sampler: Option<Arc<Sampler>>,
    #[allow(missing_docs)]
    pub sizer: Option<Sizer>,
}

impl Engine {
    /// An engine at the beginning of its run.
    pub fn new(parts: Parts) -> Engine {
        let now = sys::monotonic_ns();
        let after = |d: Option<Duration>| d.map(|d| now + d.as_nanos() as u64);
        let start_at = if parts.config.paused { None } else { after(parts.config.delay) };
        let begins_on = start_at.is_none() && !parts.config.paused;
        let from_start = start_at.map_or(0, |at| at - now);
        let stop_at =
            after(parts.config.duration).map(|at| at + from_start).filter(|_| !parts.config.paused);
        parts.session.eager.store(parts.linger.is_some(), Release);
        let cgroup = Cgroup::find();
        let oom_at_start = cgroup.read().oom_kills;
        let page = parts.session.page();
        page.recording.store(u32::from(begins_on), Release);
        page.coarse_clock.store(parts.clock.now(), Release);
        let redact = parts.config.redact;
        let mut reserve = Reserve::new(&parts.config.output);
        reserve.hold(LEAST_INFO_BYTES, 1);
        Engine {
            config: parts.config,
            clock: parts.clock,
            session: parts.session,
            files: parts.files,
            images: BTreeMap::new(),
            story: Story::default(),
            costs: parts.costs,
            events: parts.events,
            answers: parts.answers,
            workers: parts.workers,
            ahead: parts.ahead,
            info: parts.info,
            info_path: parts.info_path,
            cgroup,
            linger: parts.linger,
            door: parts.door,
            always_on: begins_on,
            sampler: parts.sampler,
            sizer: parts.sizer,
            sampled: Sampled::new(redact),
            allocators: Allocators::default(),
            devices: Devices::default(),
            reserve,
            state: Loop { oom_at_start, start_at, stop_at, flushed_at: now, ..Loop::default() },
        }
    }

    /// Runs until told to finish, or, on demand, until nobody is left.
    pub fn run(mut self) -> RunInfo {
        loop {
            self.take_messages();
            let now = sys::monotonic_ns();
            let taken = self.pass(now);
            self.housekeeping(now);
            if self.is_over(now) {
                break;
            }
            self.rest(taken);
        }
        self.end()
    }

    /// One pass over every ring.
    fn pass(&mut self, now: u64) -> u64 {
        self.notice_standstill(now);
        let page = self.session.page();
        page.coarse_clock.store(self.clock.now(), Release);
        let mut taken = 0;
        let Engine { images, files, clock, story, workers, ahead, state, .. } = self;
        for tracked in images.values_mut() {
            taken += tracked.drain(clock, now, false, files, story);
            let request = tracked.modules_request();
            if request.is_some() {
                ahead.asks(&tracked.exe);
            }
            if request.is_some() || tracked.wants_modules() {
                state.modules_open += 1;
                tracked.asked_modules = true;
                tracked.modules_open += 1;
                let _ = workers.modules.send(ModulesWanted {
                    image: tracked.number,
                    pid: tracked.pid,
                    region: Arc::clone(&tracked.image.region),
                    request,
                    ended: tracked.end.is_some(),
                    begun_ns: tracked.start_ns,
                    begun_with: std::mem::take(&mut tracked.begun_with),
                });
            }
        }
        taken
    }

    /// Sleeps as long as nothing seems to happen.
    fn rest(&mut self, taken: u64) {
        // A busy ring is read again at once; else ever longer sleeps, cut
        // short by whoever fills a chunk.
        if taken >= 2048 {
            self.state.idle = 0;
            return;
        }
        self.state.idle = if taken >= LITTLE { 1 } else { (self.state.idle + 1).min(6) };
        let time = Duration::from_micros(500 << self.state.idle).min(SLEEP_MOST);
        let session = Arc::clone(&self.session);
        let page = session.page();
        let seen = page.sleep.load(Acquire);
        page.sleeping.store(1, SeqCst);
        if !self.has_messages() {
            sys::futex_wait(&page.sleep, seen, time);
        }
        page.sleeping.store(0, SeqCst);
    }

    fn has_messages(&mut self) -> bool {
        let before = (self.story.messages, self.state.modules_open, self.state.symbols_open);
        self.take_messages();
        before != (self.story.messages, self.state.modules_open, self.state.symbols_open)
    }

    fn take_messages(&mut self) {
        self.take_events();
        self.story.settle();
    }

    fn take_events(&mut self) {
        self.state.sampled_until = self.sampler.as_ref().map_or(u64::MAX, |s| s.until_ns());
        while let Ok(event) = self.events.try_recv() {
            self.story.messages += 1;
            match event {
                Event::Attached(attached) => self.attached(*attached),
                Event::Joined { image, region, agent } => {
                    if let Some(tracked) = self.images.get_mut(&image) {
                        tracked.joined(region, agent);
                    }
                }
                Event::Unanswered(late) => self.story.unanswered(late, self.config.redact),
                Event::Answered { pid, agent } => self.story.answered(pid, agent),
                Event::Ended { image, time_ns, status, pidfd, exec } => {
                    self.ended(image, End { time_ns, status, pidfd, exec })
                }
                Event::Control(request, reply) => {
                    let _ = reply.send(self.control(request));
                }
                Event::Device(told) => {
                    let recording = self.session.page().recording.load(Relaxed) != 0;
                    if !self.devices.take(told, recording) {
                        self.story.lose(READINGS, NO_FILE, 1);
                    }
                }
                Event::Sizes(round) => self.take_sizes(round),
                Event::RootStarted(pid) => self.story.root = Some(pid),
                Event::Heard(heard) => {
                    let recording =
                        self.state.ends_on || self.session.page().recording.load(Relaxed) != 0;
                    let Engine { images, files, story, sampled, .. } = self;
                    if recording || !matches!(heard, Heard::Taken(_)) {
                        sampled.hear(heard, &mut Room { images, files, story });
                    }
                }
                Event::RootEnded(pid, status) => {
                    self.story.reaped(pid, status, sys::monotonic_ns());
                    self.story.root_ended = true;
                    self.story.tree_cpu_ns = sys::children_cpu_ns();
                }
                Event::AllHeard(turn) => self.state.all_heard = Some(turn),
                Event::Follow => self.state.follows = true,
                Event::StopWaiting => self.state.finish_by = Some(0),
                Event::Finish(wait) => {
                    let by = sys::monotonic_ns() + wait.as_nanos() as u64;
                    self.state.finish_by = Some(self.state.finish_by.map_or(by, |old| old.min(by)));
                    self.session.eager.store(true, Release);
                    if let Some(sampler) = &self.sampler {
                        sampler.hurry();
                    }
                }
            }
        }
        while let Ok(answer) = self.answers.try_recv() {
            match answer {
                Answer::Modules(Read { image, read_ns, modules, late }) => {
                    self.state.modules_open = self.state.modules_open.saturating_sub(1);
                    self.story.messages += 1;
                    if let Some(tracked) = self.images.get_mut(&image) {
                        tracked.modules_open = tracked.modules_open.saturating_sub(1);
                        tracked.code.was_late |= late;
                        tracked.code.hear(read_ns, modules);
                    }
                }
                Answer::Python(image, interpreter) => {
                    self.story.messages += 1;
                    if let Some(tracked) = self.images.get_mut(&image) {
                        tracked.code.interprets(interpreter);
                    }
                }
                Answer::NoPython(process, why) => {
                    let what = "Python frames in stacks of allocations".to_owned();
                    self.story.is_blind(Blind { process, what, why });
                }
                Answer::Symbols(file, symbols) => {
                    self.state.symbols_open = self.state.symbols_open.saturating_sub(1);
                    self.story.messages += 1;
                    info::write_symbols(&mut self.files, file, symbols, self.config.redact);
                }
            }
        }
    }

    fn attached(&mut self, attached: Attached) {
        let now = sys::monotonic_ns();
        // Without a launcher nobody else says what is to be sampled.
        match &self.sampler {
            Some(sampler) if self.linger.is_some() => sampler.cover(attached.pid),
            Some(sampler) if sampler.polls() => {
                self.session.eager.store(true, Release);
                sampler.met(attached.pid);
            }
            Some(_) | None => {}
        }
        if let Some(tracked) = Tracked::place(attached, self, now) {
            self.images.insert(tracked.number, tracked);
        }
    }

    fn ended(&mut self, number: u64, end: End) {
        if let Some(tracked) = self.images.get_mut(&number) {
            tracked.end = Some(end);
            if let Some(sampler) =
                self.sampler.as_ref().filter(|_| self.session.eager.load(Acquire))
            {
                sampler.hurry();
            }
            // From here on a restarted rank gets a file of its own.
            if let Some(open) = self.files.open.get_mut(tracked.file) {
                open.live = open.live.saturating_sub(1);
            }
        }
    }

    fn housekeeping(&mut self, now: u64) {
        self.notice_standstill(sys::monotonic_ns());
        if let Some(most) = self.config.max_size
            && !self.state.full
            && self.files.bytes() >= most
        {
            (self.state.full, self.state.over) = (true, true);
            self.switch(false, "--max-size is reached");
            self.story.lose("events after the limit", "--max-size was reached", 0);
        }
        if self.state.start_at.is_some_and(|at| now >= at) {
            self.state.start_at = None;
            self.switch(true, "--delay is over");
        }
        if self.state.stop_at.is_some_and(|at| now >= at) {
            self.state.stop_at = None;
            self.state.over = true;
            self.switch(false, "--duration is over");
        }
        if now - self.state.threads_at >= THREADS_NS {
            self.state.threads_at = now;
            let Engine { images, files, clock, story, .. } = self;
            for tracked in images.values_mut() {
                tracked.look_after_threads(clock, now, files, story);
            }
        }
        self.assign_samples(now);
        self.write_off(now);
        if now - self.state.cpu_time_at >= CPU_TIME_NS {
            self.state.cpu_time_at = now;
            self.images.values_mut().for_each(Tracked::read_cpu_time);
        }
        if now - self.state.observed_at >= self.config.rss_interval.as_nanos() as u64 {
            self.state.observed_at = now;
            self.observe(now);
        }
        if now - self.state.flushed_at >= FLUSH_NS {
            self.state.flushed_at = now;
            self.clock.join();
            self.flush(now);
        }
    }

    /// Finds samples their processes.
    fn assign_samples(&mut self, now: u64) {
        let Engine { images, files, story, sampled, .. } = self;
        sampled.assign(&mut Room { images, files, story }, None, now);
    }

    /// Whether all samples up to a moment have arrived.
    fn was_sampled(&self, time_ns: u64) -> bool {
        self.state.sampled_until >= time_ns
    }

    /// Finishes images whose process has ended.
    fn write_off(&mut self, now: u64) {
        let gone: Vec<u64> = self
            .images
            .iter()
            .filter(|(_, t)| {
                let sampled = t.end.as_ref().is_none_or(|e| self.was_sampled(e.time_ns));
                let explained = sampled && t.status_is_known(&self.story);
                let age = t.end_age(now);
                let read = t.modules_open == 0 || age > MODULES_NS;
                t.end.is_some() && read && (explained || age > STATUS_NS)
            })
            .map(|(number, _)| *number)
            .collect();
        for number in gone {
            self.finish_image(number, now);
        }
    }

    fn finish_image(&mut self, number: u64, now: u64) {
        // Symbols need the mappings, which must be read while the process lives;
        // what is missing then is said in the report.
        let Some(mut tracked) = self.images.remove(&number) else { return };
        let Engine { files, clock, story, .. } = self;
        tracked.drain_all(clock, now, files, story);
        tracked.learn_modules(u64::MAX, files);
        self.ask_symbols(&mut tracked);
        self.judge_allocators(&mut tracked);
        let Engine { files, clock, story, costs, .. } = self;
        tracked.settle(clock, costs, story);
        tracked.finish(clock, now, files, story, self.always_on);
    }

    /// Says which modules' allocations are not seen: those that map memory for an
    /// allocator of their own.
    fn judge_allocators(&mut self, tracked: &mut Tracked) {
        for module in tracked.mapping_modules() {
            let Some(allocator) = self.allocators.of_module(&module) else { continue };
            let command = self.story.process(tracked.number).map(|row| row.command.as_str());
            let program = proc::program_of(command.unwrap_or_default());
            let library = module.path.file_name().unwrap_or_default().to_string_lossy();
            self.story.is_blind(Blind {
                process: format!("{} {program}", tracked.pid),
                what: "allocations".to_owned(),
                why: elf::own_allocator(&library, &allocator),
            });
        }
    }

    /// Sends addresses that are new to the symbol worker.
    fn ask_symbols(&mut self, tracked: &mut Tracked) {
        let (target, places) = (tracked.symbol_target(), tracked.code.drain_unnamed());
        self.have_named(Nameless { target, places });
    }

    fn have_named(&mut self, Nameless { target, places }: Nameless) {
        let (kernel, user): (Vec<_>, Vec<_>) =
            places.into_iter().partition(|(_, module, _)| module.path == Path::new(KERNEL));
        let user = SymbolsWanted::User(Nameless { target, places: user });
        let kernel = SymbolsWanted::Kernel(Nameless { target, places: kernel });
        for question in [user, kernel] {
            if let SymbolsWanted::User(n) | SymbolsWanted::Kernel(n) = &question
                && !n.places.is_empty()
            {
                self.state.symbols_open += 1;
                let _ = self.workers.symbols.send(question);
            }
        }
    }

    fn observe(&mut self, now: u64) {
        let reading = self.cgroup.read();
        let oom = reading
            .oom_kills
            .zip(self.state.oom_at_start)
            .map(|(now, start)| now.saturating_sub(start));
        info::write_cgroup(&mut self.files, now, &reading, oom);
        for tracked in self.images.values_mut() {
            tracked.observe(now, &mut self.files);
        }
        self.ask_sizes(now);
    }

    /// Asks for the proportional set sizes of ranks that have several live processes: those of
    /// one alone share nothing that counts twice.
    fn ask_sizes(&mut self, now: u64) {
        let Some(sizer) = self.sizer.as_mut().filter(|sizer| sizer.is_due(now)) else { return };
        let mut files: BTreeMap<usize, Vec<Sharer>> = BTreeMap::new();
        for tracked in self.images.values().filter(|tracked| tracked.end.is_none()) {
            let sharer = Sharer { image: tracked.number, pid: tracked.pid, rss: tracked.rss };
            files.entry(tracked.file).or_default().push(sharer);
        }
        files.retain(|_, sharers| sharers.len() > 1);
        if !files.is_empty() {
            sizer.ask(files);
        }
    }

    /// Writes the sizes of a round: those of a file have one time, so that they add up.
    fn take_sizes(&mut self, round: Round) {
        if let Some(sizer) = &mut self.sizer {
            sizer.done(round.took_ns, sys::monotonic_ns(), self.config.rss_interval);
        }
        for Sizes { file, time_ns, sizes } in round.all {
            let Some(open) = self.files.open.get_mut(file) else { continue };
            let sizes = match sizes {
                Ok(sizes) => sizes,
                Err(why) => {
                    if open.sizes_missing.as_ref() != Some(&why) {
                        open.fact(property::NO_PSS, &serde_json::json!(why).to_string());
                        open.sizes_missing = Some(why);
                    }
                    continue;
                }
            };
            let name = open.writer.name(counter::PSS_BYTES);
            for (image, bytes) in sizes {
                if let Some(tracked) = self.images.get(&image) {
                    let process = Some(tracked.image.index);
                    let value = bytes as f64;
                    open.writer.counter(Counter { time_ns, process, device: None, name, value });
                }
            }
        }
    }

    fn flush(&mut self, now: u64) {
        let numbers: Vec<u64> = self.images.keys().copied().collect();
        for number in numbers {
            let Some(mut tracked) = self.images.remove(&number) else { continue };
            tracked.learn_modules(now.saturating_sub(SETTLED_NS), &mut self.files);
            self.ask_symbols(&mut tracked);
            self.judge_allocators(&mut tracked);
            tracked.flush(&self.clock, now, &mut self.files, &mut self.story, self.always_on);
            self.images.insert(number, tracked);
        }
        self.flush_samples(now, false);
        self.devices.write(&mut self.files);
        info::flush_files(&mut self.files, &mut self.story, now);
        if now >= self.state.info_due {
            self.refresh_info();
            self.write_info_now();
            let took = sys::monotonic_ns() - now;
            self.state.info_due = now + INFO_NS.max(took * INFO_SHARE);
        }
    }

    /// Writes samples once a block is worth it, and what processes that did not
    /// attach have gathered.
    fn flush_samples(&mut self, now: u64, last: bool) {
        let explained_ns = now.saturating_sub(STATUS_NS);
        self.sampled.write_ends(explained_ns, &mut self.files, &mut self.story);
        for own in self.sampled.flush_own(now.saturating_sub(SETTLED_NS), &mut self.files) {
            self.have_named(own);
        }
        let due = now - self.state.samples_at >= SAMPLES_NS;
        if due || last {
            self.state.samples_at = now;
        }
        for open in &mut self.files.open {
            let count = open.samples_waiting() as u64;
            if count == 0 || !(due || last || count >= 4096) {
                continue;
            }
            if let Err(e) = open.write_samples() {
                self.story.lose("CPU samples", info::UNWRITTEN, count);
                self.story.complain(&e.to_string());
            }
        }
    }

    fn refresh_info(&mut self) {
        let images: Vec<&Tracked> = self.images.values().collect();
        info::refresh(&mut self.info, &self.story, &images, &self.files, &self.clock, &self.costs);
    }

    /// Writes `run.json`. A disk that refuses it may take it later: that is told at the end.
    fn write_info_now(&mut self) {
        match info::write(&self.info_path, &self.info) {
            Ok(bytes) => {
                self.state.info_bytes = bytes;
                self.reserve.hold(bytes, self.files.open.len());
            }
            Err(source) if self.info.finished => {
                let path = self.info_path.clone();
                self.story.complain(&CollectError::Unwritable { path, source }.to_string());
            }
            Err(_) => {}
        }
    }
}
