//! Lists the names of functions that show what a thread does, and tests stacks for them. The
//! functions are those of Linux, glibc, CPython, PyTorch, MPI, NCCL and allocators.

use tprof_facts::pass_through::is_of_tprof;

use super::super::names::{Func, Layer};
use super::super::waits;
use super::is_interpreter;

/// Number of frames, from the innermost on, in which an allocator's functions are searched.
const ALLOCATOR_DEPTH: usize = 4;
/// Number of frames, from the innermost on, in which other functions are searched.
const DEPTH: usize = 40;

/// Python's functions that wait for something a worker produces, by the end of their file's path.
pub(super) const TAKES_DATA: [(&str, &[&str]); 8] = [
    ("torch/utils/data/dataloader.py", &["__next__", "_next_data"]),
    ("multiprocessing/queues.py", &["get"]),
    ("multiprocessing/connection.py", &["recv", "recv_bytes", "recv_bytes_into", "poll", "wait"]),
    ("multiprocessing/pool.py", &["next", "get", "wait"]),
    ("concurrent/futures/_base.py", &["result", "wait", "as_completed", "result_iterator"]),
    ("/queue.py", &["get"]),
    ("tensorflow/python/data/ops/iterator_ops.py", &["__next__", "_next_internal"]),
    ("datasets/iterable_dataset.py", &["__iter__"]),
];

/// The files in [`TAKES_DATA`] whose workers may be threads.
pub(super) const THREADS_TOO: [&str; 3] =
    ["multiprocessing/pool.py", "concurrent/futures/_base.py", "/queue.py"];

/// A part of the paths of `torch.compile`'s compiler, which has its own workers.
const COMPILER: &str = "torch/_inductor/";

/// Functions of allocators that stand for `malloc`: those of glibc, and C++'s operators, which call
/// it. The pools of an interpreter ([`is_interpreter`]) are not among them: `PyObject_Malloc` gets
/// memory from `malloc` in whole arenas, so that replacing `malloc` would not make it faster.
const ALLOCATORS: [&str; 20] = [
    "malloc",
    "free",
    "calloc",
    "realloc",
    "cfree",
    "memalign",
    "posix_memalign",
    "aligned_alloc",
    "_int_malloc",
    "_int_free",
    "_int_realloc",
    "_int_memalign",
    "_mid_memalign",
    "malloc_consolidate",
    "unlink_chunk",
    "tcache_put",
    "sysmalloc",
    "systrim",
    "operator new",
    "operator delete",
];
/// Prefixes of the names of allocators' functions: glibc's, for names to which a compiler appended
/// a suffix; jemalloc's (`_rjem_` in Rust); gperftools' and Google's tcmalloc's; mimalloc's.
const ALLOCATOR_PREFIXES: [&str; 14] = [
    "__libc_malloc",
    "__libc_calloc",
    "__libc_realloc",
    "__libc_memalign",
    "__libc_free",
    "_int_free",
    "je_",
    "_rjem_",
    "tc_malloc",
    "tc_free",
    "tc_new",
    "tc_delete",
    "mi_",
    "tcmalloc::",
];

/// The kernel's functions that handle a page that is not in memory.
const FAULTS: [&str; 6] = [
    "asm_exc_page_fault",
    "exc_page_fault",
    "do_user_addr_fault",
    "handle_mm_fault",
    "do_page_fault",
    "el0_da",
];

/// Beginnings of the names of functions of CPython's garbage collector.
const COLLECTORS: [&str; 6] = [
    "gc_collect",
    "_PyGC_Collect",
    "PyGC_Collect",
    "deduce_unreachable",
    "_Py_RunGC",
    "subtract_refs",
];

/// CPython's functions that allocate objects which may refer to others. These functions also start
/// garbage collections.
const GC_ALLOCATORS: [&str; 4] =
    ["_PyObject_GC_New", "_PyObject_GC_NewVar", "_PyObject_GC_Malloc", "PyType_GenericAlloc"];

/// Beginnings of the names of collectives' functions.
const COLLECTIVES: [&str; 9] =
    ["MPI_", "PMPI_", "MPIR_", "MPID", "ompi_", "opal_progress", "nccl", "pncc", "horovod::"];
/// Parts of the names of collectives' functions.
const COLLECTIVE_PARTS: [&str; 4] = ["c10d::", "gloo::", "ProcessGroup", "TCPStore"];
/// Parts of the names of functions that look like collectives but are not: they sort gradients or
/// log. If they call a collective, its function is on the stack too.
const NO_COLLECTIVE_PARTS: [&str; 2] = ["c10d::Reducer::", "c10d::Logger::"];
/// Prefixes of the names of modules that only communicate.
const COLLECTIVE_MODULES: [&str; 5] =
    ["libmpi.so", "libmpich.so", "libnccl.so", "libopen-pal.so", "libgloo"];

/// Whether a module only communicates. Code that runs in it waits by spinning, or moves data.
pub fn is_collective_module(module: &str) -> bool {
    COLLECTIVE_MODULES.iter().any(|start| module.starts_with(start))
}

/// Files of Python's functions for collectives.
const COLLECTIVE_FILES: [&str; 2] =
    ["torch/distributed/distributed_c10d.py", "horovod/torch/mpi_ops.py"];

/// Beginnings of the names of the kernel's functions that wait for a socket.
const KERNEL_SOCKETS: [&str; 12] = [
    "(waits for socket",
    "unix_stream_",
    "unix_dgram_",
    "__skb_wait",
    "sk_wait",
    "tcp_",
    "udp_",
    "inet_",
    "sock_",
    "__sys_recv",
    "__sys_accept",
    "__sys_connect",
];
/// The C library's functions for sockets, without leading underscores.
const SOCKETS: [&str; 18] = [
    "recv",
    "recvfrom",
    "recvmsg",
    "recvmmsg",
    "send",
    "sendto",
    "sendmsg",
    "accept",
    "accept4",
    "connect",
    "libc_recv",
    "libc_recvfrom",
    "libc_recvmsg",
    "libc_send",
    "libc_sendto",
    "libc_sendmsg",
    "libc_accept",
    "libc_connect",
];
const SOCKET_PREFIXES: [&str; 1] = ["sock_"];
/// Files of Python's functions for sockets.
const SOCKET_FILES: [&str; 4] = ["/socket.py", "/ssl.py", "http/client.py", "/socketserver.py"];

/// Whether PyTorch is compiling, or waits for its compilers.
pub(super) fn compiles(frames: &[&Func]) -> bool {
    frames.iter().any(|func| is_of_compiler(func))
}

/// Whether a function belongs to PyTorch's compiler.
pub(super) fn is_of_compiler(func: &Func) -> bool {
    func.layer == Layer::Python && func.file.contains(COMPILER)
}

/// Whether a waiting thread waits in tprof's own code. That code makes its system calls itself; if
/// a hook makes a call on behalf of the job, the thread waits in the library of that call.
pub(super) fn waits_for_tprof(frames: &[&Func]) -> bool {
    let innermost = frames.iter().find(|func| func.layer != Layer::Kernel);
    innermost.is_some_and(|func| is_of_tprof(&func.module))
}

/// Whether a function belongs to a `malloc` that another one could replace.
fn is_allocator(func: &Func) -> bool {
    // The hooks of tprof have the names of the functions that they replace.
    if is_of_tprof(&func.module) {
        return false;
    }
    let name = &*func.name;
    let base = name.split(['@', '(', '[', '.']).next().unwrap_or(name).trim_end();
    let starts = || ALLOCATOR_PREFIXES.iter().any(|start| base.starts_with(start));
    // CPython without a GIL contains its own mimalloc for its pools, which replacing `malloc` would
    // not change.
    ALLOCATORS.contains(&base) || !is_interpreter(&func.module) && starts()
}

/// Whether the innermost functions of a stack belong to an allocator.
pub(super) fn is_in_allocator(frames: &[&Func]) -> bool {
    let native = native(frames).take(ALLOCATOR_DEPTH);
    native.take_while(|func| func.layer == Layer::Native).any(|func| is_allocator(func))
}

/// Whether the kernel handles a page fault.
pub(super) fn is_page_fault(frames: &[&Func]) -> bool {
    let kernel = frames.iter().take_while(|func| func.layer == Layer::Kernel);
    kernel.into_iter().any(|func| FAULTS.contains(&&*func.name))
}

/// Whether Python's garbage collector runs, without a Python function that it called.
pub(super) fn is_collection(frames: &[&Func]) -> bool {
    let inner = native(frames).take_while(|func| func.layer == Layer::Native).take(DEPTH);
    let inner: Vec<&Func> = inner.copied().collect();
    inner.iter().any(|func| COLLECTORS.iter().any(|start| func.name.starts_with(start)))
        || is_nameless_collection(&inner)
}

/// Whether an interpreter whose inner functions have no names collects garbage. A function that
/// makes an object calls either an allocator or the collector, and both are nameless. An allocator
/// calls no second nameless function, except to map memory, and then the C library is on the stack.
/// So two nameless functions without the C library are the collector.
fn is_nameless_collection(inner: &[&Func]) -> bool {
    let makes = |func: &&Func| GC_ALLOCATORS.contains(&&*func.name);
    let Some(at) = inner.iter().position(makes) else { return false };
    let is_nameless = |func: &Func| func.is_nameless() && is_interpreter(&func.module);
    let is_libc = |func: &&Func| func.module.starts_with("libc.so");
    at >= 2
        && is_nameless(inner[at - 1])
        && is_nameless(inner[at - 2])
        && !inner[..at].iter().any(is_libc)
}

/// Whether the stack contains a call that waits for a device.
pub(super) fn waits_for_device(frames: &[&Func]) -> bool {
    let native = native(frames).take(DEPTH).filter(|func| func.layer == Layer::Native);
    native.into_iter().any(|func| waits::is_of_device(&func.name))
}

/// Whether the stack contains a collective.
pub(super) fn is_collective(frames: &[&Func]) -> bool {
    if frames.iter().any(|func| func.starts_ranks()) {
        return false;
    }
    let user = frames.iter().filter(|func| func.layer != Layer::Kernel);
    user.take(DEPTH).any(|func| match func.layer {
        Layer::Kernel => false,
        Layer::Python => COLLECTIVE_FILES.iter().any(|end| func.file.ends_with(end)),
        Layer::Native => {
            COLLECTIVES.iter().any(|start| func.name.starts_with(start))
                || COLLECTIVE_PARTS.iter().any(|part| func.name.contains(part))
                    && !NO_COLLECTIVE_PARTS.iter().any(|part| func.name.contains(part))
                || is_collective_module(&func.module)
        }
    })
}

/// Whether the stack waits for a socket.
pub(super) fn is_socket(frames: &[&Func]) -> bool {
    frames.iter().take(DEPTH).any(|func| match func.layer {
        Layer::Kernel => KERNEL_SOCKETS.iter().any(|start| func.name.starts_with(start)),
        Layer::Python => SOCKET_FILES.iter().any(|end| func.file.ends_with(end)),
        Layer::Native => {
            let plain = func.name.trim_start_matches('_').trim_start_matches("GI_");
            let plain = plain.trim_start_matches('_').split('@').next().unwrap_or_default();
            SOCKETS.contains(&plain) || SOCKET_PREFIXES.iter().any(|start| plain.starts_with(start))
        }
    })
}

/// The functions outside of the kernel, innermost first.
fn native<'f>(frames: &'f [&'f Func]) -> impl Iterator<Item = &'f &'f Func> {
    frames.iter().skip_while(|func| func.layer == Layer::Kernel)
}
