//! Classifies the time of a thread. All reports share this one definition of each kind of waiting
//! and running.
//!
//! The parts are exclusive, so that they add up. A wait may have several causes on its stack. The
//! most specific one decides, in this order: Python's lock, a device, a page fault, a collective,
//! data from a worker, and last the kind of system call.

mod locks;
mod names;

use tprof_facts::host_parts;
use tprof_trace::model::ThreadState;

use super::names::{Func, FuncId, FunctionTable, Layer};
use super::role::Role;
use locks::{is_lock, is_lock_of_database};
pub use locks::{joins, wants_held_lock};
pub use names::is_collective_module;

/// A part of a thread's wall time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Part {
    /// On a core in the interpreter, running Python code.
    Python,
    /// On a core in compiled code, or in the kernel on behalf of compiled code.
    Native,
    /// Waiting for a worker process or thread to produce something: batches, results, queues. For a
    /// driving thread, also loading batches itself.
    Data,
    /// Waiting for Python's global lock.
    Gil,
    /// Waiting for another lock that is held: a mutex, the lock of a file or of a database.
    Lock,
    /// Waiting for a file, a pipe or a disk.
    FileIo,
    /// Waiting for a peer at a socket.
    Socket,
    /// In a collective operation, waiting or polling.
    Collective,
    /// In a call that waits for a device, whether it sleeps or polls.
    Device,
    /// Ready to run, without a free core.
    NoCore,
    /// On a core in the heap's allocator.
    Allocator,
    /// In the kernel for a page that was not in memory.
    PageFault,
    /// On a core in Python's garbage collector.
    Gc,
    /// Waiting in one of tprof's hooks, because of tprof.
    Tprof,
    /// Waiting for something else: a sleep, a child process, events, the end or the work of another
    /// thread.
    Other,
    /// The activity of the thread was not recorded.
    Unknown,
}

/// All parts, in the order of tables.
pub const PARTS: [Part; 16] = [
    Part::Python,
    Part::Native,
    Part::Data,
    Part::Gil,
    Part::Lock,
    Part::FileIo,
    Part::Socket,
    Part::Collective,
    Part::Device,
    Part::NoCore,
    Part::Allocator,
    Part::PageFault,
    Part::Gc,
    Part::Tprof,
    Part::Other,
    Part::Unknown,
];

impl Part {
    /// The key in JSON.
    pub fn key(self) -> &'static str {
        match self {
            Part::Python => "python",
            Part::Native => "native",
            Part::Data => "data",
            Part::Gil => "gil",
            Part::Lock => "lock",
            Part::FileIo => "file_io",
            Part::Socket => "socket",
            Part::Collective => "collective",
            Part::Device => "device",
            Part::NoCore => "no_core",
            Part::Allocator => "allocator",
            Part::PageFault => "page_fault",
            Part::Gc => "gc",
            Part::Tprof => "tprof",
            Part::Other => "other",
            Part::Unknown => "unknown",
        }
    }

    /// The displayed name.
    pub fn word(self) -> &'static str {
        host_parts::name(self.key())
    }

    /// The part of a thread in a state, with these functions on its stack, innermost first.
    pub fn of(state: ThreadState, stack: &[FuncId], names: &FunctionTable) -> Part {
        let frames: Vec<&Func> = stack.iter().map(|id| names.get(*id)).collect();
        match state {
            ThreadState::Running => running(&frames),
            ThreadState::Runnable => Part::NoCore,
            ThreadState::Gil => Part::Gil,
            state => waiting(state, &frames),
        }
    }

    /// The part of a thread that drives a rank. If the thread loads its data itself, that time
    /// counts as waiting for data even while the thread runs: the step waits for the data as it
    /// would wait for a worker.
    pub fn of_driver(state: ThreadState, stack: &[FuncId], names: &FunctionTable) -> Part {
        let frames = stack.iter().map(|id| names.get(*id));
        match state == ThreadState::Running && loads_inline(frames) {
            true => Part::Data,
            false => Part::of(state, stack, names),
        }
    }

    /// Whether the thread was on a core.
    pub fn is_running(self) -> bool {
        matches!(self, Part::Python | Part::Native | Part::Allocator | Part::Gc | Part::PageFault)
    }
}

fn running(frames: &[&Func]) -> Part {
    let Some(user) = frames.iter().find(|func| func.layer != Layer::Kernel) else {
        return if frames.is_empty() { Part::Unknown } else { Part::Native };
    };
    if names::is_page_fault(frames) {
        return Part::PageFault;
    }
    if names::is_in_allocator(frames) {
        return Part::Allocator;
    }
    if names::is_collection(frames) {
        return Part::Gc;
    }
    if names::is_collective(frames) {
        return Part::Collective;
    }
    if names::waits_for_device(frames) {
        return Part::Device;
    }
    match user.layer == Layer::Python || is_interpreter(&user.module) {
        true => Part::Python,
        false => Part::Native,
    }
}

fn waiting(state: ThreadState, frames: &[&Func]) -> Part {
    if frames.is_empty() && state == ThreadState::Blocked {
        return Part::Unknown;
    }
    if names::is_page_fault(frames) {
        return Part::PageFault;
    }
    if names::waits_for_tprof(frames) {
        return Part::Tprof;
    }
    if names::is_collective(frames) {
        return Part::Collective;
    }
    if state == ThreadState::Device {
        return Part::Device;
    }
    if frames.iter().any(|func| takes_data(func)) {
        return if names::compiles(frames) { Part::Other } else { Part::Data };
    }
    if matches!(state, ThreadState::Io | ThreadState::Poll)
        && frames.iter().any(|func| func.starts_worker())
    {
        return Part::Other;
    }
    match state {
        // A wait for a condition is not a wait for a lock: the thread waits for another thread's
        // work.
        ThreadState::Lock if is_lock(frames) => Part::Lock,
        ThreadState::Sleep if is_lock_of_database(frames) => Part::Lock,
        ThreadState::Io | ThreadState::Poll if names::is_socket(frames) => Part::Socket,
        ThreadState::Io => Part::FileIo,
        _ => Part::Other,
    }
}

/// Whether a module is that of CPython itself.
pub fn is_interpreter(module: &str) -> bool {
    module.starts_with("python3") || module.starts_with("libpython3") || module == "python"
}

/// Whether PyTorch's DataLoader makes batches in the thread that receives them, as with
/// `num_workers=0`.
pub fn loads_inline<'f>(frames: impl Iterator<Item = &'f Func>) -> bool {
    let python = frames.filter(|func| func.layer == Layer::Python);
    let mut loads = false;
    for func in python {
        if Role::of(&func.name, &func.file) == Some(Role::Worker) {
            return false;
        }
        // Before Python 3.11, the name of a function does not include its class. Then the fetchers
        // in `fetch.py`, which this class calls, show that it runs.
        loads |= func.file.ends_with("torch/utils/data/dataloader.py")
            && func.name.starts_with("_SingleProcessDataLoaderIter.")
            || func.file.ends_with("torch/utils/data/_utils/fetch.py");
    }
    loads
}

/// Whether the thread waits for something that another thread of its process may produce. The
/// workers of PyTorch's loaders and compiler are processes, so they don't count.
pub fn takes_from_thread<'f>(frames: impl Iterator<Item = &'f Func>) -> bool {
    let mut is_of_thread = false;
    for func in frames.filter(|func| func.layer == Layer::Python) {
        if Role::of(&func.name, &func.file).is_some() || names::is_of_compiler(func) {
            return false;
        }
        let is_of = |end: &&str| func.file.ends_with(end);
        is_of_thread |= takes_data(func) && names::THREADS_TOO.iter().any(is_of);
    }
    is_of_thread
}

/// Whether one of Python's functions waits for something that a worker produces.
pub(crate) fn takes_data(func: &Func) -> bool {
    let own = func.name.rsplit('.').next().unwrap_or(&func.name);
    let of =
        |(file, functions): &(&str, &[&str])| func.file.ends_with(file) && functions.contains(&own);
    func.layer == Layer::Python && names::TAKES_DATA.iter().any(of)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(state: ThreadState, frames: &[(&str, &str, Layer)]) -> Part {
        let (table, ids) = made(frames);
        Part::of(state, &ids, &table)
    }

    fn made(frames: &[(&str, &str, Layer)]) -> (FunctionTable, Vec<FuncId>) {
        let mut table = FunctionTable::default();
        let func = |(name, place, layer): &(&str, &str, Layer)| Func {
            name: (*name).into(),
            file: if *layer == Layer::Python { *place } else { "" }.into(),
            module: if *layer == Layer::Python { "[python]" } else { *place }.into(),
            layer: *layer,
        };
        let ids = frames.iter().map(|frame| table.id(func(frame))).collect();
        (table, ids)
    }

    use Layer::{Kernel, Native, Python};
    use ThreadState::{Blocked, Gil, Io, Lock, Poll, Runnable, Running, Sleep};

    #[test]
    fn batches_that_the_driving_thread_makes_itself_are_data() {
        let get = ("Events.__getitem__", "/me/train.py", Python);
        let fetch = ("_MapDatasetFetcher.fetch", "/lib/torch/utils/data/_utils/fetch.py", Python);
        let loader = "/lib/torch/utils/data/dataloader.py";
        let inline = ("_SingleProcessDataLoaderIter._next_data", loader, Python);
        let old = ("_next_data", loader, Python);
        let worker = ("_worker_loop", "/lib/torch/utils/data/_utils/worker.py", Python);
        let of = |frames: &[(&str, &str, Layer)]| {
            let (table, ids) = made(frames);
            Part::of_driver(Running, &ids, &table)
        };
        assert_eq!(of(&[get, fetch, inline]), Part::Data);
        assert_eq!(of(&[get, fetch, old]), Part::Data);
        assert_eq!(of(&[get, old]), Part::Python, "it unpacks a batch that a worker made");
        assert_eq!(of(&[get, fetch, worker, inline]), Part::Python);
        assert_eq!(part(Running, &[get, fetch, inline]), Part::Python);
    }

    #[test]
    fn a_running_thread_is_in_python_in_a_library_or_in_the_allocator() {
        let main = ("main", "/home/me/train.py", Python);
        assert_eq!(part(Running, &[main]), Part::Python);
        let of_interpreter = ("list_sort", "libpython3.11.so.1.0", Native);
        assert_eq!(part(Running, &[of_interpreter, main]), Part::Python);
        let library = ("gemm", "libopenblas.so.0", Native);
        assert_eq!(part(Running, &[library, main]), Part::Native);
        let malloc = ("_int_malloc", "libc.so.6", Native);
        assert_eq!(part(Running, &[malloc, library, main]), Part::Allocator);
        let fault = ("asm_exc_page_fault", "[kernel]", Kernel);
        assert_eq!(part(Running, &[fault, library, main]), Part::PageFault);
        assert_eq!(part(Running, &[("gc_collect_main", "python3.11", Native), main]), Part::Gc);
        assert_eq!(part(Running, &[("ksys_write", "[kernel]", Kernel), main]), Part::Python);
        assert_eq!(part(Running, &[]), Part::Unknown);
    }

    #[test]
    fn only_functions_that_stand_for_malloc_are_allocators() {
        let main = ("main", "/home/me/train.py", Python);
        let of = |frames: &[_]| part(Running, &[frames, &[main]].concat());
        let interpreter = "libpython3.13t.so.1.0";
        for pool in ["pymalloc_alloc", "_PyObject_Malloc", "PyObject_Free", "mi_heap_malloc_zero"] {
            assert_eq!(of(&[(pool, interpreter, Native)]), Part::Python, "{pool}");
        }
        // The pool needs a new arena, or the block is too large for a pool.
        let object = ("_PyObject_Malloc", interpreter, Native);
        assert_eq!(of(&[("malloc", "libc.so.6", Native), object]), Part::Allocator);
        for (other, module) in [
            ("malloc", "libjemalloc.so.2"),
            ("je_tcache_alloc_small", "libarrow.so"),
            ("_rjem_sdallocx", "train"),
            ("tc_free", "libtcmalloc.so.4"),
            ("mi_free", "libc10.so"),
            ("operator new(unsigned long)", "libstdc++.so.6"),
            ("operator delete[](void*)", "train"),
            ("_int_malloc.constprop.0", "libc.so.6"),
        ] {
            assert_eq!(of(&[(other, module, Native)]), Part::Allocator, "{other}");
        }
        // Functions that only look like allocators, and tprof's hooks while they record.
        for (other, module) in
            [("tc_gemm_kernel", "libops.so"), ("malloc", "libtprof_preload.so"), ("freed", "train")]
        {
            assert_eq!(of(&[(other, module, Native)]), Part::Native, "{other}");
        }
    }

    #[test]
    fn the_most_specific_cause_of_a_wait_decides() {
        let main = ("main", "/home/me/train.py", Python);
        let next = ("_BaseDataLoaderIter.__next__", "/x/torch/utils/data/dataloader.py", Python);
        let get = ("Queue.get", "/usr/lib/python3.11/multiprocessing/queues.py", Python);
        assert_eq!(part(Poll, &[next, main]), Part::Data);
        assert_eq!(part(Io, &[get, main]), Part::Data);
        // A wait for workers that compile for PyTorch is not a wait for data.
        let result = ("Future.result", "/usr/lib/python3.11/concurrent/futures/_base.py", Python);
        let compile = ("AsyncCompile.wait", "/x/torch/_inductor/async_compile.py", Python);
        assert_eq!(part(Lock, &[result, main]), Part::Data);
        assert_eq!(part(Lock, &[result, compile, main]), Part::Other);
        assert_eq!(part(Gil, &[next, main]), Part::Gil);
        assert_eq!(part(Runnable, &[]), Part::NoCore);
        assert_eq!(part(Lock, &[main]), Part::Lock);
        assert_eq!(part(Io, &[main]), Part::FileIo);
        let peer = ("unix_stream_data_wait", "[kernel]", Kernel);
        assert_eq!(part(Io, &[peer, main]), Part::Socket);
        let receive = ("recv", "libc.so.6", Native);
        assert_eq!(part(Io, &[receive, main]), Part::Socket);
        let library = ("SSLSocket.read", "/usr/lib/python3.11/ssl.py", Python);
        assert_eq!(part(Poll, &[library, main]), Part::Socket);
        assert_eq!(part(Poll, &[main]), Part::Other);
        assert_eq!(part(Sleep, &[main]), Part::Other);
        let gloo = ("c10d::Work::wait(std::chrono::duration)", "libtorch_cpu.so", Native);
        assert_eq!(part(Lock, &[gloo, main]), Part::Collective);
        // The reducer only passes gradients on; it does not wait for other ranks.
        let reducer = ("c10d::Reducer::autograd_hook(unsigned long)", "libtorch_cpu.so", Native);
        assert_eq!(part(Running, &[reducer]), Part::Native);
        assert_eq!(part(Running, &[gloo, reducer]), Part::Collective);
        let join = ("__pthread_clockjoin_ex", "libc.so.6", Native);
        assert_eq!(part(Lock, &[join, main]), Part::Other);
        let futex = ("futex_do_wait", "[kernel]", Kernel);
        let hook = ("malloc", "libtprof_preload.so", Native);
        assert_eq!(part(Lock, &[futex, hook, main]), Part::Tprof);
        assert_eq!(part(Sleep, &[hook, join, main]), Part::Tprof);
        let arena = ("__lll_lock_wait_private", "libc.so.6", Native);
        assert_eq!(part(Lock, &[futex, arena, hook, main]), Part::Lock);
        assert_eq!(part(Blocked, &[]), Part::Unknown);
        assert_eq!(part(Blocked, &[("wait4", "libc.so.6", Native), main]), Part::Other);
    }

    #[test]
    fn a_users_file_is_not_mistaken_for_a_library_of_that_name() {
        let own = ("Queue.get", "/home/me/my_queue.py", Python);
        assert_eq!(part(Lock, &[own]), Part::Lock);
    }
}
