//! Names that Python gives its threads and processes: `threading.Thread(name=...)`,
//! `multiprocessing.Process(name=...)`, and which worker of PyTorch's `DataLoader` it is.
//!
//! Such a thread begins in a function of the standard library (or of PyTorch) with the object
//! that has the name among its variables. So a name costs no search: the frame is read anyway.

use super::layout::Objects;
use super::memory::ProcessMemory;
use super::objects::ObjectReader;
use std::collections::HashMap;
use std::time::{Duration, Instant};
use tprof_wire::python::Layout;

/// A name is read again that often: it may be given another.
const CHECK: Duration = Duration::from_secs(1);
/// Longest name that is kept, bytes.
const MOST_BYTES: usize = 128;

/// What a function knows of the name of the thread that runs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NamedBy {
    /// Its first variable is a `Thread`, or a `Process`.
    Owner,
    /// Its variable `worker_id` is the number of a worker of PyTorch's `DataLoader`.
    Loader,
}

impl NamedBy {
    /// By a function's name and file.
    pub fn of(function: &str, file: &str) -> Option<NamedBy> {
        let begins = function.strip_suffix("_bootstrap");
        match begins {
            Some("" | "Thread.") if file.ends_with("/threading.py") => Some(NamedBy::Owner),
            Some("" | "BaseProcess.") if file.ends_with("/process.py") => Some(NamedBy::Owner),
            None if function == "_worker_loop"
                && file.ends_with("torch/utils/data/_utils/worker.py") =>
            {
                Some(NamedBy::Loader)
            }
            _ => None,
        }
    }
}

/// A frame that has a thread's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NamingFrame {
    pub by: NamedBy,
    pub frame: u64,
    pub code: u64,
}

struct Known {
    from: NamingFrame,
    read: Instant,
    name: Option<String>,
}

/// Names of a process's threads, by tid.
#[derive(Default)]
pub struct ThreadNames {
    of: HashMap<u32, Known>,
}

impl ThreadNames {
    /// A thread runs in such a frame. Its name, where that is new.
    pub fn met(
        &mut self,
        tid: u32,
        from: NamingFrame,
        memory: &ProcessMemory,
        layout: &Layout,
        objects: Objects,
    ) -> Option<String> {
        let before = self.of.get(&tid);
        if before.is_some_and(|known| known.from == from && known.read.elapsed() < CHECK) {
            return None;
        }
        let reader = ObjectReader { memory, layout, objects };
        let name = name(&reader, from).filter(|name| !name.is_empty());
        // What cannot be read now keeps its name.
        let name = name.or_else(|| before.and_then(|known| known.name.clone()));
        let is_new =
            name.is_some() && before.and_then(|known| known.name.as_ref()) != name.as_ref();
        self.of.insert(tid, Known { from, read: Instant::now(), name: name.clone() });
        name.filter(|_| is_new)
    }

    /// A thread is gone; its name.
    pub fn forget(&mut self, tid: u32) -> Option<String> {
        self.of.remove(&tid)?.name
    }

    /// All names, by tid.
    pub fn into_all(self) -> impl Iterator<Item = (u32, String)> {
        self.of.into_iter().filter_map(|(tid, known)| Some((tid, known.name?)))
    }
}

fn name(reader: &ObjectReader<'_>, from: NamingFrame) -> Option<String> {
    let name = match from.by {
        NamedBy::Owner => reader.string_attribute(reader.local(from.frame, 0)?, "_name")?,
        NamedBy::Loader => {
            let id = reader.local_named(from.frame, from.code, "worker_id")?;
            format!("DataLoader worker {}", reader.integer(id)?)
        }
    };
    let end = (0..=MOST_BYTES.min(name.len())).rev().find(|at| name.is_char_boundary(*at));
    Some(name[..end.unwrap_or(0)].to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_that_have_a_name_are_known_by_their_function() {
        let by = |function, file| NamedBy::of(function, file);
        let threading = "/usr/lib/python3.11/threading.py";
        let process = "/usr/lib/python3.8/multiprocessing/process.py";
        let worker = "/venv/lib/torch/utils/data/_utils/worker.py";
        assert_eq!(by("Thread._bootstrap", threading), Some(NamedBy::Owner));
        assert_eq!(by("_bootstrap", process), Some(NamedBy::Owner));
        assert_eq!(by("BaseProcess._bootstrap", process), Some(NamedBy::Owner));
        assert_eq!(by("_worker_loop", worker), Some(NamedBy::Loader));
        assert_eq!(by("Thread._bootstrap_inner", threading), None);
        assert_eq!(by("_bootstrap", "/job/threads.py"), None);
        assert_eq!(by("_worker_loop", "/job/worker.py"), None);
    }
}
