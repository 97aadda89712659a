//! Measures the activity of a side's hosts: CPU time by function and library, waits by cause,
//! threads, the heap by site, and the wall time of driving threads. These are sums over ranks, each
//! with the variance that is due to sampling.

use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};
use tprof_facts::frames::NO_STACK;
use tprof_facts::labels;
use tprof_metrics::cpu::shown;
use tprof_metrics::host::RankHost;
use tprof_metrics::memory::RankMemory;
use tprof_rank::base::reading::Reading;
use tprof_rank::samples::{Layer, word};
use tprof_rank::{RankTrace, Step};
use tprof_trace::TraceFile;
use tprof_trace::model::{Process, ThreadState};

use super::amount::{Amount, HostNameKind, Z};
use super::{causes, devices, load};

/// Amounts by kind and name. The third part of a key distinguishes equal names: for a function it is
/// the file that contains the code, for a part of the time it is the part's own key.
pub type Amounts = FxHashMap<(HostNameKind, String, String), Amount>;

/// Activity of a side's hosts, summed over its ranks.
#[derive(Clone, Debug, Default)]
pub struct HostActivity {
    /// Number of ranks that were added up.
    pub ranks: u64,
    /// The number of ranks with CPU samples.
    pub sampled: u64,
    /// The number of ranks with a record of the heap.
    pub with_heap: u64,
    /// Amounts by kind and name.
    pub amounts: Amounts,
    /// Time on a core, of all threads.
    pub cpu: Amount,
    /// Number of processes. A process counts once even if it called `exec`.
    pub processes: u64,
    /// Number of threads on all ranks.
    pub threads: u64,
    /// Number of ranks whose driving thread was sampled.
    pub driven: u64,
    /// Time in which these driving threads had no core, ns.
    pub lost_ns: u64,
    /// The number of ranks whose time without a core is known.
    pub with_lost: u64,
    /// Number of steps of the ranks in `driven`; 0 if one of these ranks has no steps.
    pub steps: u64,
    /// Number of devices with work; a device counts once for each rank that used it.
    pub devices: u64,
    /// Number of steps of these devices; 0 if one of them has no steps.
    pub device_steps: u64,
    /// The parts of each rank whose driving thread was sampled, with the rank's number.
    pub by_rank: Vec<(u32, Amounts)>,
}

impl HostActivity {
    /// Measures one rank, without its driving thread.
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
        host.amounts.values_mut().for_each(|amount| amount.squares = amount.value.powi(2));
        host
    }

    /// Stores the parts of the only rank in `self` for a table by rank.
    pub fn keep_parts(&mut self, rank: u32) {
        let parts = self.amounts.iter().filter(|((sort, ..), _)| *sort == HostNameKind::Part);
        let parts: Amounts = parts.map(|(key, amount)| (key.clone(), *amount)).collect();
        if self.driven > 0 {
            self.by_rank.push((rank, parts));
        }
    }

    /// Adds the driving thread of the only rank in `self`: `driver` is its whole life,
    /// `compared` that of the compared steps.
    pub fn add_driver(&mut self, driver: &RankHost, compared: &RankHost) {
        (self.driven, self.steps) = (1, compared.steps.len() as u64);
        let lost_ns = load::lost_ns(driver);
        (self.lost_ns, self.with_lost) = (lost_ns.unwrap_or(0), u64::from(lost_ns.is_some()));
        for ((sort, name, of), amount) in causes::amounts(compared, &driver.start_up) {
            self.put(sort, name, &of, amount);
        }
        self.amounts.values_mut().for_each(|amount| amount.squares = amount.value.powi(2));
    }

    /// Adds the activity of the rank's devices in these steps.
    pub fn add_devices(&mut self, rank: &RankTrace<'_>, steps: &[Step]) {
        for device in devices::amounts(rank, steps) {
            self.devices += 1;
            self.device_steps += steps.len() as u64;
            for ((sort, name, of), amount) in device {
                self.put(sort, name, &of, amount);
            }
        }
    }

    /// Adds another rank's activity.
    pub fn add(&mut self, other: HostActivity) {
        self.ranks += other.ranks;
        self.sampled += other.sampled;
        self.with_heap += other.with_heap;
        self.processes += other.processes;
        self.threads += other.threads;
        self.cpu.add(other.cpu);
        let are_stepped = |host: &HostActivity| host.devices == 0 || host.device_steps > 0;
        let stepped = are_stepped(self) && are_stepped(&other);
        self.device_steps = if stepped { self.device_steps + other.device_steps } else { 0 };
        self.devices += other.devices;
        let is_stepped = |host: &HostActivity| host.driven == 0 || host.steps > 0;
        let stepped = is_stepped(self) && is_stepped(&other);
        self.steps = if stepped { self.steps + other.steps } else { 0 };
        self.driven += other.driven;
        self.lost_ns += other.lost_ns;
        self.with_lost += other.with_lost;
        self.by_rank.extend(other.by_rank);
        for (key, amount) in other.amounts {
            self.amounts.entry(key).or_default().add(amount);
        }
    }

    /// Returns the mean of an amount over ranks.
    pub fn mean(&self, amount: Amount) -> Amount {
        amount.divided_by(self.ranks.max(1) as f64)
    }

    /// Returns the mean of an amount of this kind over ranks; with `by_step`, over steps.
    pub fn mean_of(&self, sort: HostNameKind, amount: Amount, by_step: bool) -> Amount {
        let (steps, all) = match sort {
            HostNameKind::Device => (self.device_steps, self.devices),
            sort if sort.is_of_drivers() => (self.steps, self.driven),
            _ => return self.mean(amount),
        };
        let by_step = by_step && steps > 0;
        amount.divided_by(if by_step { steps } else { all.max(1) } as f64)
    }

    /// Returns the standard deviation over ranks of an amount of this kind; `None` for fewer than
    /// two ranks, and for devices.
    pub fn spread(&self, sort: HostNameKind, amount: Amount, by_step: bool) -> Option<f64> {
        if sort == HostNameKind::Device {
            return None;
        }
        let ranks = if sort.is_of_drivers() { self.driven } else { self.ranks } as f64;
        let per_rank = if by_step && self.steps > 0 { self.steps as f64 / ranks } else { 1.0 };
        let rest = amount.squares - amount.value.powi(2) / ranks;
        (ranks >= 2.0).then(|| (rest.max(0.0) / (ranks - 1.0)).sqrt() / per_rank)
    }

    /// Returns the time in which a rank's driving thread had no core, as a mean over ranks, ns;
    /// `None` if it is unknown for any rank.
    pub fn lost_of_rank(&self) -> Option<f64> {
        let is_known = self.ranks > 0 && self.with_lost == self.ranks;
        is_known.then(|| self.lost_ns as f64 / self.ranks as f64)
    }

    /// Returns the CPU time of all threads of a rank, as a mean over ranks.
    pub fn cpu_time(&self) -> Reading<u64> {
        if self.sampled == 0 {
            return Reading::missing("there are no CPU samples");
        }
        let mean = self.mean(self.cpu);
        let whole = |ns: f64| ns.round() as u64;
        Reading::Estimate { value: whole(mean.value), error: whole(mean.error()) }
    }

    /// Returns the time in which threads were ready but had no core, divided by the time in which
    /// they ran.
    pub fn ready(&self) -> Option<f64> {
        let key = (HostNameKind::Wait, word(ThreadState::Runnable).to_owned(), String::new());
        let ready = self.amounts.get(&key).map_or(0.0, |amount| amount.value);
        (self.cpu.value > 0.0).then(|| ready / self.cpu.value)
    }

    fn put(&mut self, sort: HostNameKind, name: impl Into<String>, of: &str, amount: Amount) {
        self.amounts.entry((sort, name.into(), of.to_owned())).or_default().add(amount);
    }

    fn add_samples(&mut self, rank: &RankTrace<'_>) {
        let cpu = &rank.cpu;
        // Many stretches have the same function, so sum by id first and format each name only once.
        let mut sums: FxHashMap<(HostNameKind, u32), Amount> = FxHashMap::default();
        let mut waits: FxHashMap<ThreadState, Amount> = FxHashMap::default();
        let mut threads: FxHashMap<u32, (u32, Amount)> = FxHashMap::default();
        for stretch in &cpu.stretches {
            let value = stretch.weight_ns as f64;
            if stretch.state != ThreadState::Running {
                let count = stretch.samples as f64;
                let amount =
                    Amount { value, variance: stretch.shared.variance(), count, squares: 0.0 };
                waits.entry(stretch.state).or_default().add(amount);
                continue;
            }
            // Each sample stands for a period and adds the square of that period to the variance.
            // This is the sum for `samples` equal periods.
            let variance = match stretch.stack.is_empty() {
                true => 0.0,
                false => value * value / stretch.samples.max(1) as f64,
            };
            let amount = Amount { value, variance, count: stretch.samples as f64, squares: 0.0 };
            self.cpu.add(amount);
            let thread = threads.entry(stretch.thread).or_default();
            thread.0 = stretch.process;
            thread.1.add(Amount { count: 0.0, ..amount });
            let Some(innermost) = stretch.stack.first() else {
                continue;
            };
            sums.entry((HostNameKind::Function, *innermost)).or_default().add(amount);
            let mut python = stretch.stack.iter();
            if let Some(own) = python.find(|id| cpu.names.get(**id).layer == Layer::Python) {
                sums.entry((HostNameKind::Python, *own)).or_default().add(amount);
            }
        }
        for ((sort, id), amount) in sums {
            let func = cpu.names.get(id);
            self.put(sort, shown(func), &func.module, amount);
            if sort == HostNameKind::Function {
                let module = if func.module.is_empty() { "(no known file)" } else { &func.module };
                self.put(HostNameKind::Module, module, "", amount);
            }
        }
        for (state, amount) in waits {
            self.put(HostNameKind::Wait, word(state), "", amount);
        }
        let programs = programs(rank.file);
        for (thread, (process, amount)) in threads {
            let program = programs.get(&process).map_or("", |name| name);
            let name = match rank.file.thread_name(thread) {
                Some(name) if name != program => format!("{name} of {program}"),
                _ => program.to_owned(),
            };
            self.put(HostNameKind::Thread, name, "", Amount { count: 1.0, ..amount });
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
                squares: 0.0,
            };
            self.put(HostNameKind::Site, site_name(&site.stack), "", amount);
        }
    }
}

/// PyTorch calls operators through this function while something records them, as tprof does for a
/// part of many runs. So the same allocation may have it in its stack or not.
const ONLY_IF_RECORDED: &str = "callWithDispatchKeySlowPath";

/// Joins the functions of a site's stack. Lines are left out, because an edit moves them.
fn site_name(stack: &[Arc<str>]) -> String {
    let frames = stack.iter().filter(|frame| !frame.contains(ONLY_IF_RECORDED));
    let frames: Vec<String> = frames.map(|frame| without_line(frame)).collect();
    if frames.is_empty() { NO_STACK.to_owned() } else { frames.join(" < ") }
}

/// Returns a frame `function (file:line)` as `function (file)`.
fn without_line(frame: &str) -> String {
    let line = frame.strip_suffix(')').and_then(|text| text.rsplit_once(':'));
    match line {
        Some((rest, line)) if line.bytes().all(|byte| byte.is_ascii_digit()) => format!("{rest})"),
        _ => frame.to_owned(),
    }
}

/// Returns the base name of each process's program.
fn programs(file: &TraceFile) -> FxHashMap<u32, String> {
    let program = |row: &Process| labels::program(file.name(row.command)).to_owned();
    file.processes().iter().map(|row| (row.process, program(row))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rank(number: u32, ns: f64, steps: u64) -> HostActivity {
        let mut host = HostActivity { ranks: 1, driven: 1, steps, ..HostActivity::default() };
        let amount = Amount { value: ns, squares: ns * ns, ..Amount::default() };
        host.put(HostNameKind::Part, "waiting for data", "data", amount);
        host.keep_parts(number);
        host
    }

    #[test]
    fn a_site_is_named_by_functions_without_lines() {
        let name = |frames: &[&str]| {
            site_name(&frames.iter().map(|frame| Arc::from(*frame)).collect::<Vec<_>>())
        };
        assert_eq!(name(&["f (a.c:12)", "g() (lib.so)"]), "f (a.c) < g() (lib.so)");
        let slow = "c10::Dispatcher::callWithDispatchKeySlowPath<at::Tensor>() (libtorch_cpu.so)";
        assert_eq!(name(&["f (a.c:)", slow, "h"]), name(&["f (a.c:9)", "h"]));
        assert_eq!(name(&[]), NO_STACK);
    }

    #[test]
    fn mean_and_spread_over_ranks_are_divided_by_steps() {
        let mut both = rank(0, 10.0, 5);
        both.add(rank(1, 30.0, 5));
        let amount = *both.amounts.values().next().unwrap();
        let of = |by_step| {
            let mean = both.mean_of(HostNameKind::Part, amount, by_step);
            (mean.value, both.spread(HostNameKind::Part, amount, by_step).unwrap())
        };
        let near = |(a, b): (f64, f64), (c, d): (f64, f64)| (a - c).hypot(b - d) < 1e-9;
        assert!(near(of(false), (20.0, 200.0_f64.sqrt())), "{:?}", of(false));
        assert!(near(of(true), (4.0, 200.0_f64.sqrt() / 5.0)), "{:?}", of(true));
        assert_eq!(both.by_rank.iter().map(|(rank, _)| *rank).collect::<Vec<_>>(), [0, 1]);
        both.add(rank(2, 20.0, 0));
        assert_eq!(both.steps, 0, "a rank without steps is compared as a whole");
        assert_eq!(rank(0, 10.0, 5).spread(HostNameKind::Part, amount, true), None);
    }
}
