//! Measures data loading: the time that driving threads wait for data, and what the workers of
//! PyTorch's DataLoader do.
//!
//! The wait equals the part `data` of `report host`, so that all reports of a run have the same
//! number.

use tprof_document::{Column, Table, Unit};
use tprof_rank::samples::{CpuTrace, Layer, Part, Role};
use tprof_trace::model::ThreadState;

use super::cells::estimated;
use crate::host::RankHost;

/// Times that concern data loading.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Loading {
    /// Time in which the driving thread waited for data in its judged time, ns, and the variance of
    /// that time; `None` if no such thread was sampled.
    data_wait: Option<(u64, f64)>,
    /// Time of workers on a core, ns.
    worker_running_ns: u64,
    /// Time in which workers waited, for work or for data, ns.
    worker_waited_ns: u64,
    /// Time of any other thread on a core inside the loader, ns.
    consumer_running_ns: u64,
    /// Time in which a thread made the loader and started its workers, on a core or not, ns.
    starting_ns: u64,
}

impl Loading {
    /// Measures one rank; without `host`, the wait of its driving thread stays unknown.
    pub fn of(trace: &CpuTrace, host: Option<&RankHost>) -> Loading {
        let data_wait = host.map(|host| {
            let waited = host.ledger.parts.get(&Part::Data).copied().unwrap_or_default();
            (waited.ns, waited.shared.variance())
        });
        let mut sum = Loading { data_wait, ..Loading::default() };
        for stretch in &trace.stretches {
            let funcs = stretch.stack.iter().map(|id| trace.names.get(*id));
            let python = funcs.filter(|func| func.layer == Layer::Python);
            let role = Role::of_all(python.filter_map(|func| Role::of(&func.name, &func.file)));
            let running = stretch.state == ThreadState::Running;
            let into = match (role, running) {
                (None, _) | (Some(Role::Consumer), false) => continue,
                (Some(Role::Worker), true) => &mut sum.worker_running_ns,
                (Some(Role::Worker), false) => &mut sum.worker_waited_ns,
                (Some(Role::Consumer), true) => &mut sum.consumer_running_ns,
                (Some(Role::Starter), _) => &mut sum.starting_ns,
            };
            *into += stretch.weight_ns;
        }
        sum
    }

    /// Adds another rank's times.
    pub fn add(&mut self, other: &Loading) {
        if let Some((ns, variance)) = other.data_wait {
            let (of_ns, of_variance) = self.data_wait.unwrap_or_default();
            self.data_wait = Some((of_ns + ns, of_variance + variance));
        }
        self.worker_running_ns += other.worker_running_ns;
        self.worker_waited_ns += other.worker_waited_ns;
        self.consumer_running_ns += other.consumer_running_ns;
        self.starting_ns += other.starting_ns;
    }

    /// The table of data loading; `None` if there was none.
    pub fn table(&self) -> Option<Table> {
        let loader = [
            (self.consumer_running_ns, "consumer", "the consumer loads or collates itself"),
            (self.starting_ns, "start", "the loader and its workers are started"),
            (self.worker_running_ns, "workers", "loader workers run"),
            (self.worker_waited_ns, "workers_wait", "loader workers wait"),
        ];
        let waited = self.data_wait.filter(|(ns, _)| *ns > 0);
        if waited.is_none() && loader.iter().all(|(ns, ..)| *ns == 0) {
            return None;
        }
        let columns = vec![
            Column::new("time_ns", "time", Unit::Duration),
            Column::data("part", Unit::Text),
            Column::new("what", "what", Unit::Name),
        ];
        let mut table = Table::new("data_loading", "Data loading", columns).about(
            "data: as in `report host`, of its judged time; the others: PyTorch's DataLoader in \
             the whole run",
        );
        if let Some((ns, variance)) = self.data_wait {
            let what = "the driving thread waits for data, or loads it";
            table.row(vec![estimated(ns, variance), "data".into(), what.into()]);
        }
        for (ns, part, what) in loader.into_iter().filter(|(ns, ..)| *ns > 0) {
            table.row(vec![ns.into(), part.into(), what.into()]);
        }
        Some(table)
    }
}
