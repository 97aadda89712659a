//! Implements graphs: work that is captured once and then launched on streams again and again.

use crate::virtual_memory::call;
use crate::{handle, streams};
use std::ffi::{c_uint, c_void};
use std::sync::Arc;
use tprof_fake_cuda::Work;

/// An instantiated graph, which can be launched.
pub struct Executable {
    /// The graph's number, as CUPTI gives it.
    pub id: u32,
    /// The graph's nodes, in order.
    pub nodes: Vec<Work>,
}

/// The implementation of [`tprof_fake_cuda::Engine::capture`].
pub extern "C" fn capture(stream: *mut c_void) {
    *streams::of(stream).graph.lock().unwrap() = Some(Vec::new());
}

/// The implementation of [`tprof_fake_cuda::Engine::captured`].
pub extern "C" fn captured(stream: *mut c_void) -> *mut c_void {
    let work = streams::of(stream).graph.lock().unwrap().take();
    work.map_or(std::ptr::null_mut(), |work| handle(Arc::new(work)))
}

/// The implementation of [`tprof_fake_cuda::Engine::is_capturing`].
pub extern "C" fn is_capturing(stream: *mut c_void) -> bool {
    streams::of(stream).graph.lock().unwrap().is_some()
}

/// The implementation of [`tprof_fake_cuda::Engine::instantiate`].
pub extern "C" fn instantiate(graph: *mut c_void) -> *mut c_void {
    // SAFETY: `captured` made the graph, and it is never freed.
    let nodes = unsafe { &*graph.cast::<Vec<Work>>() }.clone();
    handle(Arc::new(Executable { id: streams::next_graph(), nodes }))
}

/// The implementation of [`tprof_fake_cuda::Engine::replay`].
pub extern "C" fn replay(executable: *mut c_void, stream: *mut c_void, correlation: u32) {
    // SAFETY: `instantiate` made the executable, and it is never freed.
    let executable = unsafe { &*executable.cast::<Executable>() };
    streams::push_graph(stream, executable, correlation);
}

const SUCCESS: u32 = 0;

/// Stands in for the driver's function of this name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGraphInstantiateWithFlags(
    executable: *mut *mut c_void,
    graph: *mut c_void,
    _flags: u64,
) -> u32 {
    call(643, c"cuGraphInstantiateWithFlags", |_| {
        // SAFETY: the caller passes a valid pointer to write the answer to.
        unsafe { *executable = instantiate(graph) };
        SUCCESS
    })
}

/// Stands in for the driver's function of this name, but stores nothing into the parameters.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGraphInstantiateWithParams(
    executable: *mut *mut c_void,
    graph: *mut c_void,
    _parameters: *mut c_void,
) -> u32 {
    call(656, c"cuGraphInstantiateWithParams", |_| {
        // SAFETY: the caller passes a valid pointer to write the answer to.
        unsafe { *executable = instantiate(graph) };
        SUCCESS
    })
}

/// Stands in for the driver's function of this name, which CUDA has from 12.3 on. The stand-in's
/// graphs have no conditions, so the handle means nothing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGraphConditionalHandleCreate(
    handle: *mut u64,
    _graph: *mut c_void,
    _context: *mut c_void,
    _default: c_uint,
    _flags: c_uint,
) -> u32 {
    call(722, c"cuGraphConditionalHandleCreate", |_| {
        // SAFETY: the caller passes a valid pointer to write the answer to.
        unsafe { *handle = 1 };
        SUCCESS
    })
}
