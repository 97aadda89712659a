//! Data loading: time in the workers of PyTorch's DataLoader, and time that
//! others wait for them.
//!
//! Recognised by the functions of `torch/utils/data` on the stack; loaders of
//! other frameworks are not told apart from other code.

use tprof_trace::model::ThreadState;

use super::load::CpuTrace;
use super::names::{Func, Layer};
use crate::document::{Column, Table, Unit};

/// Time around data loading.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Loading {
    /// Workers on a core.
    pub worker_running_ns: u64,
    /// Workers that wait, for work or for data.
    pub worker_waited_ns: u64,
    /// The consumer on a core inside the loader.
    pub consumer_running_ns: u64,
    /// The consumer waiting for a batch.
    pub consumer_waited_ns: u64,
}

impl Loading {
    /// Of one file.
    pub fn of(trace: &CpuTrace) -> Loading {
        let mut sum = Loading::default();
        for stretch in &trace.stretches {
            let funcs = || stretch.stack.iter().map(|id| trace.names.get(*id));
            let running = stretch.state == ThreadState::Running;
            let into = if funcs().any(is_worker) {
                if running { &mut sum.worker_running_ns } else { &mut sum.worker_waited_ns }
            } else if funcs().any(is_consumer) {
                if running { &mut sum.consumer_running_ns } else { &mut sum.consumer_waited_ns }
            } else {
                continue;
            };
            *into += stretch.weight_ns;
        }
        sum
    }

    /// Adds another file's.
    pub fn add(&mut self, other: &Loading) {
        self.worker_running_ns += other.worker_running_ns;
        self.worker_waited_ns += other.worker_waited_ns;
        self.consumer_running_ns += other.consumer_running_ns;
        self.consumer_waited_ns += other.consumer_waited_ns;
    }

    /// Its table, if there was any.
    pub fn table(&self) -> Option<Table> {
        if *self == Loading::default() {
            return None;
        }
        let columns = vec![
            Column::new("time_ns", "time", Unit::Duration),
            Column::new("what", "what", Unit::Name),
        ];
        let mut table = Table::new("data_loading", "Data loading (torch.utils.data)", columns);
        for (ns, what) in [
            (self.consumer_waited_ns, "the training thread waits for a batch"),
            (self.consumer_running_ns, "the training thread loads or collates itself"),
            (self.worker_running_ns, "loader workers run"),
            (self.worker_waited_ns, "loader workers wait"),
        ] {
            table.row(vec![ns.into(), what.into()]);
        }
        Some(table)
    }
}

fn is_in(func: &Func, file: &str) -> bool {
    func.layer == Layer::Python && func.file.ends_with(file)
}

fn is_worker(func: &Func) -> bool {
    &*func.name == "_worker_loop" && is_in(func, "_utils/worker.py")
}

fn is_consumer(func: &Func) -> bool {
    matches!(&*func.name, "__next__" | "_next_data") && is_in(func, "data/dataloader.py")
}
