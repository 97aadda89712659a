//! Adds up the self time and the total time of each function.
//!
//! Self time is the time in which the function is innermost on the stack. A function that was
//! inlined is on the stack like any other, as in the tables of lines, the trees and the findings: it
//! has the same time whether the compiler inlined it or not. Total time is the time in which the
//! function is anywhere on the stack; a recursive function counts once. A Python function also has
//! an own time, which is its time while it calls no other Python function. So the native code that
//! it calls counts as its own.

use rustc_hash::{FxHashMap, FxHashSet};
use tprof_document::SortBy;
use tprof_rank::base::sort_rows::SortRows;
use tprof_rank::samples::{CpuTrace, Func, Layer};
use tprof_trace::model::ThreadState;

/// The time that a function took, by samples.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FunctionTime {
    /// Time on a core in the function itself, ns.
    pub self_ns: u64,
    /// Time on a core in the function and its callees, ns.
    pub total_ns: u64,
    /// Number of samples behind `self_ns`.
    pub self_samples: u64,
    /// Number of samples behind `total_ns`.
    pub total_samples: u64,
    /// For a Python function: time in which it called no other Python function, ns.
    pub own_ns: u64,
    /// Time in which the function was anywhere on the stack of a thread that waited, ns.
    pub waited_ns: u64,
}

impl FunctionTime {
    /// Adds another function's time.
    pub fn add(&mut self, other: &FunctionTime) {
        self.self_ns += other.self_ns;
        self.total_ns += other.total_ns;
        self.self_samples += other.self_samples;
        self.total_samples += other.total_samples;
        self.own_ns += other.own_ns;
        self.waited_ns += other.waited_ns;
    }
}

/// Time by function and by module, with the sums.
#[derive(Debug, Default)]
pub struct Functions {
    /// Time by function.
    pub all: FxHashMap<Func, FunctionTime>,
    /// Time by module.
    pub modules: FxHashMap<std::sync::Arc<str>, FunctionTime>,
    /// For each Python function, its [`FunctionTime::own_ns`] by the module that ran (the
    /// interpreter or a library).
    pub under: FxHashMap<Func, FxHashMap<std::sync::Arc<str>, u64>>,
    /// Time on a core of all threads, ns.
    pub running_ns: u64,
    /// The part of `running_ns` without a stack, ns.
    pub unknown_ns: u64,
    /// The part of `running_ns` whose stack was cut, ns: this time is missing from the total time
    /// of outer functions.
    pub cut_ns: u64,
    /// Samples of running threads.
    pub samples: u64,
}

impl Functions {
    /// Adds the samples of a file.
    pub fn add_file(&mut self, trace: &CpuTrace) {
        let mut of: FxHashMap<u32, FunctionTime> = FxHashMap::default();
        let mut under: FxHashMap<(u32, u32), u64> = FxHashMap::default();
        let mut seen = FxHashSet::default();
        let mut seen_modules: FxHashSet<std::sync::Arc<str>> = FxHashSet::default();
        for stretch in &trace.stretches {
            let running = stretch.state == ThreadState::Running;
            let (weight, samples) = (stretch.weight_ns, stretch.samples);
            if running {
                self.running_ns += weight;
                if stretch.stack.is_empty() {
                    self.unknown_ns += weight;
                    continue;
                }
                self.samples += samples;
                self.cut_ns += if stretch.cut { weight } else { 0 };
            } else if stretch.state == ThreadState::Runnable {
                continue;
            }
            seen.clear();
            seen_modules.clear();
            let mut python = false;
            for (at, id) in stretch.stack.iter().enumerate() {
                let func = trace.names.get(*id);
                let sum = of.entry(*id).or_default();
                if running && at == 0 {
                    sum.self_ns += weight;
                    sum.self_samples += samples;
                    self.modules.entry(func.module.clone()).or_default().self_ns += weight;
                }
                if running && func.layer == Layer::Python && !python {
                    python = true;
                    sum.own_ns += weight;
                    let innermost = stretch.stack.first().unwrap_or(id);
                    *under.entry((*id, *innermost)).or_default() += weight;
                }
                if seen.insert(*id) {
                    if running {
                        sum.total_ns += weight;
                        sum.total_samples += samples;
                    } else {
                        sum.waited_ns += weight;
                    }
                }
                if running && seen_modules.insert(func.module.clone()) {
                    self.modules.entry(func.module.clone()).or_default().total_ns += weight;
                }
            }
        }
        for ((id, innermost), ns) in under {
            let of = self.under.entry(trace.names.get(id).clone()).or_default();
            *of.entry(trace.names.get(innermost).module.clone()).or_default() += ns;
        }
        for (id, sum) in of {
            self.all.entry(trace.names.get(id).clone()).or_default().add(&sum);
        }
    }

    /// Adds another file's sums.
    pub fn add(&mut self, other: &Functions) {
        for (func, sum) in &other.all {
            self.all.entry(func.clone()).or_default().add(sum);
        }
        for (module, sum) in &other.modules {
            self.modules.entry(module.clone()).or_default().add(sum);
        }
        for (func, modules) in &other.under {
            let of = self.under.entry(func.clone()).or_default();
            for (module, ns) in modules {
                *of.entry(module.clone()).or_default() += ns;
            }
        }
        self.running_ns += other.running_ns;
        self.unknown_ns += other.unknown_ns;
        self.cut_ns += other.cut_ns;
        self.samples += other.samples;
    }

    /// Returns the modules that ran for a Python function, the one with the most time first.
    pub fn under(&self, func: &Func) -> Vec<(&str, u64)> {
        let modules = self.under.get(func).into_iter().flatten();
        let mut modules: Vec<(&str, u64)> = modules.map(|(name, ns)| (&**name, *ns)).collect();
        modules.sort_rows_by(|a, b| (b.1, a.0).cmp(&(a.1, b.0)));
        modules
    }

    /// Returns the functions, the one with the largest time first and equal ones by name. `own`
    /// returns a function's self time; `mine` keeps only the user's own functions.
    pub fn sorted(
        &self,
        sort: SortBy,
        mine: bool,
        own: impl Fn(&FunctionTime) -> u64,
    ) -> Vec<(&Func, &FunctionTime)> {
        let times = |sum: &FunctionTime| {
            let (own, total, waited) = (own(sum), sum.total_ns, sum.waited_ns);
            match sort {
                SortBy::SelfTime => [own, total + waited, 0],
                SortBy::Total => [total, own, waited],
                SortBy::Waited => [waited, own, total],
            }
        };
        let mut all: Vec<_> = self.all.iter().collect();
        all.retain(|(func, sum)| times(sum) != [0; 3] && (!mine || func.is_own()));
        all.sort_rows_by(|a, b| times(b.1).cmp(&times(a.1)).then_with(|| a.0.name.cmp(&b.0.name)));
        all
    }
}

#[cfg(test)]
mod tests {
    use tprof_fixture::Fixture;
    use tprof_trace::model::{Sample, Stack, Symbol};

    use super::*;

    #[test]
    fn an_inlined_function_has_its_own_self_time() {
        let mut made = Fixture::new();
        let address = 16;
        for (depth, name) in [(0, "inlined"), (1, "caller")] {
            let (function, file, module) = (made.name(name), made.name("a.c"), made.name("a.out"));
            let symbol = Symbol { process: 0, address, depth, function, file, line: 3, module };
            made.writer.symbol(&symbol);
        }
        made.writer.stack(&Stack { process: 0, stack: 1, end: 0, frames: vec![address] });
        let (state, cpu) = (ThreadState::Running, Some(0));
        let row = Sample { time_ns: 50, weight_ns: 10, state, stack: 1, cpu, ..Sample::default() };
        made.writer.write(&mut vec![row]).unwrap();
        let mut functions = Functions::default();
        functions.add_file(&CpuTrace::load(&made.finish()));
        let sorted = functions.sorted(SortBy::SelfTime, false, |time| time.self_ns);
        let times = |(func, time): &(&Func, &FunctionTime)| {
            (func.name.to_string(), time.self_ns, time.total_ns)
        };
        let expected = [("inlined".to_owned(), 10, 10), ("caller".to_owned(), 0, 10)];
        assert_eq!(sorted.iter().map(times).collect::<Vec<_>>(), expected);
    }
}
