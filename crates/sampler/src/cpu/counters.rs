//! Opens the perf counters of a run: as many and as detailed as the machine permits.
//!
//! Each sampled tree of threads has one clock per processor, because the ring of an inherited
//! counter can be mapped only if the counter is bound to one processor. All counters of a processor
//! write into one ring.

use super::events::EventCounters;
use super::options::SamplingOptions;
use super::refusal::why_refused;
use crate::config::{PerfEvent, StackMode};
use crate::perf::record::Layout;
use crate::perf::{Attr, Counter, Ring, attr_of};
use perf_event_open_sys::bindings::{
    PERF_COUNT_SW_PAGE_FAULTS_MAJ, PERF_COUNT_SW_PAGE_FAULTS_MIN, PERF_TYPE_SOFTWARE,
};
use std::collections::{HashMap, HashSet};
use std::io;
use tprof_os::proc;

/// Sizes of rings that are tried, largest first. By default the kernel grants a user without
/// privileges 512 KiB per processor (`perf_event_mlock_kb`).
const RING_BYTES: [usize; 5] = [4 << 20, 1 << 20, 512 << 10, 128 << 10, 32 << 10];
/// Bytes of all rings together. This limit never makes a ring smaller than 512 KiB, which is enough
/// for a tenth of a second.
const RINGS_BYTES: usize = 16 << 20;
/// Number of counters that may be opened for a process that already runs.
const MAX_COUNTERS: usize = 8192;

/// What a counter records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Samples of running threads, and context switches.
    Clock,
    /// Samples of threads that leave their processor.
    Leave,
    /// Counts of events.
    Event(PerfEvent),
}

/// When a new counter starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Start {
    OnExec,
    Now,
    /// When the counters are no longer paused.
    Off,
}

impl Start {
    fn running(on_exec: bool) -> Start {
        if on_exec { Start::OnExec } else { Start::Now }
    }
}

/// The kernel's numbers of minor and major page faults.
const FAULTS: [u32; 2] = [PERF_COUNT_SW_PAGE_FAULTS_MIN, PERF_COUNT_SW_PAGE_FAULTS_MAJ];

/// The open counters of a run, and their rings.
#[derive(Debug, Default)]
pub struct Counters {
    counters: Vec<Counter>,
    /// Indexes of the counters that count time.
    clocks: Vec<usize>,
    /// Indexes of the counters that only report programs, threads and mappings. They are never
    /// paused. Empty unless the run's options pause the sampler: then the clocks report.
    reporters: HashSet<usize>,
    /// Whether all counters but `reporters` are off.
    is_paused: bool,
    /// For each processor: its number, the index of the counter that owns the ring, and the ring.
    pub rings: Vec<(u32, usize, Ring)>,
    purpose: HashMap<u64, Purpose>,
    /// For each thread that counters were opened for, two counters of its own page faults. Faults
    /// of threads that it started aren't included.
    own: HashMap<u32, [Counter; 2]>,
    /// The error number with which the kernel refused to record its frames and the stacks of waits;
    /// `None` if it permits that.
    pub kernel_refused: Option<i32>,
    /// Whether samples contain the registers and the top of the stack.
    pub with_stack: bool,
    /// Counters of events that aren't time.
    pub(super) events: Vec<EventCounters>,
    /// Events that this machine can count, but whose counters were refused, with the reason.
    pub(super) refused_events: Vec<(PerfEvent, String)>,
}

/// Lists the online processors.
pub fn processors() -> Vec<u32> {
    let text = std::fs::read_to_string("/sys/devices/system/cpu/online").unwrap_or_default();
    let mut all = Vec::new();
    for part in text.trim().split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        if let (Ok(first), Ok(last)) = (first.parse(), last.parse::<u32>()) {
            all.extend(first..=last.min(16_384));
        }
    }
    if all.is_empty() {
        all.extend(0..std::thread::available_parallelism().map_or(1, |n| n.get() as u32));
    }
    all
}

/// Fails if the machine doesn't permit counters of so many threads on every processor.
fn permits(tids: &[u32]) -> io::Result<()> {
    match tids.len() * processors().len() > MAX_COUNTERS {
        true => Err(io::Error::from_raw_os_error(libc::EMFILE)),
        false => Ok(()),
    }
}

impl Counters {
    /// Opens counters on every processor, for these threads and for the threads that they will
    /// start. With `on_exec` the counters begin at the next exec.
    pub fn open(
        &mut self,
        wanted: &SamplingOptions,
        tids: &[u32],
        on_exec: bool,
    ) -> io::Result<()> {
        permits(tids)?;
        self.with_stack = wanted.with_stack();
        let before = self.counters.len();
        for tid in tids {
            let own = [0, 1].map(|kind| {
                let mut attr = attr_of(PERF_TYPE_SOFTWARE, FAULTS[kind]);
                attr.set_disabled(1);
                attr.set_exclude_hv(1);
                attr.set_exclude_kernel(1);
                attr.set_enable_on_exec(on_exec.into());
                let counter = Counter::open(&attr, *tid as i32, -1)?;
                (if on_exec { Ok(()) } else { counter.enable() }).map(|()| counter)
            });
            if let [Ok(minor), Ok(major)] = own {
                self.own.insert(*tid, [minor, major]);
            }
        }
        self.open_everywhere(wanted, tids, on_exec, Counters::open_one)?;
        // A single thread that has ended is a process that is gone.
        let is_gone = tids.len() == 1 && self.counters.len() == before;
        match is_gone || self.counters.is_empty() {
            true => Err(io::Error::from_raw_os_error(libc::ESRCH)),
            false => Ok(()),
        }
    }

    /// Opens counters for each of these threads on each processor, by `open`, and those of events. A
    /// thread that has ended has none.
    fn open_everywhere(
        &mut self,
        wanted: &SamplingOptions,
        tids: &[u32],
        on_exec: bool,
        open: fn(&mut Counters, &SamplingOptions, u32, u32, bool) -> io::Result<()>,
    ) -> io::Result<()> {
        let processors = processors();
        for tid in tids {
            for cpu in &processors {
                match open(self, wanted, *tid, *cpu, on_exec) {
                    Ok(()) => self.open_events(wanted, *tid, *cpu, on_exec),
                    // The thread has ended, or the processor has gone offline.
                    Err(e) if matches!(e.raw_os_error(), Some(libc::ENODEV | libc::ESRCH)) => {}
                    Err(e) => return Err(e),
                }
            }
        }
        Ok(())
    }

    fn open_one(
        &mut self,
        wanted: &SamplingOptions,
        tid: u32,
        cpu: u32,
        on_exec: bool,
    ) -> io::Result<()> {
        let open = |attr: Attr| Counter::open(&attr, tid as i32, cpu as i32);
        if wanted.pauses {
            let reporter = open(wanted.report(on_exec))?;
            self.take(reporter, None, cpu, Start::running(on_exec))?;
            self.reporters.insert(self.counters.len() - 1);
        }
        self.open_sampling(wanted, tid, cpu, on_exec)
    }

    /// Opens the counters of a thread that take samples.
    fn open_sampling(
        &mut self,
        wanted: &SamplingOptions,
        tid: u32,
        cpu: u32,
        on_exec: bool,
    ) -> io::Result<()> {
        let open = |attr: Attr| Counter::open(&attr, tid as i32, cpu as i32);
        let start = self.start(on_exec);
        let attr = |kernel| wanted.clock(kernel, start == Start::OnExec);
        let clock = match self.kernel_refused {
            Some(_) => open(attr(false))?,
            None => match open(attr(true)) {
                Ok(counter) => counter,
                Err(e) if matches!(e.raw_os_error(), Some(libc::EACCES | libc::EPERM)) => {
                    let counter = open(attr(false))?;
                    self.kernel_refused = e.raw_os_error();
                    counter
                }
                Err(e) => return Err(e),
            },
        };
        self.take(clock, Some(Purpose::Clock), cpu, start)?;
        self.clocks.push(self.counters.len() - 1);
        // A thread leaves a processor while it is in the kernel. If the kernel may not be sampled,
        // a counter of such events records nothing.
        if self.kernel_refused.is_none() && wanted.stacks != StackMode::Off {
            let leave = open(wanted.leave(start == Start::OnExec))?;
            self.take(leave, Some(Purpose::Leave), cpu, start)?;
        }
        Ok(())
    }

    /// Replaces all counters that take samples by new ones with these options, for these threads and
    /// those that they will start. The counters that report programs, threads and mappings stay, and
    /// the rings with them. Nothing is closed if the machine doesn't permit so many counters.
    pub fn reopen(&mut self, wanted: &SamplingOptions, tids: &[u32]) -> io::Result<()> {
        permits(tids)?;
        let mut places = HashMap::new();
        let mut kept = Vec::new();
        for (at, counter) in std::mem::take(&mut self.counters).into_iter().enumerate() {
            if self.reporters.contains(&at) {
                places.insert(at, kept.len());
                kept.push(counter);
            }
        }
        self.counters = kept;
        self.reporters = (0..self.counters.len()).collect();
        for (_, owner, _) in &mut self.rings {
            // A thread's first counter of a processor is one that reports, so it owns the ring.
            *owner = places.get(owner).copied().unwrap_or_default();
        }
        self.clocks.clear();
        self.events.clear();
        self.open_everywhere(wanted, tids, false, Counters::open_sampling)
    }

    /// Returns the minor and major faults of a thread that has ended. For a thread that began while
    /// its process was sampled they are unknown (`None`). Inherited counters that report the end of
    /// each thread (`inherit_stat`) could tell them, but with such counters the kernel (6.18) left
    /// out the ends of 500 of 12,000 threads.
    pub fn faults_of_ended(&mut self, tid: u32) -> Option<[u64; 2]> {
        let [minor, major] = self.own.remove(&tid)?;
        Some([minor.value().ok()?, major.value().ok()?])
    }

    /// Returns the minor and major faults of a thread that still runs.
    pub fn faults_of_live(&mut self, pid: u32, tid: u32) -> Option<[u64; 2]> {
        match self.own.contains_key(&tid) {
            true => self.faults_of_ended(tid),
            // The thread began while its process was sampled, so all of its faults count.
            false => proc::Stat::of_thread(pid, tid)?.faults(),
        }
    }

    /// Returns when a new counter starts that is stopped while the counters are paused.
    fn start(&self, on_exec: bool) -> Start {
        if self.is_paused { Start::Off } else { Start::running(on_exec) }
    }

    /// Makes a counter write into its processor's ring, which is created if needed, and starts the
    /// counter. `purpose` is that of its samples; `None` if it takes none.
    fn take(
        &mut self,
        counter: Counter,
        purpose: Option<Purpose>,
        cpu: u32,
        start: Start,
    ) -> io::Result<()> {
        match self.rings.iter().find(|r| r.0 == cpu) {
            Some((_, owner, _)) => counter.share_ring_of(&self.counters[*owner])?,
            None => {
                let mut ring = Err(io::Error::from_raw_os_error(libc::EPERM));
                let most = (RINGS_BYTES / processors().len()).max(512 << 10);
                for bytes in RING_BYTES.into_iter().filter(|bytes| *bytes <= most) {
                    ring = Ring::new(&counter, bytes);
                    if ring.is_ok() {
                        break;
                    }
                }
                self.rings.push((cpu, self.counters.len(), ring?));
            }
        }
        self.begin(&counter, purpose, start)?;
        self.counters.push(counter);
        Ok(())
    }

    /// Makes a counter write into the existing ring of its processor, and starts the counter.
    fn admit(
        &mut self,
        counter: &Counter,
        purpose: Purpose,
        cpu: u32,
        start: Start,
    ) -> io::Result<()> {
        let ring = self.rings.iter().find(|r| r.0 == cpu);
        let (_, owner, _) = ring.ok_or_else(|| io::Error::from_raw_os_error(libc::ENODEV))?;
        counter.share_ring_of(&self.counters[*owner])?;
        self.begin(counter, Some(purpose), start)
    }

    /// Registers a counter that has a ring, and starts it.
    fn begin(
        &mut self,
        counter: &Counter,
        purpose: Option<Purpose>,
        start: Start,
    ) -> io::Result<()> {
        if let Some(purpose) = purpose {
            self.purpose.insert(counter.id()?, purpose);
        }
        match start {
            Start::Now => counter.enable(),
            Start::OnExec | Start::Off => Ok(()),
        }
    }

    /// Returns the purpose of the counter whose id a sample contains.
    ///
    /// An unknown id means [`Purpose::Leave`]. If another profiler samples context switches as
    /// well, the kernel (6.18) may write a sample with the id of that profiler's counter, because
    /// the counters of a software event share the data of a sample. Samples of the clock always
    /// have the right id.
    pub fn purpose(&self, id: u64) -> Purpose {
        self.purpose.get(&id).copied().unwrap_or(Purpose::Leave)
    }

    /// Returns the layout of a counter's samples.
    pub fn layout(&self, id: u64) -> Layout {
        match self.purpose(id) {
            Purpose::Event(event) => event.layout(),
            Purpose::Clock | Purpose::Leave if self.with_stack => Layout::Stack,
            Purpose::Clock | Purpose::Leave => Layout::Chain,
        }
    }

    /// Knows the counters of the fuzz target `perf`: 1 and 2 count time, and the next ones events.
    #[cfg(feature = "fuzzing")]
    pub fn pretend(&mut self, with_stack: bool, events: [PerfEvent; 2]) {
        let purposes = [Purpose::Clock, Purpose::Leave].into_iter();
        self.purpose = (1..).zip(purposes.chain(events.map(Purpose::Event))).collect();
        self.with_stack = with_stack;
    }

    /// Returns the counters that count time.
    pub(super) fn clocks(&self) -> impl Iterator<Item = &Counter> {
        self.clocks.iter().map(|at| &self.counters[*at])
    }

    /// Stops all counters.
    pub fn disable(&self) {
        let events = self.events.iter().flat_map(|of| &of.counters);
        for counter in self.counters.iter().chain(events) {
            let _ = counter.disable();
        }
    }

    /// Stops or starts all counters but those that report programs, threads and mappings. Threads
    /// that start meanwhile inherit them as they are.
    pub fn pause(&mut self, is_paused: bool) {
        self.is_paused = is_paused;
        let events = self.events.iter().flat_map(|of| &of.counters);
        let others = self.counters.iter().enumerate();
        let others = others.filter(|(at, _)| !self.reporters.contains(at)).map(|(_, of)| of);
        for counter in others.chain(events) {
            let _ = if is_paused { counter.disable() } else { counter.enable() };
        }
    }

    /// Whether there are counters, but none reports context switches now.
    pub fn lacks_switches(&self) -> bool {
        self.is_paused && !self.clocks.is_empty()
    }

    /// Returns the counter that owns a ring.
    pub fn owner(&self, at: usize) -> &Counter {
        &self.counters[self.rings[at].1]
    }

    /// Opens a thread's counters of events, on a processor that has a ring. If an event is refused,
    /// no further counter of it is opened.
    pub(super) fn open_events(
        &mut self,
        wanted: &SamplingOptions,
        tid: u32,
        cpu: u32,
        on_exec: bool,
    ) {
        let kernel = self.kernel_refused.is_none();
        if self.events.is_empty() {
            let counted = |event: &PerfEvent| EventCounters {
                event: *event,
                counters: Vec::new(),
                refused: false,
            };
            self.events = wanted.events.iter().map(counted).collect();
        }
        for at in 0..self.events.len() {
            let EventCounters { event, refused: false, .. } = self.events[at] else { continue };
            let start = self.start(on_exec);
            let attr = event.attr(wanted.rate, kernel, start == Start::OnExec);
            let opened = Counter::open(&attr, tid as i32, cpu as i32).and_then(|counter| {
                self.admit(&counter, Purpose::Event(event), cpu, start)?;
                Ok(counter)
            });
            match opened {
                Ok(counter) => self.events[at].counters.push(counter),
                // The thread has ended, or the processor has gone offline.
                Err(e) if matches!(e.raw_os_error(), Some(libc::ENODEV | libc::ESRCH)) => {}
                Err(e) => {
                    self.events[at].refused = true;
                    self.refused_events.push((event, why_refused(&e)));
                }
            }
        }
    }

    /// Returns for each event the share of the time on a core in which the event was counted. The
    /// share is below 1 if the processor has too few counters, so that they take turns.
    ///
    /// The clock runs whenever events are counted, so the share is computed from its time. The
    /// enabled time of a counter is no measure: it continues while the thread is on another
    /// processor, so with two processors it is twice the time.
    pub fn event_shares(&self) -> Vec<(PerfEvent, f64)> {
        let ran = |counters: &mut dyn Iterator<Item = &Counter>| -> u64 {
            counters.filter_map(|counter| counter.ran_ns().ok()).sum()
        };
        let whole_ns = ran(&mut self.clocks());
        let share =
            |of: &EventCounters| (of.event, ran(&mut of.counters.iter()) as f64 / whole_ns as f64);
        let shares = self.events.iter().map(share);
        shares.filter(|_| whole_ns > 0).map(|(event, share)| (event, share.min(1.0))).collect()
    }
}
