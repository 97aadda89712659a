//! Finds the role of a stack in PyTorch's DataLoader by the functions of `torch/utils/data` on the
//! stack. Loaders of other frameworks have no role.

/// The role of a stack in data loading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The stack of a worker.
    Worker,
    /// The stack of a thread that receives batches.
    Consumer,
    /// The stack of a thread that makes the loader. Workers are forked from this thread, so they
    /// inherit this stack.
    Starter,
}

impl Role {
    /// The role of one of Python's functions. Since 3.11, the function's name begins with its
    /// class.
    pub fn of(function: &str, file: &str) -> Option<Role> {
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

    /// The role of a stack, from the roles of its functions. A forked worker's stack also has the
    /// frames of its parent, so the role of a worker has priority.
    pub fn of_all(roles: impl Iterator<Item = Role>) -> Option<Role> {
        let rank = |role: &Role| match role {
            Role::Worker => 2,
            Role::Consumer => 1,
            Role::Starter => 0,
        };
        roles.max_by_key(rank)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loaders_are_recognized_with_and_without_a_class_name() {
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
