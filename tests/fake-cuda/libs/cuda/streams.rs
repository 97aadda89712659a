//! Implements streams. Each stream is a thread that runs its work in order.

use crate::{events, graphs, happened, memory, time};
use std::cell::Cell;
use std::collections::VecDeque;
use std::ffi::c_void;
use std::sync::atomic::{AtomicU32, Ordering::*};
use std::sync::{Arc, Condvar, Mutex, OnceLock};
use tprof_fake_cuda::{Happened, Place, Work};

/// A stream of work.
pub struct Stream {
    /// The stream's number, as CUPTI gives it.
    pub id: u32,
    /// Number of its device.
    pub device: u32,
    queue: Mutex<Queue>,
    more: Condvar,
    empty: Condvar,
    /// While a graph is captured, work goes into this list.
    pub graph: Mutex<Option<Vec<Work>>>,
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<(Work, Place)>,
    busy: bool,
}

static ALL: Mutex<Vec<Arc<Stream>>> = Mutex::new(Vec::new());
/// CUPTI numbers default streams from 7 on.
const NULL_STREAM: u32 = 7;
static NEXT: AtomicU32 = AtomicU32::new(13);

/// Returns the number of a device's context.
pub fn context_of(device: u32) -> u32 {
    device + 1
}

/// Reports a device to CUPTI. When the driver starts, it reports all visible devices.
pub fn describe(device: u32) {
    let place = Place { device, ..Place::default() };
    let now = time::now();
    crate::report(&place, now, now, &Happened::Device);
}

/// Devices whose contexts exist, as bits.
static MADE: AtomicU32 = AtomicU32::new(0);

/// Whether the context of a device exists.
pub fn is_entered(device: u32) -> bool {
    MADE.load(SeqCst) >> device & 1 != 0
}

/// Makes the context of a device, and its default stream, if they don't exist yet: when a program
/// selects the device, or first uses it.
pub fn enter(device: u32) {
    if MADE.fetch_or(1 << device, SeqCst) >> device & 1 == 0 {
        let place = Place { device, context: context_of(device), ..Place::default() };
        let now = time::now();
        crate::report(&place, now, now, &Happened::Context(NULL_STREAM));
    }
}

fn start(id: u32, device: u32) -> Arc<Stream> {
    enter(device);
    let stream = Arc::new(Stream {
        id,
        device,
        queue: Mutex::default(),
        more: Condvar::new(),
        empty: Condvar::new(),
        graph: Mutex::new(None),
    });
    let own = Arc::clone(&stream);
    std::thread::Builder::new().name(format!("stream-{id}")).spawn(move || own.run()).unwrap();
    ALL.lock().unwrap().push(Arc::clone(&stream));
    stream
}

/// Returns a handle's stream. A null handle means the default stream of the thread's device.
pub fn of(handle: *mut c_void) -> Arc<Stream> {
    static DEFAULT: Mutex<Vec<(u32, Arc<Stream>)>> = Mutex::new(Vec::new());
    // Handles 1 and 2 are the legacy and the per-thread default stream.
    if handle as usize <= 2 {
        let device = crate::chosen();
        let mut all = DEFAULT.lock().unwrap();
        if let Some((_, stream)) = all.iter().find(|(of, _)| *of == device) {
            return Arc::clone(stream);
        }
        let stream = start(NULL_STREAM, device);
        all.push((device, Arc::clone(&stream)));
        return stream;
    }
    // SAFETY: `create` made the handle, and streams are never freed.
    unsafe {
        Arc::increment_strong_count(handle.cast::<Stream>());
        Arc::from_raw(handle.cast::<Stream>())
    }
}

/// The implementation of [`tprof_fake_cuda::Engine::stream`].
pub extern "C" fn create(priority: u32) -> *mut c_void {
    let stream = start(NEXT.fetch_add(1, Relaxed), crate::chosen());
    let now = time::now();
    happened(&stream.place(0), now, now, &Happened::Stream(priority));
    crate::handle(stream)
}

/// The implementation of [`tprof_fake_cuda::Engine::stream_id`].
pub extern "C" fn id(handle: *mut c_void) -> u32 {
    of(handle).id
}

/// The implementation of [`tprof_fake_cuda::Engine::put`].
pub extern "C" fn put(handle: *mut c_void, work: Work, correlation: u32) {
    let stream = of(handle);
    let work = match work {
        Work::Wait(event, _) => Work::Wait(event, events::due(event)),
        other => other,
    };
    if let Some(graph) = stream.graph.lock().unwrap().as_mut() {
        graph.push(work);
        return;
    }
    if let Work::Record(event) = work {
        events::asked(event);
    }
    stream.push(work, stream.place(correlation));
}

/// The implementation of [`tprof_fake_cuda::Engine::drain`].
pub extern "C" fn drain(handle: *mut c_void, correlation: u32) {
    let stream = of(handle);
    let start = time::now();
    stream.wait();
    waited(stream.place(correlation), start, STREAM_WAIT);
}

/// Waits until a stream is empty, in a call that CUPTI doesn't record as a wait.
pub fn finish(handle: *mut c_void) {
    of(handle).wait();
}

/// The implementation of [`tprof_fake_cuda::Engine::drain_all`].
pub extern "C" fn drain_all(correlation: u32) {
    let device = crate::chosen();
    let start = time::now();
    let all: Vec<_> = ALL.lock().unwrap().iter().filter(|s| s.device == device).cloned().collect();
    for stream in all {
        stream.wait();
    }
    // CUPTI's number for "no stream".
    let stream = u32::MAX;
    let context = context_of(device);
    waited(Place { device, context, stream, correlation, ..Place::default() }, start, CONTEXT_WAIT);
}

const STREAM_WAIT: u32 = 3;
const CONTEXT_WAIT: u32 = 4;

fn waited(place: Place, start: u64, kind: u32) {
    happened(&place, start, time::now(), &Happened::Wait(kind, u32::MAX));
}

impl Stream {
    /// Returns the stream's place, for a call.
    pub fn place(&self, correlation: u32) -> Place {
        let context = context_of(self.device);
        Place { device: self.device, context, stream: self.id, correlation, ..Place::default() }
    }

    /// Puts work into the queue.
    pub fn push(&self, work: Work, place: Place) {
        let mut queue = self.queue.lock().unwrap();
        queue.waiting.push_back((work, place));
        drop(queue);
        self.more.notify_one();
    }

    fn wait(&self) {
        let mut queue = self.queue.lock().unwrap();
        while queue.busy || !queue.waiting.is_empty() {
            queue = self.empty.wait(queue).unwrap();
        }
    }

    fn run(&self) {
        loop {
            let mut queue = self.queue.lock().unwrap();
            let (work, place) = loop {
                match queue.waiting.pop_front() {
                    Some(next) => break next,
                    None => {
                        queue.busy = false;
                        self.empty.notify_all();
                        queue = self.more.wait(queue).unwrap();
                    }
                }
            };
            queue.busy = true;
            drop(queue);
            perform(work, place);
        }
    }
}

thread_local! {
    /// The times when the first node of the running graph began, and when its last one ended.
    static GRAPH: Cell<Option<(u64, u64)>> = const { Cell::new(None) };
}

fn perform(work: Work, place: Place) {
    if let Work::GraphEnds = work {
        if let Some((start, end)) = GRAPH.take() {
            happened(&place, start, end, &Happened::Graph);
        }
        return;
    }
    let start = time::now();
    perform_at(start, work, place);
    if place.graph != 0 {
        let first = GRAPH.get().map_or(start, |(first, _)| first);
        GRAPH.set(Some((first, time::now())));
    }
}

fn perform_at(start: u64, work: Work, place: Place) {
    let what = match work {
        Work::Kernel(launch) => {
            if let Some(gate) = launch.gate {
                gate(launch.gate_data);
            }
            time::until(time::now().max(start) + launch.ns);
            Happened::Kernel(launch)
        }
        Work::Copy(to, from, bytes, kind) => {
            // SAFETY: the program passed these addresses and sizes to a copy, and must keep them
            // valid until the copy has run, as with a real device.
            unsafe { std::ptr::copy(from.cast::<u8>(), to.cast::<u8>(), bytes) };
            Happened::Copy(bytes as u64, kind, memory::kind_of(from), memory::kind_of(to))
        }
        Work::PeerCopy(to, to_device, from, from_device, bytes) => {
            // SAFETY: the program passed these addresses and sizes to a copy, and must keep them
            // valid until the copy has run, as with a real device.
            unsafe { std::ptr::copy(from.cast::<u8>(), to.cast::<u8>(), bytes) };
            Happened::PeerCopy(bytes as u64, from_device, to_device)
        }
        Work::Fill(at, value, bytes) => {
            // SAFETY: the program passed this address and size to a fill, and must keep them valid
            // until the fill has run, as with a real device.
            unsafe { std::ptr::write_bytes(at.cast::<u8>(), value, bytes) };
            Happened::Fill(bytes as u64, u32::from(value), memory::kind_of(at))
        }
        Work::Record(event) => return events::mark(event),
        Work::Wait(event, due) => return events::pass(event, due),
        Work::GraphEnds => return,
    };
    happened(&place, start, time::now(), &what);
}

/// Returns the number of the next executable graph.
pub fn next_graph() -> u32 {
    static GRAPHS: OnceLock<AtomicU32> = OnceLock::new();
    GRAPHS.get_or_init(|| AtomicU32::new(0)).fetch_add(1, Relaxed) + 1
}

/// Puts a graph's nodes into the queue, one after another.
pub fn push_graph(handle: *mut c_void, graph: &graphs::Executable, correlation: u32) {
    let stream = of(handle);
    for (index, work) in graph.nodes.iter().enumerate() {
        // CUPTI numbers a graph's nodes across the process.
        let node = u64::from(graph.id) << 32 | (index as u64 + 1);
        stream.push(*work, Place { graph: graph.id, node, ..stream.place(correlation) });
    }
    stream.push(Work::GraphEnds, Place { graph: graph.id, ..stream.place(correlation) });
}
