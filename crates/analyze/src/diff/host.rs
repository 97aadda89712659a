//! What a side's hosts did: CPU time by function and library, waits by cause, threads,
//! the heap by site. Sums over ranks, each with the variance that sampling leaves it.

use rustc_hash::{FxHashMap, FxHashSet};
use tprof_facts::frames::NO_STACK;
use tprof_facts::labels;
use tprof_trace::TraceFile;
use tprof_trace::model::{Process, ThreadState};

use crate::base::reading::Reading;
use crate::cpu::shown;
use crate::memory::RankMemory;
use crate::rank::RankTrace;
use crate::rank::samples::Layer;
use crate::rank::samples::word;

/// What is compared by name of a side's hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum HostSort {
    /// CPU time of functions, code that was inlined into them included.
    Function,
    /// CPU time of Python's functions, with the native code that they call.
    Python,
    /// CPU time of the files with the code.
    Module,
    /// Time off a core, by what it waited for.
    Wait,
    /// Threads by program and name: how many, and how long they ran.
    Thread,
    /// Bytes that a host stack allocated.
    Site,
}

/// Time or bytes under one name.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Amount {
    /// Nanoseconds, or bytes.
    pub value: f64,
    /// Its variance: what sampling leaves open.
    pub variance: f64,
    /// Samples, waits, threads or allocations.
    pub count: f64,
}

impl Amount {
    fn add(&mut self, other: Amount) {
        self.value += other.value;
        self.variance += other.variance;
        self.count += other.count;
    }

    /// Half the width of the 95 % interval.
    pub fn error(&self) -> f64 {
        Z * self.variance.sqrt()
    }
}

/// Half the width of the 95 % interval of a normal variable, in standard deviations.
pub(super) const Z: f64 = 1.96;

/// Amounts by name, and where the named code is.
pub type Amounts = FxHashMap<(HostSort, String, String), Amount>;

/// What the hosts of a side did, summed over its ranks.
#[derive(Clone, Debug, Default)]
pub struct HostActivity {
    /// Ranks that were added up.
    pub ranks: u64,
    /// Of these, ranks with CPU samples.
    pub sampled: u64,
    /// Of these, ranks with a record of the heap.
    pub with_heap: u64,
    /// By name.
    pub amounts: Amounts,
    /// Time on a core, all threads.
    pub cpu: Amount,
    /// Processes, each once however many programs it became.
    pub processes: u64,
    /// Threads.
    pub threads: u64,
}

impl HostActivity {
    /// Of one rank.
    pub fn of(rank: &RankTrace<'_>, memory: &RankMemory) -> HostActivity {
        let pids: FxHashSet<u32> = rank.file.processes().iter().map(|row| row.pid).collect();
        let mut host = HostActivity {
            ranks: 1,
            sampled: u64::from(rank.cpu.rows > 0),
            with_heap: u64::from(memory.host_memory.allocations.get().is_some()),
            processes: pids.len() as u64,
            threads: rank.file.threads().len() as u64,
            ..HostActivity::default()
        };
        host.add_samples(rank);
        host.add_sites(memory);
        host
    }

    /// Adds another rank.
    pub fn add(&mut self, other: HostActivity) {
        self.ranks += other.ranks;
        self.sampled += other.sampled;
        self.with_heap += other.with_heap;
        self.processes += other.processes;
        self.threads += other.threads;
        self.cpu.add(other.cpu);
        for (key, amount) in other.amounts {
            self.amounts.entry(key).or_default().add(amount);
        }
    }

    /// A rank's mean.
    pub fn mean(&self, amount: Amount) -> Amount {
        let ranks = self.ranks.max(1) as f64;
        Amount {
            value: amount.value / ranks,
            variance: amount.variance / (ranks * ranks),
            count: amount.count / ranks,
        }
    }

    /// CPU time of a rank, all threads.
    pub fn cpu_time(&self) -> Reading<u64> {
        if self.sampled == 0 {
            return Reading::missing("there are no CPU samples");
        }
        let mean = self.mean(self.cpu);
        let whole = |ns: f64| ns.round() as u64;
        Reading::Estimate { value: whole(mean.value), error: whole(mean.error()) }
    }

    /// Time in which threads could have run and no core was free, in parts of the time in
    /// which they ran.
    pub fn ready(&self) -> Option<f64> {
        let key = (HostSort::Wait, word(ThreadState::Runnable).to_owned(), String::new());
        let ready = self.amounts.get(&key).map_or(0.0, |amount| amount.value);
        (self.cpu.value > 0.0).then(|| ready / self.cpu.value)
    }

    fn put(&mut self, sort: HostSort, name: impl Into<String>, of: &str, amount: Amount) {
        self.amounts.entry((sort, name.into(), of.to_owned())).or_default().add(amount);
    }

    fn add_samples(&mut self, rank: &RankTrace<'_>) {
        let cpu = &rank.cpu;
        // Names are written out once each: many stretches have the same.
        let mut sums: FxHashMap<(HostSort, u32), Amount> = FxHashMap::default();
        let mut waits: FxHashMap<ThreadState, Amount> = FxHashMap::default();
        let mut threads: FxHashMap<u32, (u32, Amount)> = FxHashMap::default();
        for stretch in &cpu.stretches {
            let value = stretch.weight_ns as f64;
            if stretch.state != ThreadState::Running {
                let count = stretch.samples as f64;
                let amount = Amount { value, variance: stretch.variance, count };
                waits.entry(stretch.state).or_default().add(amount);
                continue;
            }
            // Each sample stands for a period: so many of them lie about that far off.
            let variance = match stretch.stack.is_empty() {
                true => 0.0,
                false => value * value / stretch.samples.max(1) as f64,
            };
            let amount = Amount { value, variance, count: stretch.samples as f64 };
            self.cpu.add(amount);
            let thread = threads.entry(stretch.thread).or_default();
            thread.0 = stretch.process;
            thread.1.add(Amount { count: 0.0, ..amount });
            let Some(innermost) = stretch.stack.get(stretch.inlined).or(stretch.stack.first())
            else {
                continue;
            };
            sums.entry((HostSort::Function, *innermost)).or_default().add(amount);
            let mut python = stretch.stack.iter();
            if let Some(own) = python.find(|id| cpu.names.get(**id).layer == Layer::Python) {
                sums.entry((HostSort::Python, *own)).or_default().add(amount);
            }
        }
        for ((sort, id), amount) in sums {
            let func = cpu.names.get(id);
            self.put(sort, shown(func), &func.module, amount);
            if sort == HostSort::Function {
                let module = if func.module.is_empty() { "(no known file)" } else { &func.module };
                self.put(HostSort::Module, module, "", amount);
            }
        }
        for (state, amount) in waits {
            self.put(HostSort::Wait, word(state), "", amount);
        }
        let programs = programs(rank.file);
        for (thread, (process, amount)) in threads {
            let program = programs.get(&process).map_or("", |name| name);
            let name = match rank.file.thread_name(thread) {
                Some(name) if name != program => format!("{name} of {program}"),
                _ => program.to_owned(),
            };
            self.put(HostSort::Thread, name, "", Amount { count: 1.0, ..amount });
        }
    }

    fn add_sites(&mut self, memory: &RankMemory) {
        for site in &memory.host_memory.sites {
            let Some(bytes) = site.bytes.get() else { continue };
            let error = site.bytes.error().copied().unwrap_or(0) as f64;
            let amount = Amount {
                value: bytes as f64,
                variance: (error / Z).powi(2),
                count: site.allocations.get().unwrap_or(0) as f64,
            };
            let frames: Vec<&str> = site.stack.iter().map(|frame| &**frame).collect();
            let name = match frames.is_empty() {
                true => NO_STACK.to_owned(),
                false => frames.join(" < "),
            };
            self.put(HostSort::Site, name, "", amount);
        }
    }
}

/// Base names of programs, by process.
fn programs(file: &TraceFile) -> FxHashMap<u32, String> {
    let program = |row: &Process| labels::program(file.name(row.command)).to_owned();
    file.processes().iter().map(|row| (row.process, program(row))).collect()
}
