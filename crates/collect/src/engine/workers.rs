//! Two threads, the workers, for work that would delay the engine's next pass over the rings. The
//! module worker reads processes' mappings and compiles unwind tables; the symbol worker resolves
//! addresses to names.
//!
//! A target (a process of the job) that needs its mappings or unwind tables requests them in its
//! region and waits. The engine passes the request on as a question to the module worker, which
//! publishes the result in the region, sends an [`Answer`] to the engine and wakes the target.

use crate::engine::prebuilt_tables::PrebuiltTables;
use crate::shared::{Region, SessionMemory, Tables, publish, take_marks};
use crate::targets::code::{SharedPython, Unresolved};
use std::collections::{HashMap, VecDeque};
use std::path::Path;
use std::sync::atomic::Ordering::*;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tprof_os::maps::Mapping;
use tprof_os::sys;
use tprof_sampler::python;
use tprof_symbols::disk_cache::DiskCache;
use tprof_symbols::{ModuleFile, ResolvedFrame, Symbolizer};
use tprof_unwind::modules::{CompileJob, FileKey, LoadedModule, ModuleCache, TableState};
use tprof_wire::region::stack_mode;

/// Most bytes of frame information that are compiled while a target waits. They take about 400 ms
/// on one processor, and a target waits up to a second. PyTorch with CUDA loads 27 MB at
/// once (180 ms on two processors); with a lower limit, the stacks of its start would be cut.
/// Tables beyond this limit are compiled once the target continues.
const MAX_BYTES_WHILE_WAITING: u64 = 64 << 20;
/// After the first request of a process that computes unwind rows itself, the tables of its
/// smallest modules are compiled for later processes: at most this many bytes of frame information,
/// which take 6 ms.
const MAX_BYTES_FOR_LATER: u64 = 1 << 20;
/// Several threads compile a batch of at least this many bytes of frame information.
const MIN_BYTES_FOR_THREADS: u64 = 1 << 20;
const MAX_THREADS: usize = 4;

/// Most images whose mappings are remembered. A question about their tables needs no new reading.
const MAX_RECENT: usize = 32;

/// A pid that no process has. With it, nothing is read from `/proc`.
const NO_PID: u32 = 0;

/// A question for the module worker: what has this image mapped?
pub struct ModulesQuestion {
    /// The image that the question is about.
    pub image: u64,
    /// The process id of the image.
    pub pid: u32,
    /// The region in which the result is published for the target.
    pub region: Arc<Region>,
    /// The number of the target's request, which it waits for; `None` if only the engine asks.
    pub request: Option<u32>,
    /// Whether the image has ended, so that its pid may belong to another process.
    pub ended: bool,
    /// The mappings when the image began. The worker uses them if the image has ended, because its
    /// mappings can then no longer be read.
    pub begun_with: Vec<Mapping>,
    /// The time when the image began, `CLOCK_MONOTONIC` ns.
    pub begun_ns: u64,
}

/// The executable mappings of an image.
#[derive(Clone)]
pub struct MappingsRead {
    /// Number of the image.
    pub image: u64,
    /// Time when the image had these modules, `CLOCK_MONOTONIC` ns.
    pub read_ns: u64,
    /// The modules that the image maps.
    pub modules: Vec<LoadedModule>,
    /// Whether the image had ended. Then `modules` are those from its beginning, or empty if these
    /// are unknown.
    pub had_ended: bool,
}

/// A task of the symbol worker.
pub enum SymbolTask {
    /// Resolve addresses in programs and libraries.
    User(Unresolved),
    /// Resolve addresses in the kernel, once the run has lasted for [`KERNEL_AFTER`].
    Kernel(Unresolved),
    /// Somebody waits for the names: resolve the kernel's addresses that were sent before, and from
    /// now on do so as soon as they are sent.
    KernelNow,
    /// The run is over: resolve what is left, and write the names to the disk cache. No addresses
    /// are sent after this.
    Finish,
}

/// A run that is shorter than this doesn't resolve kernel addresses, because the kernel takes 40 ms
/// to list its functions. Such addresses get the name of an unknown kernel function.
const KERNEL_AFTER: Duration = Duration::from_secs(1);

/// A task of the module worker.
pub enum ModuleTask {
    /// Read what an image has mapped.
    Read(ModulesQuestion),
    /// The run is over: write the tables that were compiled to the disk cache.
    WriteCache,
}

/// A message from the workers to the engine.
pub enum Answer {
    /// A worker has written its results to the disk cache, for later runs.
    CacheWritten,
    /// The modules that an image has mapped.
    Modules(MappingsRead),
    /// The modules of this image are those that the engine got last.
    SameModules(u64),
    /// Addresses were resolved: the target as in [`Unresolved`], and for each address its module
    /// and its frames, innermost first.
    Symbols(u64, Vec<(u64, Arc<ModuleFile>, Arc<[ResolvedFrame]>)>),
    /// The number of an image, and its Python interpreter.
    Python(u64, SharedPython),
    /// A process has an interpreter whose frames can't be read: the process's name for the report,
    /// and the reason.
    NoPython(String, String),
}

/// Handles of both workers.
pub struct Workers {
    /// Tasks for the module worker.
    pub modules: Sender<ModuleTask>,
    /// Tasks for the symbol worker.
    pub symbols: Sender<SymbolTask>,
}

/// Starts both workers. They send to `answers` and then wake the engine. `disk_cache` keeps tables
/// for later runs, and names as well if `caches_names`. Returns an error if a thread can't be
/// started.
pub fn start(
    tables: Tables,
    prebuilt: Arc<PrebuiltTables>,
    session: Arc<SessionMemory>,
    disk_cache: Option<Arc<DiskCache>>,
    caches_names: bool,
    answers: Sender<Answer>,
) -> std::io::Result<Workers> {
    let (modules, module_tasks) = channel();
    let (symbols, symbol_tasks) = channel();
    let (module_answers, module_session) = (answers.clone(), Arc::clone(&session));
    let thread = |name: &str| std::thread::Builder::new().name(name.to_owned());
    thread("tprof-modules").spawn(move || {
        serve_modules(&module_tasks, tables, &prebuilt, &module_answers, &module_session)
    })?;
    thread("tprof-symbols").spawn(move || {
        let symbolizer = Symbolizer::sparing(disk_cache, caches_names);
        serve_symbols(&symbol_tasks, symbolizer, KERNEL_AFTER, &answers, &session)
    })?;
    Ok(Workers { modules, symbols })
}

fn serve_modules(
    tasks: &Receiver<ModuleTask>,
    mut tables: Tables,
    prebuilt: &PrebuiltTables,
    answers: &Sender<Answer>,
    session: &SessionMemory,
) {
    let mut pythons: HashMap<u64, PythonSearch> = HashMap::new();
    // The mappings of recent images, the latest first: the image's number, how many times the image
    // had requested its mappings when they were read, and the mappings.
    let mut recent: VecDeque<(u64, u32, MappingsRead)> = VecDeque::new();
    while let Ok(task) = tasks.recv() {
        let mut question = match task {
            ModuleTask::Read(question) => question,
            ModuleTask::WriteCache => {
                write_cache(prebuilt);
                let _ = answers.send(Answer::CacheWritten);
                session.wake();
                continue;
            }
        };
        let mut cache = prebuilt.cache();
        let unloads = question.region.header().python_unloads.load(Acquire);
        let requests = question.region.header().maps_wanted.load(Acquire);
        let index = recent.iter().position(|(image, ..)| *image == question.image);
        let before = index.and_then(|index| recent.remove(index));
        // A target that requests a table only, and not its mappings again, gets it by the mappings
        // that were read before.
        let is_same = question.request.is_some()
            && before.as_ref().is_some_and(|(_, requests_before, _)| *requests_before == requests);
        let before = before.map(|(.., mappings)| mappings);
        let mut mappings = match before {
            Some(mappings) if is_same => mappings,
            before => read_mappings(&mut question, before, &mut cache),
        };
        let had_ended = mappings.had_ended;
        let modules = &mut mappings.modules;
        // A target that computes unwind rows itself waits only for the list of its mappings, and
        // its tables are compiled below.
        let finds_rows = question.region.finds_rows();
        let mut later = Batch::default();
        if !finds_rows {
            cache.load_cached(&mut tables);
            take_marks(&question.region, modules, &mut cache);
            let (now, rest) = to_compile(modules, &cache, finds_rows, MAX_BYTES_WHILE_WAITING);
            later = Batch::of(&rest, &mut cache);
            Batch::of(&now, &mut cache).compile(&mut cache, &mut tables);
        }
        publish(&question.region, modules, &mut cache);
        if !had_ended
            && wants_python(&question, modules)
            && let Some(answer) = find_python(&question, unloads, modules, &mut pythons)
        {
            let _ = answers.send(answer);
        }
        // The engine gets the modules before the target continues. Otherwise the target might end
        // before the engine knows them.
        let found = match is_same {
            true => Answer::SameModules(mappings.image),
            false => Answer::Modules(mappings.clone()),
        };
        if answers.send(found).is_err() {
            return;
        }
        // The target's thread is woken first, because the engine may compete for the same
        // processor.
        wake_target(&question);
        session.wake();
        if finds_rows {
            take_marks(&question.region, &mappings.modules, &mut cache);
            // The short processes of one program run through the same code, so tables that are
            // compiled now serve the program's later processes.
            if requests <= 1 {
                cache.ask_small(&mappings.modules, MAX_BYTES_FOR_LATER);
            }
            let (files, _) = to_compile(&mappings.modules, &cache, finds_rows, u64::MAX);
            later = Batch::of(&files, &mut cache);
        }
        if !later.jobs.is_empty() {
            later.compile(&mut cache, &mut tables);
            publish(&question.region, &mut mappings.modules, &mut cache);
        }
        recent.truncate(MAX_RECENT - 1);
        recent.push_front((question.image, requests, mappings));
    }
}

/// Lists the files, and parts of large files, whose tables should be compiled, the cheapest first,
/// in two groups: the first that together have at most `max_bytes` of frame information, and the
/// others.
fn to_compile(
    modules: &[LoadedModule],
    cache: &ModuleCache,
    finds_rows: bool,
    max_bytes: u64,
) -> (Vec<FileKey>, Vec<FileKey>) {
    let files = modules.iter().filter_map(|m| m.file);
    let mut wanted: Vec<_> = files
        .flat_map(|f| cache.parts(f).iter().map(|part| part.1).chain([f]))
        .filter(|f| *cache.state(*f) == TableState::Wanted && !cache.is_deferred(*f, finds_rows))
        .collect();
    wanted.sort_by_key(|file| cache.module_cost(*file));
    let mut cost = 0;
    wanted.into_iter().partition(|file| {
        cost += cache.module_cost(*file);
        cost <= max_bytes
    })
}

/// Writes the compiled tables to the disk cache. This may be slow while the job's threads wait for
/// this thread, so it is called only when the run is over.
fn write_cache(prebuilt: &PrebuiltTables) {
    // The cache must not be locked while its tables are written, because processes that begin now
    // need it.
    let fresh = prebuilt.cache().take_fresh();
    fresh.write();
}

/// Tables to be compiled together.
#[derive(Default)]
struct Batch {
    /// The jobs, the cheapest first.
    jobs: Vec<CompileJob>,
    /// Bytes of frame information of all jobs.
    cost: u64,
}

impl Batch {
    /// Returns the compile jobs of files that are sorted by cost.
    fn of(files: &[FileKey], cache: &mut ModuleCache) -> Batch {
        let cost = files.iter().map(|file| cache.module_cost(*file)).sum();
        Batch { jobs: files.iter().filter_map(|file| cache.job(*file)).collect(), cost }
    }

    /// Compiles the tables, on several threads if the batch is large, and stores them in `tables`.
    fn compile(self, cache: &mut ModuleCache, tables: &mut Tables) {
        let threads = match self.cost {
            MIN_BYTES_FOR_THREADS.. => std::thread::available_parallelism().map_or(1, |n| n.get()),
            _ => 1,
        };
        let threads = threads.min(MAX_THREADS).min(self.jobs.len());
        // `pop` returns the most expensive job first.
        let jobs = Mutex::new(self.jobs);
        let next = || jobs.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let (done, compiled) = channel();
        std::thread::scope(|scope| {
            for _ in 1..threads {
                let done = done.clone();
                let work = move || {
                    while let Some(job) = next() {
                        let _ = done.send(job.run());
                    }
                };
                // If no thread can be started, this thread runs all jobs.
                let named = std::thread::Builder::new().name("tprof-modules".to_owned());
                let _ = named.spawn_scoped(scope, work);
            }
            drop(done);
            while let Some(job) = next() {
                cache.publish(job.run(), tables);
                for compiled in compiled.try_iter() {
                    cache.publish(compiled, tables);
                }
            }
            for compiled in &compiled {
                cache.publish(compiled, tables);
            }
        });
    }
}

/// Returns what an image has mapped. If the image has ended, returns what it had mapped when it
/// began. `before` is the previous result for this image.
fn read_mappings(
    question: &mut ModulesQuestion,
    before: Option<MappingsRead>,
    cache: &mut ModuleCache,
) -> MappingsRead {
    let ModulesQuestion { image, pid, ended, begun_ns, .. } = *question;
    let read_ns = sys::monotonic_ns();
    // The mappings of a zombie are an empty list, which counts as an ended image.
    let before = before.as_ref().map_or(&[][..], |before| &before.modules);
    let modules = (!ended).then(|| cache.loaded_since(pid, before).unwrap_or_default());
    match modules.filter(|modules| !modules.is_empty()) {
        Some(modules) => MappingsRead { image, read_ns, modules, had_ended: false },
        None => {
            // `/proc` may show another process under this pid by now, so nothing is read from it.
            let modules = cache.identified(NO_PID, std::mem::take(&mut question.begun_with));
            MappingsRead { image, read_ns: begun_ns, modules, had_ended: true }
        }
    }
}

/// The result of the last search for an interpreter in a process.
enum PythonSearch {
    /// There was none among this many modules.
    None(usize),
    /// There is one, in the module that begins at this address.
    At(u64),
    /// There is one, but its frames can't be read.
    Refused,
}

/// Whether Python's frames are needed for this target's stacks: for all of them, or only for those
/// of calls on files and of calls that wait for a device.
fn wants_python(question: &ModulesQuestion, modules: &[LoadedModule]) -> bool {
    let header = question.region.header();
    let has_runtime = || modules.iter().any(|module| is_cuda_library(&module.path));
    match header.stack_mode.load(Relaxed) {
        stack_mode::PYTHON => true,
        stack_mode::OFF => false,
        _ if header.io.load(Relaxed) != 0 => true,
        _ => header.calls.load(Relaxed) != 0 && has_runtime(),
    }
}

/// Whether this is the path of CUDA's shared runtime library, whose calls have hooks.
fn is_cuda_library(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"libcudart.so"))
}

/// Searches an image's modules for a Python interpreter, unless the last result is still valid, and
/// publishes it in the region. `unloads` is the number of interpreters that the image had unloaded
/// before its modules were read.
fn find_python(
    question: &ModulesQuestion,
    unloads: u32,
    modules: &[LoadedModule],
    pythons: &mut HashMap<u64, PythonSearch>,
) -> Option<Answer> {
    let header = question.region.header();
    let is_outdated = match pythons.get(&question.image) {
        None => true,
        Some(PythonSearch::None(before)) => *before != modules.len(),
        Some(PythonSearch::At(start)) => {
            header.python_epoch.load(Acquire) != unloads.wrapping_add(1)
                || !modules.iter().any(|m| m.start == *start && python::may_be(&m.path))
        }
        Some(PythonSearch::Refused) => false,
    };
    if !is_outdated {
        return None;
    }
    let candidates = modules.iter().filter(|m| python::may_be(&m.path)).cloned();
    let found = python::find(question.pid, candidates);
    let found = found.map(|found| {
        found.and_then(|found| {
            let with_process = |why| (format!("{} python", question.pid), why);
            found.interpreter().map(|words| (found, words)).map_err(with_process)
        })
    });
    let (search, answer) = match found {
        None => (PythonSearch::None(modules.len()), None),
        Some(Err((process, why))) => {
            // The error is only reported if the user asked for Python's frames.
            let is_asked = header.stack_mode.load(Relaxed) == stack_mode::PYTHON;
            (PythonSearch::Refused, is_asked.then(|| Answer::NoPython(process, why)))
        }
        Some(Ok((found, interpreter))) => {
            for (place, word) in header.python.iter().zip(interpreter.words()) {
                place.store(word, Relaxed);
            }
            header.python_epoch.store(unloads.wrapping_add(1), Release);
            let start = found.start;
            let found = Arc::new(Mutex::new(found));
            (PythonSearch::At(start), Some(Answer::Python(question.image, found)))
        }
    };
    pythons.insert(question.image, search);
    answer
}

/// Publishes that the target's request is answered, and wakes the threads that wait for it.
fn wake_target(question: &ModulesQuestion) {
    if let Some(request) = question.request {
        let header = question.region.header();
        header.modules_answered.store(request, Release);
        sys::futex_wake(&header.modules_answered);
    }
}

fn serve_symbols(
    tasks: &Receiver<SymbolTask>,
    mut symbolizer: Symbolizer,
    kernel_after: Duration,
    answers: &Sender<Answer>,
    session: &SessionMemory,
) {
    let mut kernel_from = Instant::now() + kernel_after;
    // Kernel addresses that wait until `kernel_from`.
    let mut of_kernel: Vec<Unresolved> = Vec::new();
    loop {
        let left = kernel_from.saturating_duration_since(Instant::now());
        let task = match of_kernel.is_empty() {
            true => tasks.recv().map_err(|_| RecvTimeoutError::Disconnected),
            false => tasks.recv_timeout(left),
        };
        let (due, is_last) = match task {
            Ok(SymbolTask::User(unresolved)) => (vec![unresolved], false),
            Ok(SymbolTask::Kernel(unresolved)) => {
                of_kernel.push(unresolved);
                (Vec::new(), false)
            }
            Ok(SymbolTask::KernelNow) => {
                kernel_from = Instant::now();
                (std::mem::take(&mut of_kernel), false)
            }
            Ok(SymbolTask::Finish) => (std::mem::take(&mut of_kernel), true),
            Err(RecvTimeoutError::Timeout) => (std::mem::take(&mut of_kernel), false),
            Err(RecvTimeoutError::Disconnected) => return,
        };
        // Only kernel addresses can be left if the run ends before they were due.
        let is_short_run = is_last && Instant::now() < kernel_from;
        for Unresolved { target, places } in due {
            let mut resolved = Vec::with_capacity(places.len());
            for (address, module, pc) in places {
                let frames = match is_short_run {
                    true => Arc::new([tprof_symbols::some_kernel_function()]),
                    false => symbolizer.resolve(&module, pc),
                };
                resolved.push((address, module, frames));
            }
            if answers.send(Answer::Symbols(target, resolved)).is_err() {
                return;
            }
            session.wake();
        }
        if is_last {
            symbolizer.write_cache();
            let _ = answers.send(Answer::CacheWritten);
            session.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernel_names_are_resolved_at_once_if_somebody_waits() {
        let session = SessionMemory::new().unwrap().0;
        let (tasks, received) = channel();
        let (answers, answered) = channel();
        let never = Duration::from_secs(3600);
        let serve = move || {
            serve_symbols(&received, Symbolizer::sparing(None, false), never, &answers, &session)
        };
        let worker = std::thread::spawn(serve);
        let ask = |target| {
            let places = vec![(16, tprof_symbols::kernel(), 16)];
            tasks.send(SymbolTask::Kernel(Unresolved { target, places })).unwrap();
        };
        ask(7);
        tasks.send(SymbolTask::KernelNow).unwrap();
        // Kernel addresses that are sent after `KernelNow` are resolved at once as well.
        ask(8);
        for target in [7, 8] {
            let answer = answered.recv_timeout(Duration::from_secs(60));
            assert!(matches!(answer, Ok(Answer::Symbols(of, _)) if of == target));
        }
        drop(tasks);
        worker.join().unwrap();
    }
}
