//! Opens the counters of a run, as many and as rich as the machine allows.
//!
//! One clock per thread tree and processor: a ring can be mapped only for a
//! counter that is bound to one processor if the counter is inherited. All
//! counters of a processor write into one ring.

use super::events::Counted;
use crate::config::{PerfEvent, StackMode};
use crate::os::proc;
use crate::perf::record::{FIELDS, Layout, REGISTERS, WITH_STACK};
use crate::perf::{Attr, Counter, Ring, attr_of};
use perf_event_open_sys::bindings::{
    PERF_COUNT_SW_CONTEXT_SWITCHES, PERF_COUNT_SW_CPU_CLOCK, PERF_COUNT_SW_PAGE_FAULTS_MAJ,
    PERF_COUNT_SW_PAGE_FAULTS_MIN, PERF_FORMAT_TOTAL_TIME_RUNNING, PERF_TYPE_SOFTWARE,
};
use std::collections::HashMap;
use std::io;

/// Rings, largest first. Without privileges the kernel grants 512 KiB a
/// processor by default (`perf_event_mlock_kb`).
const RING_BYTES: [usize; 5] = [4 << 20, 1 << 20, 512 << 10, 128 << 10, 32 << 10];
/// All rings together, where one can be this small and still hold a tenth of a
/// second.
const RINGS_BYTES: usize = 16 << 20;
/// Up to so many samples a second, each wakes the sampler, so that Python's frames are
/// read at once. At 999 Hz that cost the job's threads one percent of their time
/// (3.4 % in all, 2.4 % without; virtual processors wake each other dearly).
const WAKE_UPS: u32 = 250;
/// Counters of a process that runs already, at most.
const MOST_COUNTERS: usize = 8192;

/// What is asked for.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// Samples a second.
    pub rate: u32,
    /// How stacks are taken.
    pub stacks: StackMode,
    /// What is counted beside time.
    pub events: Vec<PerfEvent>,
}

/// What a counter is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Samples of running threads, and all other records.
    Clock,
    /// Samples of threads that leave their processor.
    Leave,
    /// Counts of events.
    Event(PerfEvent),
}

/// Kinds of page faults.
const FAULTS: [u32; 2] = [PERF_COUNT_SW_PAGE_FAULTS_MIN, PERF_COUNT_SW_PAGE_FAULTS_MAJ];

/// Open counters and their rings.
#[derive(Debug, Default)]
pub struct Counters {
    counters: Vec<Counter>,
    /// Which of them count time.
    clocks: Vec<usize>,
    /// By processor: the index of the counter that owns the ring, and the ring.
    pub rings: Vec<(u32, usize, Ring)>,
    purpose: HashMap<u64, Purpose>,
    /// By thread that counters were opened of: its own faults, not those of
    /// threads that it started.
    own: HashMap<u32, [Counter; 2]>,
    /// What the machine refused: kernel frames, stacks of waits.
    pub kernel_refused: Option<i32>,
    /// Samples hold registers and stack.
    pub with_stack: bool,
    /// What is counted beside time.
    pub(super) events: Vec<Counted>,
    /// Events that could not be counted although the machine can, and why.
    pub(super) refused_events: Vec<(PerfEvent, String)>,
}

/// Online processors.
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

impl Wanted {
    /// Nanoseconds between two samples.
    pub fn period_ns(&self) -> u64 {
        1_000_000_000 / u64::from(self.rate.max(1))
    }

    /// Whether samples wake the sampler. Else it looks by itself; a ring that is half
    /// full wakes it always.
    pub fn wakes(&self) -> bool {
        self.rate <= WAKE_UPS
    }

    /// Whether samples hold registers and stack, to be unwound here.
    fn with_stack(&self) -> bool {
        !matches!(self.stacks, StackMode::Fp | StackMode::Off) && cfg!(target_arch = "x86_64")
    }

    /// Bytes of stack in a sample: deep at low rates, cheap at high ones.
    fn stack_bytes(&self) -> u32 {
        match self.rate {
            ..=250 => 32 << 10,
            251..=2000 => 16 << 10,
            _ => 8 << 10,
        }
    }

    /// Samples of running threads, and all other records.
    fn clock(&self, kernel: bool, on_exec: bool) -> Attr {
        let mut attr = sampling(PERF_TYPE_SOFTWARE, PERF_COUNT_SW_CPU_CLOCK, kernel, on_exec);
        attr.sample_period = self.period_ns();
        attr.set_mmap(1);
        attr.set_mmap2(1);
        attr.set_comm(1);
        attr.set_comm_exec(1);
        attr.set_task(1);
        attr.set_context_switch(1);
        self.with_stacks(attr)
    }

    /// Samples of threads that leave their processor.
    fn leave(&self, on_exec: bool) -> Attr {
        let mut attr = sampling(PERF_TYPE_SOFTWARE, PERF_COUNT_SW_CONTEXT_SWITCHES, true, on_exec);
        attr.set_freq(1);
        attr.sample_freq = self.rate.into();
        self.with_stacks(attr)
    }

    fn with_stacks(&self, mut attr: Attr) -> Attr {
        let with_stack = self.with_stack();
        attr.set_exclude_callchain_user((with_stack || self.stacks == StackMode::Off).into());
        attr.set_exclude_callchain_kernel(attr.exclude_kernel());
        attr.sample_type = FIELDS;
        attr.wakeup_events = self.wakes().into();
        if with_stack {
            attr.sample_type |= WITH_STACK;
            attr.sample_regs_user = REGISTERS;
            attr.sample_stack_user = self.stack_bytes();
        }
        attr
    }
}

/// What all counters that sample have: a whole tree of threads, on the run's clock.
pub(super) fn sampling(kind: u32, config: u32, kernel: bool, on_exec: bool) -> Attr {
    let mut attr = attr_of(kind, config);
    attr.read_format = PERF_FORMAT_TOTAL_TIME_RUNNING.into();
    attr.set_disabled(1);
    attr.set_inherit(1);
    attr.set_exclude_hv(1);
    attr.set_sample_id_all(1);
    attr.set_use_clockid(1);
    attr.clockid = libc::CLOCK_MONOTONIC;
    attr.set_enable_on_exec(on_exec.into());
    attr.set_exclude_kernel((!kernel).into());
    attr
}

impl Counters {
    /// Opens counters of threads and what they will start, on every processor.
    /// `on_exec`: they begin with the next exec.
    pub fn open(&mut self, wanted: &Wanted, tids: &[u32], on_exec: bool) -> io::Result<()> {
        let processors = processors();
        if tids.len() * processors.len() > MOST_COUNTERS {
            return Err(io::Error::from_raw_os_error(libc::EMFILE));
        }
        self.with_stack = wanted.with_stack();
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
            for cpu in &processors {
                match self.open_one(wanted, *tid, *cpu, on_exec) {
                    Ok(()) => self.open_events(wanted, *tid, *cpu, on_exec),
                    // A thread that is gone, a processor that went offline.
                    Err(e) if e.raw_os_error() == Some(libc::ENODEV) => {}
                    Err(e) if e.raw_os_error() == Some(libc::ESRCH) && tids.len() > 1 => {}
                    Err(e) => return Err(e),
                }
            }
        }
        match self.counters.is_empty() {
            true => Err(io::Error::from_raw_os_error(libc::ESRCH)),
            false => Ok(()),
        }
    }

    fn open_one(&mut self, wanted: &Wanted, tid: u32, cpu: u32, on_exec: bool) -> io::Result<()> {
        let open = |attr: Attr| Counter::open(&attr, tid as i32, cpu as i32);
        let clock = match self.kernel_refused {
            Some(_) => open(wanted.clock(false, on_exec))?,
            None => match open(wanted.clock(true, on_exec)) {
                Ok(counter) => counter,
                Err(e) if matches!(e.raw_os_error(), Some(libc::EACCES | libc::EPERM)) => {
                    let counter = open(wanted.clock(false, on_exec))?;
                    self.kernel_refused = e.raw_os_error();
                    counter
                }
                Err(e) => return Err(e),
            },
        };
        self.take(clock, Purpose::Clock, cpu, on_exec)?;
        // Leaving a processor happens in the kernel: where that may not be seen,
        // there is nothing to sample.
        if self.kernel_refused.is_none() && wanted.stacks != StackMode::Off {
            let leave = open(wanted.leave(on_exec))?;
            self.take(leave, Purpose::Leave, cpu, on_exec)?;
        }
        Ok(())
    }

    /// Minor and major faults of a thread that has ended; `None` if they are not
    /// known, as of all threads that began while they were watched. Counters that
    /// pass on to those and tell of each end (`inherit_stat`) made the kernel
    /// (6.18) leave out the ends of some: 500 of 12,000.
    pub fn faults_of_ended(&mut self, tid: u32) -> Option<[u64; 2]> {
        let [minor, major] = self.own.remove(&tid)?;
        Some([minor.value().ok()?, major.value().ok()?])
    }

    /// Those of a thread that runs on.
    pub fn faults_of_live(&mut self, pid: u32, tid: u32) -> Option<[u64; 2]> {
        match self.own.contains_key(&tid) {
            true => self.faults_of_ended(tid),
            // It began while it was watched: all its faults count.
            false => proc::Stat::of_thread(pid, tid)?.faults(),
        }
    }

    /// Gives a counter its ring, and lets it count.
    fn take(
        &mut self,
        counter: Counter,
        purpose: Purpose,
        cpu: u32,
        on_exec: bool,
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
        self.begin(&counter, purpose, on_exec)?;
        if purpose == Purpose::Clock {
            self.clocks.push(self.counters.len());
        }
        self.counters.push(counter);
        Ok(())
    }

    /// Lets a counter write into the ring that its processor has.
    pub(super) fn admit(
        &mut self,
        counter: &Counter,
        purpose: Purpose,
        cpu: u32,
        on_exec: bool,
    ) -> io::Result<()> {
        let ring = self.rings.iter().find(|r| r.0 == cpu);
        let (_, owner, _) = ring.ok_or_else(|| io::Error::from_raw_os_error(libc::ENODEV))?;
        counter.share_ring_of(&self.counters[*owner])?;
        self.begin(counter, purpose, on_exec)
    }

    /// Lets a counter that has a ring count.
    fn begin(&mut self, counter: &Counter, purpose: Purpose, on_exec: bool) -> io::Result<()> {
        self.purpose.insert(counter.id()?, purpose);
        if !on_exec {
            counter.enable()?;
        }
        Ok(())
    }

    /// What a sample's counter is for.
    ///
    /// Where another profiler counts how threads leave their processors as well, the kernel
    /// (6.18) writes one's samples with the id of the other's counter: all counters of a
    /// software event share what it prepared for the first. The clock's are never shared.
    pub fn purpose(&self, id: u64) -> Purpose {
        self.purpose.get(&id).copied().unwrap_or(Purpose::Leave)
    }

    /// What a counter's samples hold.
    pub fn layout(&self, id: u64) -> Layout {
        match self.purpose(id) {
            Purpose::Event(event) => event.layout(),
            Purpose::Clock | Purpose::Leave if self.with_stack => Layout::Stack,
            Purpose::Clock | Purpose::Leave => Layout::Chain,
        }
    }

    /// The counters of time.
    pub(super) fn clocks(&self) -> impl Iterator<Item = &Counter> {
        self.clocks.iter().map(|at| &self.counters[*at])
    }

    /// Stops them all.
    pub fn disable(&self) {
        let events = self.events.iter().flat_map(|of| &of.counters);
        for counter in self.counters.iter().chain(events) {
            let _ = counter.disable();
        }
    }

    /// The counter that owns a ring.
    pub fn owner(&self, at: usize) -> &Counter {
        &self.counters[self.rings[at].1]
    }
}

/// Why counters could not be opened, and what would allow them.
pub fn why_refused(error: &io::Error) -> String {
    let level = proc::setting("kernel/perf_event_paranoid");
    match error.raw_os_error() {
        Some(libc::EACCES | libc::EPERM) => refused_at(level.as_deref()),
        Some(libc::ENOSYS) => {
            "this kernel, or a seccomp profile, has no perf_event_open".to_owned()
        }
        Some(libc::EMFILE | libc::ENFILE) => {
            "too many counters would have to be open: one for each thread and processor".to_owned()
        }
        Some(libc::ESRCH) => "the process is gone".to_owned(),
        _ => format!("perf_event_open failed: {error}"),
    }
}

/// Why it is not permitted, by `kernel.perf_event_paranoid`: up to 2 it is.
fn refused_at(level: Option<&str>) -> String {
    match level.map(|level| (level.trim(), level.trim().parse::<i32>())) {
        Some((_, Ok(level @ 3..))) => format!(
            "perf_event_open is not permitted (kernel.perf_event_paranoid is {level}); \
             `sysctl kernel.perf_event_paranoid=1` or CAP_PERFMON would allow it"
        ),
        Some((level, _)) => format!(
            "perf_event_open is refused although kernel.perf_event_paranoid is {level}: by a seccomp \
             profile, as in most containers, where `--cap-add PERFMON` would allow it"
        ),
        None => "perf_event_open is not permitted, by a seccomp profile or the kernel".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_names_what_would_allow_it() {
        assert!(refused_at(Some("3\n")).contains("sysctl kernel.perf_event_paranoid=1"));
        let profile = refused_at(Some("2\n"));
        assert!(profile.contains("seccomp") && !profile.contains("sysctl"), "{profile}");
        assert!(refused_at(None).contains("not permitted"));
    }
}
