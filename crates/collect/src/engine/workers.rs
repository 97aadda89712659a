//! Work that takes longer than a drain pass may: reading a process's mappings and compiling unwind
//! tables (one thread), resolving symbols (another).

use crate::disk_cache::DiskCache;
use crate::engine::prebuilt_tables::PrebuiltTables;
use crate::modules::{CompileJob, FileKey, LoadedModule, Mapping, ModuleCache, TableState};
use crate::os::sys;
use crate::python;
use crate::shared::{Region, SessionMemory, Tables, publish, take_marks};
use crate::symbols::{self, ModuleFile, ResolvedFrame, Symbolizer};
use crate::targets::code::{SharedPython, Unresolved};
use std::collections::{HashMap, VecDeque};
use std::path::Path;
use std::sync::atomic::Ordering::*;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tprof_wire::region::stack_mode;

/// Frame information that is compiled before a target gets its answer, bytes: some 400 ms on one
/// processor, of the second that a target waits. That is enough for PyTorch with CUDA, which loads
/// 27 MB of it at once (180 ms on two): the stacks of its start would be cut otherwise. The rest
/// follows.
const AT_ONCE: u64 = 64 << 20;
/// Frame information of a process's first mappings that is compiled once it has its first answer,
/// for processes that come later, bytes: 6 ms.
const AT_THE_START: u64 = 1 << 20;
/// Frame information that is worth more threads, bytes, and how many at most.
const WORTH_THREADS: u64 = 1 << 20;
const MAX_THREADS: usize = 4;

/// Number of images whose mappings are not read again for a question about a table of them.
const RECENT: usize = 32;

/// A number that no process has.
const NOBODY: u32 = 0;

/// A question for the module worker.
pub struct ModulesWanted {
    /// Image that asks.
    pub image: u64,
    /// Its process id.
    pub pid: u32,
    /// The region that the answer is published in.
    pub region: Arc<Region>,
    /// The request that is answered; `None` if the target did not ask.
    pub request: Option<u32>,
    /// The image is gone: its pid may be another's.
    pub ended: bool,
    /// Its mappings at its beginning, and the time of that, ns; they are used if it is gone.
    pub begun_with: Vec<Mapping>,
    #[allow(missing_docs)]
    pub begun_ns: u64,
}

/// The executable mappings of an image.
#[derive(Clone)]
pub struct MappingsRead {
    /// Number of the image.
    pub image: u64,
    /// The time of this state, ns.
    pub read_ns: u64,
    /// The modules that it maps.
    pub modules: Vec<LoadedModule>,
    /// The image was gone: these are those of its beginning, if they are known.
    pub late: bool,
}

/// A question for the symbol worker.
pub enum SymbolsWanted {
    /// Addresses of programs and libraries.
    User(Unresolved),
    /// Addresses of the kernel: answered once the run has lasted for
    /// [`KERNEL_AFTER`].
    Kernel(Unresolved),
    /// Somebody waits for the answers, so those of the kernel come now, too.
    Now,
    /// The run is over: no more will be asked.
    Last,
}

/// Kernel functions of a shorter run stay unnamed: reading their names takes
/// the kernel 40 ms, longer than most such runs.
const KERNEL_AFTER: Duration = Duration::from_secs(1);

/// A task of the module worker.
pub enum ModuleTask {
    /// Read what an image has mapped.
    Read(ModulesWanted),
    /// Store what was compiled: the run is over.
    Keep,
}

/// A message from the workers.
pub enum Answer {
    /// A worker has stored what it had to store.
    Saved,
    /// The modules that an image has mapped.
    Modules(MappingsRead),
    /// A question of an image was answered, with the mappings that it had before.
    SameModules(u64),
    /// Symbols by address, innermost first, with the module's path.
    Symbols(u64, Vec<(u64, Arc<ModuleFile>, Arc<[ResolvedFrame]>)>),
    /// The interpreter of an image.
    Python(u64, SharedPython),
    /// An interpreter without readable frames: its process, and why.
    NoPython(String, String),
}

/// Handles of both workers.
pub struct Workers {
    /// Questions about mappings.
    pub modules: Sender<ModuleTask>,
    /// Questions about symbols.
    pub symbols: Sender<SymbolsWanted>,
}

/// Starts the workers; their answers go through `answers`, and wake the engine. `disk_cache`: the
/// cache between runs, and whether names are cached there, too.
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
    // The mappings of recent images, each with how often it had asked for them before.
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
        // The thread waits for the list of mappings, and for no table.
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
        // Answer before the target goes on: it may be gone in no time.
        let done = match known {
            Some(_) => Answer::SameModules(mappings.image),
            None => Answer::Modules(mappings.clone()),
        };
        if answers.send(done).is_err() {
            return;
        }
        // The target's thread is woken before the engine's, which may want the same processor.
        answer(&question);
        session.wake();
        if finds_rows {
            take_marks(&question.region, &mappings.modules, &mut cache);
            // Short processes of a program run through the same code, each of them again.
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

/// Returns the files and parts with tables that are to be compiled now, in the order of cost: those
/// that take no more than `most` bytes of frame information together, and the others.
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

/// Called once the run is over: jobs' threads wait for this thread, which must not wait for a disk.
fn keep_tables(prebuilt: &PrebuiltTables) {
    // The cache is not held meanwhile: processes that begin now need it.
    let fresh = prebuilt.cache().take_fresh();
    fresh.keep();
}

/// Tables to be compiled.
#[derive(Default)]
struct Batch {
    /// Jobs, in the order of their cost.
    jobs: Vec<CompileJob>,
    /// Bytes of frame information.
    cost: u64,
}

impl Batch {
    /// Takes the jobs of files, which are given in the order of their cost.
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
        // The dearest is taken first.
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
                // Refused where no thread may be started: this one does it all.
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

/// Reads what an image has mapped: now, or as it began if it is gone. `before`: what it had mapped
/// last.
fn read(
    question: &mut ModulesWanted,
    before: Option<MappingsRead>,
    cache: &mut ModuleCache,
) -> MappingsRead {
    let ModulesWanted { image, pid, ended, begun_ns, .. } = *question;
    let read_ns = sys::monotonic_ns();
    // A zombie's file is empty.
    let before = before.as_ref().map_or(&[][..], |before| &before.modules);
    let now = (!ended).then(|| cache.loaded_since(pid, before).unwrap_or_default());
    match now.filter(|modules| !modules.is_empty()) {
        Some(modules) => MappingsRead { image, read_ns, modules, late: false },
        None => {
            // Whatever /proc has under its number is another's by now.
            let modules = cache.identified(NOBODY, std::mem::take(&mut question.begun_with));
            MappingsRead { image, read_ns: begun_ns, modules, late: true }
        }
    }
}

/// The result of the last search for an interpreter in a process.
enum PythonSearch {
    /// There was none among that many modules.
    None(usize),
    /// There was one, with its code from there on.
    At(u64),
    /// There was one without readable frames.
    Refused,
}

/// Whether the target takes Python's frames: with each stack, or of calls that wait for a device.
fn wants_python(question: &ModulesWanted, modules: &[LoadedModule]) -> bool {
    let header = question.region.header();
    let has_runtime = || modules.iter().any(|module| is_cuda_library(&module.path));
    match header.stack_mode.load(Relaxed) {
        stack_mode::PYTHON => true,
        stack_mode::OFF => false,
        _ => header.calls.load(Relaxed) != 0 && has_runtime(),
    }
}

/// Whether a path is that of CUDA's shared runtime, which has hooks.
fn is_cuda_library(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"libcudart.so"))
}

/// Searches an image's interpreter, unless that is known, and sends it to the image.
/// `unloads`: those that it recorded as unloaded before its modules were read.
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
            // A user who did not ask for Python's frames does not miss them.
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

/// Marks the target's request as answered.
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
                    true => Arc::new([symbols::some_kernel_function()]),
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
    fn names_of_the_kernel_come_at_once_for_who_waits_for_them() {
        let session = SessionMemory::new().unwrap().0;
        let (questions, wanted) = channel();
        let (answers, answered) = channel();
        let never = Duration::from_secs(3600);
        let serve = move || serve_symbols(&wanted, (None, false), never, &answers, &session);
        let worker = std::thread::spawn(serve);
        let ask = |target| {
            let places = vec![(16, symbols::kernel(), 16)];
            questions.send(SymbolsWanted::Kernel(Unresolved { target, places })).unwrap();
        };
        ask(7);
        questions.send(SymbolsWanted::Now).unwrap();
        // Tables that are asked for meanwhile are compiled too.
        ask(8);
        for target in [7, 8] {
            let answer = answered.recv_timeout(Duration::from_secs(60));
            assert!(matches!(answer, Ok(Answer::Symbols(of, _)) if of == target));
        }
        drop(questions);
        worker.join().unwrap();
    }
}
