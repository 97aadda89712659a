//! Threads for work that would delay the next pass over the rings: one reads processes' mappings
//! and compiles unwind tables, another resolves symbols.

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

/// Bytes of frame information that are compiled before a target gets its answer. They take about
/// 400 ms on one processor, and a target waits up to a second. PyTorch with CUDA loads 27 MB at
/// once (180 ms on two processors); with a lower limit, the stacks of its start would be cut.
/// Tables beyond this limit are compiled after the answer.
const AT_ONCE: u64 = 64 << 20;
/// When a process has its first answer, the tables of its smallest modules are compiled for later
/// processes, up to this many bytes of frame information. They take 6 ms.
const AT_THE_START: u64 = 1 << 20;
/// If more frame information than this is to be compiled, several threads compile it, bytes.
const WORTH_THREADS: u64 = 1 << 20;
const MAX_THREADS: usize = 4;

/// Number of images whose mappings are remembered, so that a question about their tables needs no
/// new reading.
const RECENT: usize = 32;

/// A pid that no process has, so that nothing is read from `/proc`.
const NOBODY: u32 = 0;

/// A question for the module worker: what has this image mapped?
pub struct ModulesWanted {
    /// The image that the question is about.
    pub image: u64,
    /// Its process id.
    pub pid: u32,
    /// The region that the answer is published in.
    pub region: Arc<Region>,
    /// The number of the target's request; `None` if the target did not ask.
    pub request: Option<u32>,
    /// Whether the image has ended, so that its pid may belong to another process.
    pub ended: bool,
    /// The mappings when the image began, and the time when it began, ns. The worker uses them if
    /// the image has ended, because the mappings can then no longer be read.
    pub begun_with: Vec<Mapping>,
    #[allow(missing_docs)]
    pub begun_ns: u64,
}

/// The executable mappings of an image.
#[derive(Clone)]
pub struct MappingsRead {
    /// Number of the image.
    pub image: u64,
    /// Time when the image had these modules, ns.
    pub read_ns: u64,
    /// The modules that the image maps.
    pub modules: Vec<LoadedModule>,
    /// Whether the image had ended. Then `modules` are those from its beginning, if they are known.
    pub late: bool,
}

/// A question for the symbol worker.
pub enum SymbolsWanted {
    /// Resolve addresses in programs and libraries.
    User(Unresolved),
    /// Resolve addresses in the kernel, once the run has lasted for [`KERNEL_AFTER`].
    Kernel(Unresolved),
    /// Somebody waits for the answers, so resolve the kernel's addresses now, and later ones at
    /// once.
    Now,
    /// The run is over, and no more questions will come.
    Last,
}

/// A run that is shorter than this doesn't resolve kernel addresses. The kernel takes 40 ms to list
/// its functions, which is longer than most such runs.
const KERNEL_AFTER: Duration = Duration::from_secs(1);

/// A task of the module worker.
pub enum ModuleTask {
    /// Read what an image has mapped.
    Read(ModulesWanted),
    /// The run is over: cache the tables that were compiled.
    Keep,
}

/// A message from the workers to the engine.
pub enum Answer {
    /// A worker has cached its results for later runs.
    Saved,
    /// The modules that an image has mapped.
    Modules(MappingsRead),
    /// A question about this image was answered from mappings that had been read before, so the
    /// engine has them already.
    SameModules(u64),
    /// The target whose addresses were resolved (see [`Unresolved`]), and for each address its
    /// module and its frames, innermost first.
    Symbols(u64, Vec<(u64, Arc<ModuleFile>, Arc<[ResolvedFrame]>)>),
    /// The Python interpreter of an image.
    Python(u64, SharedPython),
    /// A process has an interpreter whose frames can't be read: the process, and the reason.
    NoPython(String, String),
}

/// Handles of both workers.
pub struct Workers {
    /// Tasks for the module worker.
    pub modules: Sender<ModuleTask>,
    /// Questions for the symbol worker.
    pub symbols: Sender<SymbolsWanted>,
}

/// Starts both workers. They send their answers to `answers` and then wake the engine. `kept` is
/// the cache for later runs, and whether names are cached in it as well as tables.
pub fn start(
    tables: Tables,
    prebuilt: Arc<PrebuiltTables>,
    session: Arc<SessionMemory>,
    kept: (Option<Arc<DiskCache>>, bool),
    answers: Sender<Answer>,
) -> std::io::Result<Workers> {
    let (modules, wanted) = channel();
    let (symbols, places) = channel();
    let (module_answers, module_session) = (answers.clone(), Arc::clone(&session));
    let named = |name: &str| std::thread::Builder::new().name(name.to_owned());
    named("tprof-modules").spawn(move || {
        serve_modules(&wanted, tables, &prebuilt, &module_answers, &module_session)
    })?;
    named("tprof-symbols")
        .spawn(move || serve_symbols(&places, kept, KERNEL_AFTER, &answers, &session))?;
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
    // The mappings of recent images: the image's number, how often the image had asked when they
    // were read, and the mappings.
    let mut recent: VecDeque<(u64, u32, MappingsRead)> = VecDeque::new();
    while let Ok(task) = tasks.recv() {
        let mut question = match task {
            ModuleTask::Read(question) => question,
            ModuleTask::Keep => {
                keep_tables(prebuilt);
                let _ = answers.send(Answer::Saved);
                session.wake();
                continue;
            }
        };
        let mut cache = prebuilt.cache();
        let unloads = question.region.header().python_unloads.load(Acquire);
        let wanted = question.region.header().maps_wanted.load(Acquire);
        let known = match question.request {
            Some(_) => recent.iter().position(|r| (r.0, r.1) == (question.image, wanted)),
            None => None,
        };
        let before = known.or_else(|| recent.iter().position(|r| r.0 == question.image));
        let before = before.and_then(|at| recent.remove(at)).map(|(.., mappings)| mappings);
        let mut mappings = match before {
            Some(mappings) if known.is_some() => mappings,
            before => read(&mut question, before, &mut cache),
        };
        let late = mappings.late;
        let modules = &mut mappings.modules;
        // A target that computes unwind rows itself waits only for the list of its mappings.
        let finds_rows = question.region.finds_rows();
        let mut later = Batch::default();
        if !finds_rows {
            cache.take_kept(&mut tables);
            take_marks(&question.region, modules, &mut cache);
            let (at_once, rest) = to_compile(modules, &cache, finds_rows, AT_ONCE);
            later = Batch::of(&rest, &mut cache);
            Batch::of(&at_once, &mut cache).compile(&mut cache, &mut tables);
        }
        publish(&question.region, modules, &mut cache);
        if !late
            && wants_python(&question, modules)
            && let Some(answer) = find_python(&question, unloads, modules, &mut pythons)
        {
            let _ = answers.send(answer);
        }
        // The engine gets its answer before the target continues. Otherwise the target might end
        // before the engine knows its modules.
        let done = match known {
            Some(_) => Answer::SameModules(mappings.image),
            None => Answer::Modules(mappings.clone()),
        };
        if answers.send(done).is_err() {
            return;
        }
        // The target's thread is woken first, because the engine may compete for the same
        // processor.
        answer(&question);
        session.wake();
        if finds_rows {
            take_marks(&question.region, &mappings.modules, &mut cache);
            // The short processes of one program run through the same code, so tables that are
            // compiled now serve the program's later processes.
            if wanted <= 1 {
                cache.ask_small(&mappings.modules, AT_THE_START);
            }
            let (files, _) = to_compile(&mappings.modules, &cache, finds_rows, u64::MAX);
            later = Batch::of(&files, &mut cache);
        }
        if !later.jobs.is_empty() {
            later.compile(&mut cache, &mut tables);
            publish(&question.region, &mut mappings.modules, &mut cache);
        }
        recent.truncate(RECENT - 1);
        recent.push_front((question.image, wanted, mappings));
    }
}

/// Lists the files and parts whose tables should be compiled, in order of cost, in two groups: the
/// first that together have at most `most` bytes of frame information, and the others.
fn to_compile(
    modules: &[LoadedModule],
    cache: &ModuleCache,
    finds_rows: bool,
    most: u64,
) -> (Vec<FileKey>, Vec<FileKey>) {
    let files = modules.iter().filter_map(|m| m.file);
    let mut open: Vec<_> = files
        .flat_map(|f| cache.parts(f).iter().map(|part| part.1).chain([f]))
        .filter(|f| *cache.state(*f) == TableState::Wanted && !cache.is_deferred(*f, finds_rows))
        .collect();
    open.sort_by_key(|file| cache.module_cost(*file));
    let mut cost = 0;
    open.into_iter().partition(|file| {
        cost += cache.module_cost(*file);
        cost <= most
    })
}

/// Caches the compiled tables on disk. This may be slow, and the job's threads wait for this
/// thread, so it is called only when the run is over.
fn keep_tables(prebuilt: &PrebuiltTables) {
    // The cache must not be locked while its tables are written, because processes that begin now
    // need it.
    let fresh = prebuilt.cache().take_fresh();
    fresh.keep();
}

/// Tables to be compiled.
#[derive(Default)]
struct Batch {
    /// The jobs, in order of their cost.
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

    fn compile(self, cache: &mut ModuleCache, tables: &mut Tables) {
        let threads = match self.cost {
            WORTH_THREADS.. => std::thread::available_parallelism().map_or(1, |n| n.get()),
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
fn read(
    question: &mut ModulesWanted,
    before: Option<MappingsRead>,
    cache: &mut ModuleCache,
) -> MappingsRead {
    let ModulesWanted { image, pid, ended, begun_ns, .. } = *question;
    let read_ns = sys::monotonic_ns();
    // The mappings of a zombie are an empty list, which counts as an ended image.
    let before = before.as_ref().map_or(&[][..], |before| &before.modules);
    let now = (!ended).then(|| cache.loaded_since(pid, before).unwrap_or_default());
    match now.filter(|modules| !modules.is_empty()) {
        Some(modules) => MappingsRead { image, read_ns, modules, late: false },
        None => {
            // `/proc` may show another process under this pid by now, so nothing is read from it.
            let modules = cache.identified(NOBODY, std::mem::take(&mut question.begun_with));
            MappingsRead { image, read_ns: begun_ns, modules, late: true }
        }
    }
}

/// The result of the last search for an interpreter in a process.
enum PythonSearch {
    /// There was none among this many modules.
    None(usize),
    /// There is one, and its code begins at this address.
    At(u64),
    /// There is one, but its frames can't be read.
    Refused,
}

/// Whether Python's frames are needed for this target's stacks: for all of them, or only for those
/// of calls that wait for a device.
fn wants_python(question: &ModulesWanted, modules: &[LoadedModule]) -> bool {
    let header = question.region.header();
    let has_runtime = || modules.iter().any(|module| is_cuda_library(&module.path));
    match header.stack_mode.load(Relaxed) {
        stack_mode::PYTHON => true,
        stack_mode::OFF => false,
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
    question: &ModulesWanted,
    unloads: u32,
    modules: &[LoadedModule],
    pythons: &mut HashMap<u64, PythonSearch>,
) -> Option<Answer> {
    let header = question.region.header();
    let again = match pythons.get(&question.image) {
        None => true,
        Some(PythonSearch::None(before)) => *before != modules.len(),
        Some(PythonSearch::At(start)) => {
            header.python_epoch.load(Acquire) != unloads.wrapping_add(1)
                || !modules.iter().any(|m| m.start == *start && python::may_be(&m.path))
        }
        Some(PythonSearch::Refused) => false,
    };
    if !again {
        return None;
    }
    let candidates = modules.iter().filter(|m| python::may_be(&m.path)).cloned();
    let found = python::find(question.pid, candidates);
    let found = found.map(|found| {
        found.and_then(|found| {
            let named = |why| (format!("{} python", question.pid), why);
            found.interpreter().map(|words| (found, words)).map_err(named)
        })
    });
    let (looked, answer) = match found {
        None => (PythonSearch::None(modules.len()), None),
        Some(Err((whose, why))) => {
            // The error is only reported if the user asked for Python's frames.
            let is_asked = header.stack_mode.load(Relaxed) == stack_mode::PYTHON;
            (PythonSearch::Refused, is_asked.then(|| Answer::NoPython(whose, why)))
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
    pythons.insert(question.image, looked);
    answer
}

/// Publishes that the target's request is answered, and wakes the waiting thread.
fn answer(question: &ModulesWanted) {
    if let Some(request) = question.request {
        let header = question.region.header();
        header.modules_answered.store(request, Release);
        sys::futex_wake(&header.modules_answered);
    }
}

fn serve_symbols(
    wanted: &Receiver<SymbolsWanted>,
    (kept, keeps_names): (Option<Arc<DiskCache>>, bool),
    kernel_after: Duration,
    answers: &Sender<Answer>,
    session: &SessionMemory,
) {
    let mut kernel_from = Instant::now() + kernel_after;
    let mut symbolizer = Symbolizer::sparing(kept, keeps_names);
    let mut kernels: Vec<Unresolved> = Vec::new();
    loop {
        let left = kernel_from.saturating_duration_since(Instant::now());
        let question = match kernels.is_empty() {
            true => wanted.recv().map_err(|_| RecvTimeoutError::Disconnected),
            false => wanted.recv_timeout(left),
        };
        let (now, last) = match question {
            Ok(SymbolsWanted::User(nameless)) => (vec![nameless], false),
            Ok(SymbolsWanted::Kernel(nameless)) => {
                kernels.push(nameless);
                (Vec::new(), false)
            }
            Ok(SymbolsWanted::Now) => {
                kernel_from = Instant::now();
                (std::mem::take(&mut kernels), false)
            }
            Ok(SymbolsWanted::Last) => (std::mem::take(&mut kernels), true),
            Err(RecvTimeoutError::Timeout) => (std::mem::take(&mut kernels), false),
            Err(RecvTimeoutError::Disconnected) => return,
        };
        let brief = last && Instant::now() < kernel_from;
        for Unresolved { target, places } in now {
            let mut done = Vec::with_capacity(places.len());
            for (address, module, pc) in places {
                let frames = match brief {
                    true => Arc::new([tprof_symbols::some_kernel_function()]),
                    false => symbolizer.resolve(&module, pc),
                };
                done.push((address, module, frames));
            }
            if answers.send(Answer::Symbols(target, done)).is_err() {
                return;
            }
            session.wake();
        }
        if last {
            symbolizer.keep();
            let _ = answers.send(Answer::Saved);
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
        let (questions, wanted) = channel();
        let (answers, answered) = channel();
        let never = Duration::from_secs(3600);
        let serve = move || serve_symbols(&wanted, (None, false), never, &answers, &session);
        let worker = std::thread::spawn(serve);
        let ask = |target| {
            let places = vec![(16, tprof_symbols::kernel(), 16)];
            questions.send(SymbolsWanted::Kernel(Unresolved { target, places })).unwrap();
        };
        ask(7);
        questions.send(SymbolsWanted::Now).unwrap();
        // Kernel addresses that are sent after `Now` are resolved at once as well.
        ask(8);
        for target in [7, 8] {
            let answer = answered.recv_timeout(Duration::from_secs(60));
            assert!(matches!(answer, Ok(Answer::Symbols(of, _)) if of == target));
        }
        drop(questions);
        worker.join().unwrap();
    }
}
