//! Reads the names that Python programs give to threads and processes:
//! `threading.Thread(name=...)`, `multiprocessing.Process(name=...)`, and the number of a worker of
//! PyTorch's `DataLoader`.
//!
//! Such a thread begins in a function of the standard library or of PyTorch, and the object with
//! the name is among the function's variables. The function's frame is read with the stack anyway,
//! so nothing has to be searched.

use super::layout::Objects;
use super::memory::ProcessMemory;
use super::naming::NamingFunction;
use super::objects::ObjectReader;
use std::collections::HashMap;
use std::time::{Duration, Instant};
use tprof_wire::python::Layout;

/// Time after which a name is read again, because the program may have changed it.
const CHECK: Duration = Duration::from_secs(1);
/// If a name could not be read because the thread was running, it is tried again after this time,
/// and then after twice as long each time, up to [`CHECK`]. The first time is short because a
/// worker may live only briefly.
const RETRY: Duration = Duration::from_millis(5);
/// Length at which names are cut, bytes.
const MAX_BYTES: usize = 128;

/// A frame whose variables lead to the name of its thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NamingFrame {
    pub by: NamingFunction,
    pub frame: u64,
    pub code: u64,
}

struct KnownName {
    from: NamingFrame,
    read: Instant,
    /// Time after which this name is read again.
    holds: Duration,
    name: Option<String>,
}

/// Names of a process's threads by tid.
#[derive(Default)]
pub struct ThreadNames {
    by_tid: HashMap<u32, KnownName>,
}

impl ThreadNames {
    /// Reads the name of a thread from such a frame. Returns the name only if it is new.
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
        // If the name can't be read now, the old one stays.
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
