//! Names that Python gives its threads and processes: `threading.Thread(name=...)`,
//! `multiprocessing.Process(name=...)`, and the number of a worker of PyTorch's `DataLoader`.
//!
//! Such a thread begins in a function of the standard library (or of PyTorch) that has the named
//! object among its variables. Its frame is read anyway, so no search is needed.

use super::layout::Objects;
use super::memory::ProcessMemory;
use super::naming::NamingFunction;
use super::objects::ObjectReader;
use std::collections::HashMap;
use std::time::{Duration, Instant};
use tprof_wire::python::Layout;

/// A name is read again this often, because it may change.
const CHECK: Duration = Duration::from_secs(1);
/// If a name could not be read because the thread ran, it is tried again after this time, then
/// after twice as long each time, up to [`CHECK`]. A worker may live for less than that.
const RETRY: Duration = Duration::from_millis(5);
/// Longest name that is kept, bytes.
const MAX_BYTES: usize = 128;

/// A frame whose variables contain a thread's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NamingFrame {
    pub by: NamingFunction,
    pub frame: u64,
    pub code: u64,
}

struct KnownName {
    from: NamingFrame,
    read: Instant,
    /// Time for which this name is not read again.
    holds: Duration,
    name: Option<String>,
}

/// Names of a process's threads, by tid.
#[derive(Default)]
pub struct ThreadNames {
    by_tid: HashMap<u32, KnownName>,
}

impl ThreadNames {
    /// Reads the name of a thread that runs in such a frame. Returns it if it is new.
    pub fn read_name(
        &mut self,
        tid: u32,
        from: NamingFrame,
        memory: &ProcessMemory,
        layout: &Layout,
        objects: Objects,
    ) -> Option<String> {
        let before = self.by_tid.get(&tid);
        if before.is_some_and(|known| known.from == from && known.read.elapsed() < known.holds) {
            return None;
        }
        let reader = ObjectReader { memory, layout, objects };
        let name = name(&reader, from).filter(|name| !name.is_empty());
        let holds = match before.filter(|known| known.from == from) {
            _ if name.is_some() => CHECK,
            Some(known) => (known.holds * 2).min(CHECK),
            None => RETRY,
        };
        // If the name cannot be read now, the thread keeps its old name.
        let name = name.or_else(|| before.and_then(|known| known.name.clone()));
        let is_new =
            name.is_some() && before.and_then(|known| known.name.as_ref()) != name.as_ref();
        self.by_tid
            .insert(tid, KnownName { from, read: Instant::now(), holds, name: name.clone() });
        name.filter(|_| is_new)
    }

    /// Removes a thread that has ended, and returns its name.
    pub fn forget(&mut self, tid: u32) -> Option<String> {
        self.by_tid.remove(&tid)?.name
    }

    /// Returns all names, by tid.
    pub fn into_all(self) -> impl Iterator<Item = (u32, String)> {
        self.by_tid.into_iter().filter_map(|(tid, known)| Some((tid, known.name?)))
    }
}

fn name(reader: &ObjectReader<'_>, from: NamingFrame) -> Option<String> {
    let name = match from.by {
        NamingFunction::Owner => reader.string_attribute(reader.local(from.frame, 0)?, "_name")?,
        NamingFunction::Loader => {
            let id = reader.local_named(from.frame, from.code, "worker_id")?;
            format!("DataLoader worker {}", reader.integer(id)?)
        }
    };
    let end = (0..=MAX_BYTES.min(name.len())).rev().find(|at| name.is_char_boundary(*at));
    Some(name[..end.unwrap_or(0)].to_owned())
}
