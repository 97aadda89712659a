//! Gathers what each rank does now, for `tprof where`. The engine tells what it knows, twice with a
//! pause in between, so that it shows what goes on. The stacks are read here, on the thread of the
//! request: the engine goes on meanwhile, and no thread of the job is stopped.

use super::control::{Reply, Request};
use super::idle_times::IdleTimes;
use crate::output::shown_path::shown_path;
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tprof_hang::{FrameState, HostState, Layer, Progress, ThreadState, Wait, WaitKind};
use tprof_os::{proc, sys};
use tprof_sampler::cpu::{Frame, Looker, SeenThread};
use tprof_symbols::Symbolizer;
use tprof_symbols::disk_cache::DiskCache;
use tprof_trace::model::ThreadState as Waits;
use tprof_unwind::modules::ModuleLoad;

/// Time between the two readings.
const BETWEEN: Duration = Duration::from_millis(250);
/// Time after which files are no longer read for names and running threads no longer sampled, so that
/// the answer comes in time.
const NAMES_WITHIN: Duration = Duration::from_millis(1200);
/// Number of threads that are read of each process.
const MAX_THREADS: usize = 256;

/// The options by which stacks are named.
pub struct Standstill {
    /// Directory of the cache of symbols, if there is one.
    pub kept: Option<PathBuf>,
    /// Whether paths are shortened to names of files.
    pub redact: bool,
    /// Which ranks do something, if anyone watches.
    pub idle_times: Option<Arc<Mutex<IdleTimes>>>,
}

/// The resources that a process has used.
#[derive(Clone, Copy, Default)]
struct Used {
    cpu_ns: Option<u64>,
    bytes: Option<u64>,
}

impl Used {
    fn by(pid: u32) -> Used {
        let bytes = proc::transferred_by(pid).map(|of| of.read.saturating_add(of.written));
        Used { cpu_ns: sys::cpu_ns_of(pid), bytes }
    }
}

impl Standstill {
    /// Gathers the state of all ranks at once, for what may be over in a moment. It doesn't tell which
    /// ranks go on. `ask` asks the engine.
    pub fn gather_now(&self, ask: impl Fn(&Request) -> Option<Reply>) -> Option<HostState> {
        let mut now = states(&ask(&Request::Where)?)?;
        self.read_threads(&mut now, Instant::now() + NAMES_WITHIN);
        Some(now)
    }

    /// Gathers the state of all ranks. `ask` asks the engine.
    pub fn gather(&self, ask: impl Fn(&Request) -> Option<Reply>) -> Option<Reply> {
        let first = ask(&Request::Where)?;
        let Some(before) = states(&first) else { return Some(first) };
        let began = Instant::now();
        let old: HashMap<u32, (Progress, Used)> = before
            .ranks
            .iter()
            .map(|rank| (rank.pid, (rank.progress(), Used::by(rank.pid))))
            .collect();
        std::thread::sleep(BETWEEN);
        let second = ask(&Request::Where)?;
        let Some(mut now) = states(&second) else { return Some(second) };
        let between_ns = began.elapsed().as_nanos() as f64;
        for rank in now.ranks.iter_mut().filter(|rank| rank.end.is_none()) {
            if let Some((progress, used)) = old.get(&rank.pid) {
                let new = Used::by(rank.pid);
                let cpu_ns = new.cpu_ns.zip(used.cpu_ns);
                rank.cpu_share =
                    cpu_ns.map(|(new, old)| new.saturating_sub(old) as f64 / between_ns);
                rank.transferred_bytes =
                    new.bytes.zip(used.bytes).map(|(new, old)| new.saturating_sub(old));
                rank.goes_on = rank.progress() != *progress;
            }
        }
        if let Some(Ok(idle_times)) = self.idle_times.as_ref().map(|idle_times| idle_times.lock()) {
            idle_times.tell(&mut now, sys::monotonic_ns());
        }
        self.read_threads(&mut now, began + NAMES_WITHIN);
        Some(serde_json::to_value(now).map_or(second, Reply::with))
    }

    fn read_threads(&self, state: &mut HostState, until: Instant) {
        let kept = self.kept.clone().map(|path| Arc::new(DiskCache::new(path)));
        let mut names = Names {
            symbolizer: Symbolizer::sparing(kept, !self.redact),
            modules: Vec::new(),
            redact: self.redact,
            until,
        };
        let mut looker = Looker::default();
        for rank in state.ranks.iter_mut().filter(|rank| rank.end.is_none()) {
            let count = proc::count_threads(rank.pid);
            let mut seen = looker.look(rank.pid, MAX_THREADS, until);
            rank.unread_threads = count.saturating_sub(seen.len() as u64);
            if seen.iter().any(|thread| holder(thread, &seen).is_some()) {
                // Locks change hands. Only what two readings agree on counts.
                let again = looker.look(rank.pid, MAX_THREADS, until);
                let same = |thread: &SeenThread| {
                    let other = again.iter().find(|other| other.tid == thread.tid);
                    other.is_some_and(|other| holder(other, &again) == holder(thread, &seen))
                };
                let agreed: Vec<Option<u32>> = seen
                    .iter()
                    .map(|thread| holder(thread, &seen).filter(|_| same(thread)))
                    .collect();
                for (thread, holder) in seen.iter_mut().zip(agreed) {
                    thread.holder = holder;
                }
            }
            names.modules = looker.modules();
            rank.threads = seen.iter().map(|thread| names.thread(rank.pid, thread)).collect();
        }
    }
}

fn states(reply: &Reply) -> Option<HostState> {
    serde_json::from_value(reply.status.clone()?).ok()
}

/// Returns the thread that holds the lock that a thread waits for, as far as it is known.
fn holder(thread: &SeenThread, all: &[SeenThread]) -> Option<u32> {
    match thread.waits_for {
        Some(Waits::Gil) => {
            let mut holders = all.iter().filter(|other| other.gil == Some(true));
            holders.next().filter(|other| other.tid != thread.tid).map(|other| other.tid)
        }
        _ => thread.holder,
    }
}

/// Names the frames of threads.
struct Names {
    symbolizer: Symbolizer,
    /// Modules of the process whose threads are named.
    modules: Vec<ModuleLoad>,
    redact: bool,
    /// From this time on, native frames get only names that are known already.
    until: Instant,
}

impl Names {
    fn thread(&mut self, pid: u32, seen: &SeenThread) -> ThreadState {
        let frames = seen.frames.iter().flat_map(|frame| self.frame(pid, frame)).collect();
        let waits = seen.waits_for.is_some()
            || seen.kernel_function.is_some()
            || matches!(seen.state, b'S' | b'D');
        let on = seen.target.as_ref().map(|on| self.shown(on)).or(seen.kernel_function.clone());
        let wait = Wait { kind: kind(seen.waits_for), on, holder: seen.holder };
        ThreadState {
            tid: seen.tid,
            name: seen.name.clone(),
            state: char::from(seen.state),
            wait: waits.then_some(wait),
            gil: seen.gil,
            frames,
            is_cut: seen.is_cut,
        }
    }

    /// Returns the functions of a frame, those that were inlined first.
    fn frame(&mut self, pid: u32, frame: &Frame) -> Vec<FrameState> {
        let address = match frame {
            Frame::Address(address) => address.wrapping_sub(1),
            Frame::Python(python) => {
                return vec![FrameState {
                    function: python.function.to_string(),
                    file: self.shown(&python.file),
                    line: python.line,
                    module: String::new(),
                    layer: Layer::Python,
                }];
            }
            Frame::Kernel(_) | Frame::KernelFunction(_) => return Vec::new(),
        };
        let holds = |load: &&ModuleLoad| {
            load.pid == pid && (load.module.start..load.module.end).contains(&address)
        };
        let Some(load) = self.modules.iter().rev().find(holds) else {
            return vec![FrameState::default()];
        };
        let module = shown_path(&load.module.path, self.redact);
        let (file, pc) = (load.module.module_file(), address.wrapping_sub(load.module.bias));
        let found = match Instant::now() < self.until {
            true => self.symbolizer.resolve(&file, pc),
            // What is known already costs nothing. Most ranks of a job are at the same places.
            false => self.symbolizer.found_before(&file, pc).unwrap_or_default(),
        };
        if found.is_empty() {
            return vec![FrameState { module, ..FrameState::default() }];
        }
        let named = found.iter().map(|one| FrameState {
            function: one.function.clone(),
            file: self.shown(&one.file),
            line: one.line,
            module: module.clone(),
            layer: Layer::Native,
        });
        named.collect()
    }

    fn shown(&self, path: &str) -> String {
        match self.redact {
            true => path.rsplit('/').next().unwrap_or_default().to_owned(),
            false => path.to_owned(),
        }
    }
}

fn kind(waits_for: Option<Waits>) -> WaitKind {
    match waits_for {
        Some(Waits::Lock) => WaitKind::Lock,
        Some(Waits::Gil) => WaitKind::Gil,
        Some(Waits::Io) => WaitKind::Io,
        Some(Waits::Poll) => WaitKind::Poll,
        Some(Waits::Sleep) => WaitKind::Sleep,
        Some(Waits::Device) => WaitKind::Device,
        Some(Waits::Running | Waits::Runnable | Waits::Blocked) | None => WaitKind::Other,
    }
}
