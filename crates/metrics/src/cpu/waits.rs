//! Sums the waits of all threads by cause, and by the function that best explains the wait. A wait
//! is a time in which a thread neither runs nor is ready to.

use rustc_hash::{FxHashMap, FxHashSet};
use tprof_document::{Cell, Column, FoldedRows, Table, Unit};
use tprof_facts::frames::NO_STACK;
use tprof_facts::units::duration;
use tprof_rank::base::sort_rows::SortRows;
use tprof_rank::samples::{CpuTrace, Func, Layer, NO_SAMPLES, joins, word};
use tprof_trace::TraceFile;
use tprof_trace::model::{ProcessIndex, ThreadIndex, ThreadState};

use super::cells::{estimated, shown};
use super::thread_row::ThreadRow;

/// Most places of idle threads that the folded line names.
const MAX_IDLE_PLACES: usize = 3;

/// The word for the cause of a wait for another thread's end.
const THREAD: &str = "thread";

/// Sums over the waits with one cause in one place.
#[derive(Clone, Copy, Debug, Default)]
struct WaitSums {
    ns: u64,
    /// Number of samples.
    rows: u64,
    /// Variance of `ns`. It isn't 0 if a part of `ns` is the estimated share of short waits that
    /// have no sample of their own: see `Stretch::shared`.
    variance: f64,
}

/// The key by which waits are added up: whether the waiting thread is idle, the cause as a word,
/// and the function.
type WaitPlace = (bool, &'static str, Option<Func>);

/// The waits of all threads by cause and place.
#[derive(Debug, Default)]
pub(super) struct WaitsByPlace {
    by_place: FxHashMap<WaitPlace, WaitSums>,
    /// Time that `--mine` leaves out, ns.
    left_out_ns: u64,
}

impl WaitsByPlace {
    /// Adds up a rank's waits. With `mine`, only waits below the user's own functions count, each
    /// for the innermost of these.
    pub fn of(cpu: &CpuTrace, file: &TraceFile, mine: bool) -> WaitsByPlace {
        let mut waits = WaitsByPlace::default();
        let is_running = |state| matches!(state, ThreadState::Running | ThreadState::Runnable);
        let idle = idle_threads(cpu, file);
        for stretch in cpu.stretches.iter().filter(|stretch| !is_running(stretch.state)) {
            let functions = || stretch.stack.iter().map(|id| cpu.names.get(*id));
            let own = |func: &&Func| func.is_own() && !func.is_import();
            let place = match mine {
                true => functions().find(own).cloned(),
                false => place(functions()),
            };
            if mine && place.is_none() {
                waits.left_out_ns += stretch.weight_ns;
                continue;
            }
            let is_idle = idle.contains(&(stretch.process, stretch.thread));
            let ns = stretch.weight_ns;
            let (rows, variance) = (stretch.samples, stretch.shared.variance());
            let cause = match joins(stretch.state, functions()) {
                true => THREAD,
                false => word(stretch.state),
            };
            waits.put((is_idle, cause, place), WaitSums { ns, rows, variance });
        }
        waits
    }

    /// Adds sums to those of a place.
    fn put(&mut self, key: WaitPlace, more: WaitSums) {
        let sum = self.by_place.entry(key).or_default();
        sum.ns += more.ns;
        sum.rows += more.rows;
        sum.variance += more.variance;
    }

    /// Adds another rank's waits.
    pub fn add(&mut self, other: WaitsByPlace) {
        other.by_place.into_iter().for_each(|(key, more)| self.put(key, more));
        self.left_out_ns += other.left_out_ns;
    }

    /// Makes the table of waits. `rows` is the number of samples in the run.
    pub fn table(&self, rows: u64) -> Table {
        let columns = vec![
            Column::new("waited_ns", "waited", Unit::Duration),
            Column::new("waits_for", "for", Unit::Text),
            Column::data("idle", Unit::Flag),
            Column::data("rows", Unit::Count),
            Column::data("layer", Unit::Text),
            Column::data("module", Unit::Text),
            Column::functions("function", "in"),
        ];
        let why = match rows {
            0 => NO_SAMPLES,
            _ if self.left_out_ns > 0 => "no thread waited below the user's own files",
            _ => "no thread waited",
        };
        let mut about = "whole run; some waits are as they should be".to_owned();
        match self.left_out_ns {
            0 => about.push_str("; `report threads` lists each thread"),
            ns => about.push_str(&format!("; {} below no file of the user's own", duration(ns))),
        }
        let mut table =
            Table::new("waiting", "Waiting, all threads", columns).about(about).empty(why);
        let mut sorted: Vec<_> = self.by_place.iter().filter(|(_, sum)| sum.ns > 0).collect();
        sorted.sort_rows_by(|a, b| {
            let name = |place: &Option<Func>| place.as_ref().map(|func| func.name.clone());
            let order = (a.0.0, b.1.ns, a.0.1).cmp(&(b.0.0, a.1.ns, b.0.1));
            order.then_with(|| name(&a.0.2).cmp(&name(&b.0.2)))
        });
        for ((idle, cause, place), waited) in sorted.iter().copied() {
            let (layer, module, name): (Cell, Cell, Cell) = match place {
                Some(func) => {
                    (func.layer.word().into(), func.module.to_string().into(), shown(func).into())
                }
                None => (Cell::Empty, Cell::Empty, NO_STACK.into()),
            };
            let time = estimated(waited.ns, waited.variance);
            let (idle, rows) = ((*idle).into(), waited.rows.into());
            table.row(vec![time, (*cause).into(), idle, rows, layer, module, name]);
        }
        table.folded = idle_places(&sorted);
        table
    }
}

/// Folds the places in which idle threads waited, which are the last rows, into one line; `None` if
/// there are none.
fn idle_places(sorted: &[(&WaitPlace, &WaitSums)]) -> Option<FoldedRows> {
    let from = sorted.iter().position(|((idle, ..), _)| *idle)?;
    let idle = &sorted[from..];
    let ns = idle.iter().map(|(_, waited)| waited.ns).sum();
    let names: Vec<String> = (idle.iter().take(MAX_IDLE_PLACES))
        .map(|((.., place), _)| place.as_ref().map_or(NO_STACK.to_owned(), shown))
        .collect();
    let more = if idle.len() > MAX_IDLE_PLACES { ", …" } else { "" };
    let line = format!("and idle threads for {} in {}{more}", duration(ns), names.join(", "));
    Some(FoldedRows { from, line })
}

/// Returns the threads that had next to nothing to do, which `report threads` folds.
fn idle_threads(cpu: &CpuTrace, file: &TraceFile) -> FxHashSet<(ProcessIndex, ThreadIndex)> {
    let mut rows: FxHashMap<(ProcessIndex, ThreadIndex), ThreadRow> = FxHashMap::default();
    for stretch in &cpu.stretches {
        rows.entry((stretch.process, stretch.thread)).or_default().add(stretch, &cpu.names);
    }
    let pids: FxHashMap<ProcessIndex, u32> =
        file.processes().iter().map(|row| (row.process, row.pid)).collect();
    let tids: FxHashMap<ThreadIndex, u32> =
        file.threads().iter().map(|row| (row.thread, row.tid)).collect();
    let is_idle = |((process, thread), mut row): (_, ThreadRow)| {
        row.pid = pids.get(&process).copied().unwrap_or(0);
        row.tid = tids.get(&thread).copied().unwrap_or(0);
        row.is_idle().then_some((process, thread))
    };
    rows.into_iter().filter_map(is_idle).collect()
}

/// Returns the innermost function that explains a wait best: not a function of the kernel or the C
/// library, if there is another.
fn place<'a>(stack: impl Iterator<Item = &'a Func> + Clone) -> Option<Func> {
    let own = |func: &&Func| func.layer == Layer::Python || !func.is_system();
    let user = |func: &&Func| func.layer != Layer::Kernel;
    let found = stack.clone().find(own).or_else(|| stack.clone().find(user));
    found.or_else(|| stack.clone().next()).cloned()
}

#[cfg(test)]
mod tests {
    use tprof_fixture::Fixture;
    use tprof_trace::model::{SYNTHETIC_FRAME, Sample, Stack, Symbol};

    use super::*;

    /// Makes the table of two waits: 10 ns below a function of the user's own, and 20 ns only in a
    /// library.
    fn waits(mine: bool) -> Table {
        let mut made = Fixture::new();
        let functions = [("wait", "/usr/lib/python3.11/threading.py"), ("train", "/me/train.py")];
        for (at, (function, file)) in functions.into_iter().enumerate() {
            let [function, file, module] = [function, file, "[python]"].map(|text| made.name(text));
            let address = SYNTHETIC_FRAME | (at as u64 + 1);
            let symbol = Symbol { process: 0, address, depth: 0, function, file, line: 7, module };
            made.writer.symbol(&symbol);
        }
        let frames = [1, 2].map(|frame| SYNTHETIC_FRAME | frame);
        let stacks = [(1, frames.to_vec()), (2, frames[..1].to_vec())];
        for (stack, frames) in stacks {
            made.writer.stack(&Stack { process: 0, stack, end: 0, frames });
        }
        let row = |time_ns, weight_ns, stack| Sample {
            time_ns,
            weight_ns,
            stack,
            state: ThreadState::Lock,
            ..Sample::default()
        };
        made.writer.write(&mut vec![row(10, 10, 1), row(40, 20, 2)]).unwrap();
        let file = made.finish();
        let cpu = CpuTrace::load(&file);
        WaitsByPlace::of(&cpu, &file, mine).table(2)
    }

    #[test]
    fn mine_attributes_waits_to_own_functions_and_leaves_out_the_rest() {
        let places = |table: &Table| -> Vec<(Option<f64>, String)> {
            let row = |row: &Vec<Cell>| {
                let number = row[0].value().and_then(|value| value.number());
                (number, format!("{:?}", row[6]))
            };
            table.rows.iter().map(row).collect()
        };
        let all = places(&waits(false));
        assert_eq!(all.len(), 1);
        assert_eq!(all[0].0, Some(30.0));
        assert!(all[0].1.contains("wait (python3.11/threading.py)"), "{all:?}");
        let table = waits(true);
        let own = places(&table);
        assert_eq!((own.len(), own[0].0), (1, Some(10.0)));
        assert!(own[0].1.contains("train (me/train.py)"), "{own:?}");
        assert!(table.about.contains("20 ns below no file"), "{}", table.about);
    }
}
