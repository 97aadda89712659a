//! Data loading: time in the workers of PyTorch's DataLoader, and time that
//! others wait for them.
//!
//! Recognised by the functions of `torch/utils/data` on the stack; loaders of
//! other frameworks are not separated from other code.

use tprof_trace::model::ThreadState;

use crate::document::{Column, Table, Unit};
use crate::rank::samples::CpuTrace;
use crate::rank::samples::Layer;

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
    /// The consumer making the loader and starting its workers, on a core or not.
    pub starting_ns: u64,
}

/// What a stack has to do with data loading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// A worker's.
    Worker,
    /// Of who takes batches.
    Consumer,
    /// Of who makes the loader: the workers are forked below this.
    Starter,
}

impl Role {
    /// Of one of Python's functions. Since 3.11 its name has the class before it.
    pub(crate) fn of(function: &str, file: &str) -> Option<Role> {
        let own = function.rsplit('.').next().unwrap_or(function);
        match own {
            "_worker_loop" if file.ends_with("_utils/worker.py") => Some(Role::Worker),
            "__next__" | "_next_data" if file.ends_with("data/dataloader.py") => {
                Some(Role::Consumer)
            }
            "__iter__" if file.ends_with("data/dataloader.py") => Some(Role::Starter),
            _ => None,
        }
    }

    /// Of a stack, from its functions: a forked worker's has its parent's
    /// frames below its own.
    pub(crate) fn of_all(roles: impl Iterator<Item = Role>) -> Option<Role> {
        let rank = |role: &Role| match role {
            Role::Worker => 2,
            Role::Consumer => 1,
            Role::Starter => 0,
        };
        roles.max_by_key(rank)
    }
}

impl Loading {
    /// Of one file.
    pub fn of(trace: &CpuTrace) -> Loading {
        let mut sum = Loading::default();
        for stretch in &trace.stretches {
            let funcs = stretch.stack.iter().map(|id| trace.names.get(*id));
            let python = funcs.filter(|func| func.layer == Layer::Python);
            let role = Role::of_all(python.filter_map(|func| Role::of(&func.name, &func.file)));
            let running = stretch.state == ThreadState::Running;
            let into = match (role, running) {
                (None, _) => continue,
                (Some(Role::Worker), true) => &mut sum.worker_running_ns,
                (Some(Role::Worker), false) => &mut sum.worker_waited_ns,
                (Some(Role::Consumer), true) => &mut sum.consumer_running_ns,
                (Some(Role::Consumer), false) => &mut sum.consumer_waited_ns,
                (Some(Role::Starter), _) => &mut sum.starting_ns,
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
        self.starting_ns += other.starting_ns;
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
            (self.starting_ns, "the training thread starts the loader and its workers"),
            (self.worker_running_ns, "loader workers run"),
            (self.worker_waited_ns, "loader workers wait"),
        ] {
            table.row(vec![ns.into(), what.into()]);
        }
        Some(table)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loaders_are_known_with_and_without_the_class_in_a_functions_name() {
        let loader = "/lib/python3/site-packages/torch/utils/data/dataloader.py";
        for name in ["__next__", "_BaseDataLoaderIter.__next__", "_next_data"] {
            assert_eq!(Role::of(name, loader), Some(Role::Consumer), "{name}");
        }
        assert_eq!(Role::of("DataLoader.__iter__", loader), Some(Role::Starter));
        assert_eq!(Role::of("__next__", "/home/me/dataloader_test.py"), None);
        let worker = "/lib/torch/utils/data/_utils/worker.py";
        assert_eq!(Role::of("_worker_loop", worker), Some(Role::Worker));
        let roles = [Role::Worker, Role::Consumer, Role::Starter];
        assert_eq!(Role::of_all(roles.into_iter()), Some(Role::Worker));
        assert_eq!(Role::of_all([].into_iter()), None);
    }
}
