//! Sums time by source line.
//!
//! A line's self time is the time in which no other listed line runs below it, so that self times
//! add up. Code without a line of its own (a library without debug information, the interpreter,
//! the C library, the kernel) and Python's import system count for the line that calls them. If
//! only the user's own files are listed, libraries count for the calling line too. A stack without
//! any listed line is listed by its function.

use rustc_hash::{FxHashMap, FxHashSet};
use tprof_rank::base::sort_rows::SortRows;
use tprof_rank::samples::{CpuTrace, Func, Layer, Stretch};
use tprof_trace::model::ThreadState;

/// Time of a line, or of a function over all its lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LineTime {
    /// Time on a core in which this is the innermost listed line, ns.
    pub self_ns: u64,
    /// Number of samples behind `self_ns`.
    pub self_samples: u64,
    /// Time on a core with this line anywhere on the stack, ns.
    pub total_ns: u64,
    /// Number of samples behind `total_ns`.
    pub total_samples: u64,
    /// Time of waits in which this is the innermost listed line, ns.
    pub self_waited_ns: u64,
    /// Time of waits with this line anywhere on the stack, ns.
    pub waited_ns: u64,
}

impl LineTime {
    fn add(&mut self, other: &LineTime) {
        self.self_ns += other.self_ns;
        self.self_samples += other.self_samples;
        self.total_ns += other.total_ns;
        self.total_samples += other.total_samples;
        self.self_waited_ns += other.self_waited_ns;
        self.waited_ns += other.waited_ns;
    }

    /// Adds a stretch; `innermost` says whether this is its innermost listed line.
    fn count(&mut self, stretch: &Stretch, innermost: bool) {
        let (ns, samples) = (stretch.weight_ns, stretch.samples);
        if stretch.state == ThreadState::Running {
            self.total_ns += ns;
            self.total_samples += samples;
            self.self_ns += if innermost { ns } else { 0 };
            self.self_samples += if innermost { samples } else { 0 };
        } else {
            self.waited_ns += ns;
            self.self_waited_ns += if innermost { ns } else { 0 };
        }
    }

    fn all_ns(&self) -> u64 {
        self.total_ns + self.waited_ns
    }
}

/// The time of a function over all its lines.
#[derive(Clone, Debug, Default)]
pub struct FunctionLines {
    /// Time of the function as a whole.
    pub time: LineTime,
    /// Time of its lines, by line number.
    pub lines: FxHashMap<u32, LineTime>,
    /// Time, on a core or not, by the listed function that this function calls directly.
    below: FxHashMap<Func, u64>,
}

impl FunctionLines {
    /// Whether nearly all of the function's time is in one function that it calls.
    fn passes_on(&self) -> bool {
        let (time, most) = (&self.time, self.below.values().max().copied().unwrap_or(0));
        let own = time.self_ns + time.self_waited_ns;
        own * 50 <= time.all_ns() && most * 50 >= time.all_ns() * 49
    }
}

/// The lines of all samples of a run.
#[derive(Clone, Debug, Default)]
pub struct Lines {
    /// The lines by function.
    pub functions: FxHashMap<Func, FunctionLines>,
    /// Time on a core of all threads, ns.
    pub running_ns: u64,
    /// The part of `running_ns` in listed lines, ns.
    pub listed_ns: u64,
}

/// The function and the line of a listed frame.
type Listed = (u32, u32);

impl Lines {
    /// Adds a file's samples. With `mine`, only lines of the user's own files are listed.
    pub fn add_file(&mut self, trace: &CpuTrace, mine: bool) {
        let mut functions: FxHashMap<u32, FileFunction> = FxHashMap::default();
        let (mut seen, mut seen_lines) = (FxHashSet::default(), FxHashSet::default());
        let frames = ListedFunctions::of(trace, mine);
        for stretch in trace.stretches.iter().filter(|s| s.state != ThreadState::Runnable) {
            let is_running = stretch.state == ThreadState::Running;
            self.running_ns += if is_running { stretch.weight_ns } else { 0 };
            let listed = frames.listed(stretch);
            self.listed_ns += if is_running && !listed.is_empty() { stretch.weight_ns } else { 0 };
            seen.clear();
            seen_lines.clear();
            for (at, (id, line)) in listed.iter().enumerate() {
                let function = functions.entry(*id).or_default();
                if seen_lines.insert((*id, *line)) {
                    function.lines.entry(*line).or_default().count(stretch, at == 0);
                }
                if seen.insert(*id) {
                    function.time.count(stretch, at == 0);
                    if let Some((below, _)) = at.checked_sub(1).map(|at| listed[at]) {
                        *function.below.entry(below).or_default() += stretch.weight_ns;
                    }
                }
            }
        }
        for (id, sum) in functions {
            let of = self.functions.entry(trace.names.get(id).clone()).or_default();
            of.time.add(&sum.time);
            for (line, time) in sum.lines {
                of.lines.entry(line).or_default().add(&time);
            }
            for (id, ns) in sum.below {
                *of.below.entry(trace.names.get(id).clone()).or_default() += ns;
            }
        }
    }

    /// Adds another rank's lines.
    pub fn add(&mut self, other: Lines) {
        for (func, sum) in other.functions {
            let of = self.functions.entry(func).or_default();
            of.time.add(&sum.time);
            for (line, time) in sum.lines {
                of.lines.entry(line).or_default().add(&time);
            }
            for (func, ns) in sum.below {
                *of.below.entry(func).or_default() += ns;
            }
        }
        self.running_ns += other.running_ns;
        self.listed_ns += other.listed_ns;
    }

    /// Returns the functions, the one with the largest `key` first. Library functions that only
    /// pass their time on to one other function are left out.
    pub fn folded(&self, key: impl Fn(&LineTime) -> u64) -> Vec<(&Func, &FunctionLines)> {
        let mut all: Vec<_> = self.functions.iter().collect();
        all.retain(|(func, sum)| key(&sum.time) > 0 && (func.is_own() || !sum.passes_on()));
        all.sort_rows_by(|a, b| {
            let times = (key(&b.1.time), b.1.time.self_ns, b.1.time.all_ns());
            times.cmp(&(key(&a.1.time), a.1.time.self_ns, a.1.time.all_ns())).then_with(|| {
                (&a.0.name, &a.0.file, &a.0.module).cmp(&(&b.0.name, &b.0.file, &b.0.module))
            })
        });
        all
    }
}

/// The time of a function of one file, by line number, and by the id of the function that it calls.
#[derive(Default)]
struct FileFunction {
    time: LineTime,
    lines: FxHashMap<u32, LineTime>,
    below: FxHashMap<u32, u64>,
}

/// Decides which functions of a file are listed.
struct ListedFunctions<'a> {
    trace: &'a CpuTrace,
    mine: bool,
    /// For each function, whether its lines are listed.
    listed: Vec<bool>,
    /// For each function, whether it is Python's, so that it is listed even without a line.
    python: Vec<bool>,
    system: Vec<bool>,
}

impl<'a> ListedFunctions<'a> {
    fn of(trace: &'a CpuTrace, mine: bool) -> ListedFunctions<'a> {
        let listed =
            |func: &Func| !func.is_system() && !func.is_import() && (!mine || func.is_own());
        ListedFunctions {
            trace,
            mine,
            listed: trace.names.which(listed),
            python: trace.names.which(|func| func.layer == Layer::Python),
            system: trace.names.which(Func::is_system),
        }
    }

    /// Returns the listed frames of a stack, innermost first. If there are none, returns the
    /// function that explains the stack best, unless only the user's own files are listed.
    fn listed(&self, stretch: &Stretch) -> Vec<Listed> {
        let stack = self.trace.stack(stretch.process, stretch.id);
        let frames = || stack.functions.iter().copied().zip(stack.lines.iter().copied());
        let is_listed = |(id, line): &Listed| {
            self.listed[*id as usize] && (*line > 0 || self.python[*id as usize])
        };
        let found: Vec<Listed> = frames().filter(is_listed).collect();
        if !found.is_empty() || self.mine {
            return found;
        }
        let explains = frames().find(|(id, _)| !self.system[*id as usize]);
        explains.or_else(|| frames().next()).into_iter().map(|(id, _)| (id, 0)).collect()
    }
}
