//! Compares the streaming pass over heap events with a simple model that keeps all blocks.

use std::collections::BTreeMap;

use proptest::prelude::*;
use tprof_facts::Clock;
use tprof_fixture::runs::{Maker, START};
use tprof_metrics::memory::{HostMemory, rank_memory};
use tprof_trace::TraceFile;
use tprof_trace::model::*;

const PROCESSES: u32 = 3;
const STACKS: [&[&str]; 4] = [&["a", "main"], &["b", "main"], &["c", "b", "main"], &["d"]];

#[derive(Clone, Debug)]
enum Op {
    Alloc { process: u32, size: u64, stack: usize },
    Free { which: usize },
    End { process: u32 },
    Step,
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        6 => (0..PROCESSES, 0u64..5000, 0..STACKS.len())
            .prop_map(|(process, size, stack)| Op::Alloc { process, size, stack }),
        5 => any::<usize>().prop_map(|which| Op::Free { which }),
        1 => (0..PROCESSES).prop_map(|process| Op::End { process }),
        1 => Just(Op::Step),
    ]
}

/// The model, which keeps all blocks.
#[derive(Default)]
struct Model {
    blocks: Vec<(u32, u64, u64, usize)>,
    ended: Vec<u32>,
    allocations: u64,
    frees: u64,
    bytes: u64,
    site_bytes: [u64; 4],
    site_counts: [u64; 4],
    peak: u64,
    peak_at: Option<u64>,
    site_peaks: [u64; 4],
    steps: Vec<[u64; 4]>,
}

impl Model {
    fn live(&self) -> [u64; 4] {
        let mut live = [0; 4];
        for (process, _, size, stack) in &self.blocks {
            if !self.ended.contains(process) {
                live[*stack] += size;
            }
        }
        live
    }

    fn at_exit(&self) -> [u64; 4] {
        let mut live = [0; 4];
        for (_, _, size, stack) in &self.blocks {
            live[*stack] += size;
        }
        live
    }

    fn watch(&mut self, time: u64) {
        let live = self.live();
        let sum = live.iter().sum();
        if sum > self.peak {
            (self.peak, self.peak_at, self.site_peaks) = (sum, Some(time), live);
        }
    }
}

/// Applies the operations to a file and to the model.
fn play(ops: &[Op], spacing: u64) -> (Model, HostMemory) {
    let dir = tempfile::tempdir().unwrap();
    let mut maker = Maker::new(dir.path(), "rank-0.tprof");
    for process in 0..PROCESSES {
        maker.process(100 + process, 0, MemoryRecording::Exact);
        for (stack, functions) in STACKS.iter().enumerate() {
            // The same stack has different ids in different processes.
            maker.stack(process, stack as u32 + 1 + process, functions);
        }
    }
    let mut model = Model::default();
    let mut time = 0;
    for op in ops {
        time += spacing;
        match *op {
            Op::Alloc { process, size, stack } if !model.ended.contains(&process) => {
                let ordinal = maker.alloc(process, time, size, stack as u32 + 1 + process);
                model.blocks.push((process, ordinal, size, stack));
                model.allocations += 1;
                model.bytes += size;
                model.site_bytes[stack] += size;
                model.site_counts[stack] += 1;
                model.watch(time);
            }
            Op::Free { which } if !model.blocks.is_empty() => {
                let at = which % model.blocks.len();
                if !model.ended.contains(&model.blocks[at].0) {
                    let (process, ordinal, ..) = model.blocks.remove(at);
                    maker.free(process, time, ordinal);
                    model.frees += 1;
                }
            }
            Op::End { process } if !model.ended.contains(&process) => {
                maker.end(process, time, ProcessEnd::Exited(0));
                model.ended.push(process);
            }
            Op::Step => {
                maker.mark(time, "step", MarkKind::Step);
                // A mark after the end of all processes is not compared.
                if model.ended.len() < PROCESSES as usize {
                    model.steps.push(model.live());
                }
            }
            _ => {}
        }
    }
    let file = TraceFile::open(&maker.finish()).unwrap();
    let memory = rank_memory(&file, Clock { start_ns: START, ..Clock::default() }).host_memory;
    (model, memory)
}

fn by_first_frame<T>(
    memory: &HostMemory,
    value: impl Fn(&tprof_metrics::memory::sites::Site) -> T,
) -> BTreeMap<String, T> {
    memory.sites.iter().map(|site| (site.stack[0].to_string(), value(site))).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn sums_equal_those_of_the_model(ops in prop::collection::vec(op(), 0..120)) {
        let (model, memory) = play(&ops, 1000);
        prop_assert_eq!(memory.allocations.get(), Some(model.allocations));
        prop_assert_eq!(memory.frees.get(), Some(model.frees));
        prop_assert_eq!(memory.allocated_bytes.get(), Some(model.bytes));
        prop_assert_eq!(memory.peak_bytes.get(), Some(model.peak));
        prop_assert_eq!(memory.peak_at_ns.get(), model.peak_at);
        let at_exit = model.at_exit();
        prop_assert_eq!(memory.live_at_exit_bytes.get(), Some(at_exit.iter().sum()));
        let names = ["a", "b", "c", "d"].map(|name| format!("{name} (src/train.c:1)"));
        let sites = by_first_frame(&memory, Clone::clone);
        for (stack, name) in names.iter().enumerate() {
            let Some(site) = sites.get(name) else {
                prop_assert_eq!(model.site_counts[stack], 0);
                continue;
            };
            prop_assert_eq!(site.bytes.get(), Some(model.site_bytes[stack]));
            prop_assert_eq!(site.allocations.get(), Some(model.site_counts[stack]));
            prop_assert_eq!(site.live_bytes.get(), Some(at_exit[stack]));
            prop_assert_eq!(site.peak_bytes.get(), Some(model.site_peaks[stack]), "{}", name);
            prop_assert!(!site.estimate);
        }
    }

    #[test]
    fn sums_over_sites_equal_the_totals(ops in prop::collection::vec(op(), 0..120)) {
        let (_, memory) = play(&ops, 1000);
        let sum = |value: fn(&tprof_metrics::memory::sites::Site) -> Option<u64>| {
            memory.sites.iter().map(|site| value(site).unwrap()).sum::<u64>()
        };
        prop_assert_eq!(memory.allocations.get(), Some(sum(|site| site.allocations.get())));
        prop_assert_eq!(memory.allocated_bytes.get(), Some(sum(|site| site.bytes.get())));
        prop_assert_eq!(memory.live_at_exit_bytes.get(), Some(sum(|site| site.live_bytes.get())));
        prop_assert_eq!(memory.peak_bytes.get(), Some(sum(|site| site.peak_bytes.get())));
    }

    #[test]
    fn sums_do_not_depend_on_the_time_between_events(ops in prop::collection::vec(op(), 0..60)) {
        let (_, near) = play(&ops, 10);
        let (_, far) = play(&ops, 1_000_000_000);
        prop_assert_eq!(near.peak_bytes.get(), far.peak_bytes.get());
        let bytes = |memory: &HostMemory| by_first_frame(memory, |site| (site.bytes.get(), site.peak_bytes.get()));
        prop_assert_eq!(bytes(&near), bytes(&far));
    }

    #[test]
    fn growth_equals_that_of_the_model(ops in prop::collection::vec(op(), 0..150)) {
        let (model, memory) = play(&ops, 1000);
        if model.steps.len() < 3 {
            prop_assert!(memory.growth.value().is_none());
            return Ok(());
        }
        let growth = memory.growth.value().unwrap();
        let compared = &model.steps[(model.steps.len() / 10).max(1)..];
        let sums: Vec<f64> = compared.iter().map(|live| live.iter().sum::<u64>() as f64).collect();
        prop_assert_eq!(growth.growth_bytes.get().unwrap() as f64, sums[sums.len() - 1] - sums[0]);
        prop_assert!((growth.bytes_per_interval - slope(&sums)).abs() < 1e-6 * (1.0 + slope(&sums).abs()));
        for site in &growth.sites {
            let stack = ["a", "b", "c", "d"].iter().position(|n| site.stack[0].starts_with(n)).unwrap();
            let line: Vec<f64> = compared.iter().map(|live| live[stack] as f64).collect();
            prop_assert_eq!(site.growth_bytes.get().unwrap() as f64, line[line.len() - 1] - line[0]);
            prop_assert!((site.bytes_per_interval - slope(&line)).abs() < 1e-6 * (1.0 + slope(&line).abs()));
        }
    }
}

fn slope(y: &[f64]) -> f64 {
    let n = y.len() as f64;
    if n < 2.0 {
        return 0.0;
    }
    let mean_x = (n - 1.0) / 2.0;
    let mean_y = y.iter().sum::<f64>() / n;
    let over: f64 = y.iter().enumerate().map(|(x, y)| (x as f64 - mean_x) * (y - mean_y)).sum();
    let under: f64 = (0..y.len()).map(|x| (x as f64 - mean_x).powi(2)).sum();
    over / under
}
