//! Loads a profiler plugin, and reports to it, as NCCL does.
//!
//! `FAKE_NCCL_PROFILER` is the newest version of the interface that this stand-in supports (1 is
//! NCCL 2.23, 4 is 2.27, 5 is 2.28, 6 is 2.29). Without it, no plugin is loaded. Descriptions are
//! laid out with the offsets that gcc computes for NCCL's own headers, over bytes that are not
//! zero.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::sync::{Mutex, OnceLock};

const GROUP: u64 = 1 << 0;
const COLL: u64 = 1 << 1;
const P2P: u64 = 1 << 2;
const PROXY_OP: u64 = 1 << 3;
const PROXY_STEP: u64 = 1 << 4;
const KERNEL_CH: u64 = 1 << 6;
const GROUP_API: u64 = 1 << 8;
const COLL_API: u64 = 1 << 9;
const P2P_API: u64 = 1 << 10;

/// Number of channels of every operation.
pub const CHANNELS: u8 = 2;

type Init1 = unsafe extern "C" fn(*mut *mut c_void, *mut c_int) -> c_int;
type Init4 = unsafe extern "C" fn(
    *mut *mut c_void,
    *mut c_int,
    *const c_char,
    u64,
    c_int,
    c_int,
    c_int,
    *const c_void,
) -> c_int;
type Init5 = unsafe extern "C" fn(
    *mut *mut c_void,
    u64,
    *mut c_int,
    *const c_char,
    c_int,
    c_int,
    c_int,
    *const c_void,
) -> c_int;
type Start = unsafe extern "C" fn(*mut c_void, *mut *mut c_void, *mut c_void) -> c_int;
type Stop = unsafe extern "C" fn(*mut c_void) -> c_int;
type State = unsafe extern "C" fn(*mut c_void, c_int, *mut c_void) -> c_int;

#[repr(C)]
struct Table {
    name: *const c_char,
    init: *const c_void,
    start: Start,
    stop: Stop,
    state: State,
    finalize: Stop,
}

// SAFETY: the table contains only addresses of constants and functions.
unsafe impl Sync for Table {}

/// The plugin that was loaded.
struct Plugin {
    version: u32,
    table: &'static Table,
}

static PLUGIN: OnceLock<Option<Plugin>> = OnceLock::new();

fn newest() -> Option<u32> {
    std::env::var("FAKE_NCCL_PROFILER").ok()?.parse().ok()
}

fn plugin() -> Option<&'static Plugin> {
    PLUGIN.get_or_init(load).as_ref()
}

/// Loads the plugin as NCCL does: the library that the variable names, or `libnccl-profiler.so`, or
/// the network plugin's library. Uses the newest table in it.
fn load() -> Option<Plugin> {
    let newest = newest()?;
    let named = std::env::var("NCCL_PROFILER_PLUGIN").ok().filter(|name| !name.is_empty());
    if named.as_deref().is_some_and(|name| name.eq_ignore_ascii_case("none")) {
        return None;
    }
    let mut handle = open(named.as_deref().unwrap_or("libnccl-profiler.so"));
    if handle.is_null() {
        handle = open(&format!("libnccl-profiler-{}.so", named.unwrap_or_default()));
    }
    if handle.is_null() {
        handle = open("libnccl-net.so");
    }
    if handle.is_null() {
        return None;
    }
    (1..=newest).rev().find_map(|version| {
        let name = CString::new(format!("ncclProfiler_v{version}")).ok()?;
        // SAFETY: the library is open, and the name ends with a zero.
        let table = unsafe { libc::dlsym(handle, name.as_ptr()) }.cast::<Table>();
        // SAFETY: a plugin exports a table of this layout under that name, and the library stays
        // open.
        unsafe { table.as_ref() }.map(|table| Plugin { version, table })
    })
}

fn open(name: &str) -> *mut c_void {
    let Ok(name) = CString::new(name) else { return std::ptr::null_mut() };
    // SAFETY: the name ends with a zero.
    unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) }
}

/// A communicator as the plugin sees it.
pub struct Profiled {
    context: usize,
    mask: u64,
    hash: u64,
    rank: u32,
    name: CString,
    sequences: Mutex<HashMap<String, u64>>,
}

/// A description that is being made: 128 bytes, whose union begins at offset 24.
struct Description([u8; 128]);

impl Description {
    fn new(version: u32, kind: u64, parent: usize, rank: u32) -> Description {
        let mut new = Description([0xa5; 128]);
        match version {
            0..=4 => new.put(0, &[kind as u8]),
            _ => new.put(0, &kind.to_ne_bytes()),
        }
        new.put(8, &parent.to_ne_bytes());
        new.put(16, &rank.to_ne_bytes());
        new
    }

    fn put(&mut self, at: usize, bytes: &[u8]) {
        self.0[at..at + bytes.len()].copy_from_slice(bytes);
    }

    fn word(&mut self, at: usize, value: u64) {
        self.put(at, &value.to_ne_bytes());
    }

    fn int(&mut self, at: usize, value: i32) {
        self.put(at, &value.to_ne_bytes());
    }

    fn text(&mut self, at: usize, text: &'static CStr) {
        self.word(at, text.as_ptr() as u64);
    }
}

thread_local! {
    /// The group's event of this thread, from version 5 on.
    static GROUP_API_EVENT: Cell<usize> = const { Cell::new(0) };
    /// Operations that wait for the end of the group, with their communicators.
    static WAITING: RefCell<Vec<(&'static Profiled, Asked)>> = const { RefCell::new(Vec::new()) };
}

/// A requested operation.
#[derive(Clone)]
pub struct Asked {
    /// Name without `nccl`.
    pub name: &'static CStr,
    /// Number of elements.
    pub count: u64,
    /// Value of `ncclDataType_t`.
    pub data_type: c_int,
    /// Root or other rank; -1 for none.
    pub peer: c_int,
    /// Handle of the stream.
    pub stream: usize,
    /// Event of the call.
    api: usize,
}

impl Asked {
    /// Describes a function's arguments.
    pub fn new(
        name: &'static CStr,
        count: u64,
        data_type: c_int,
        peer: c_int,
        stream: usize,
    ) -> Asked {
        Asked { name, count, data_type, peer, stream, api: 0 }
    }

    fn is_point_to_point(&self) -> bool {
        self.name == c"Send" || self.name == c"Recv"
    }
}

const TYPES: [&CStr; 12] = [
    c"ncclInt8",
    c"ncclUint8",
    c"ncclInt32",
    c"ncclUint32",
    c"ncclInt64",
    c"ncclUint64",
    c"ncclFloat16",
    c"ncclFloat32",
    c"ncclFloat64",
    c"ncclBfloat16",
    c"ncclFloat8e4m3",
    c"ncclFloat8e5m2",
];
/// `ncclFunc_t`, which version 1 passes as a number.
const FUNCTIONS: [&CStr; 8] = [
    c"Broadcast",
    c"Reduce",
    c"AllGather",
    c"ReduceScatter",
    c"AllReduce",
    c"SendRecv",
    c"Send",
    c"Recv",
];

impl Profiled {
    /// Sets the plugin up for a new communicator.
    pub fn new(hash: u64, ranks: u32, rank: u32, name: &str) -> Profiled {
        let name = CString::new(name).unwrap_or_default();
        let (mut context, mut mask) = (std::ptr::null_mut(), 0);
        if let Some(plugin) = plugin() {
            let (ranks, rank, log) = (ranks as c_int, rank as c_int, std::ptr::null());
            let (context, mask) = (&raw mut context, &raw mut mask);
            let init = plugin.table.init;
            // SAFETY: these are the function types that versions 1 to 3, version 4, and versions 5
            // and 6 declare, and all arguments are valid during the call.
            unsafe {
                match plugin.version {
                    1..=3 => std::mem::transmute::<*const c_void, Init1>(init)(context, mask),
                    4 => std::mem::transmute::<*const c_void, Init4>(init)(
                        context,
                        mask,
                        name.as_ptr(),
                        hash,
                        1,
                        ranks,
                        rank,
                        log,
                    ),
                    _ => std::mem::transmute::<*const c_void, Init5>(init)(
                        context,
                        hash,
                        mask,
                        name.as_ptr(),
                        1,
                        ranks,
                        rank,
                        log,
                    ),
                };
            }
        }
        let (context, mask) = (context as usize, mask as u64);
        Profiled { context, mask, hash, rank, name, sequences: Mutex::default() }
    }

    fn start(&self, plugin: &Plugin, mut description: Description) -> usize {
        let mut event = std::ptr::null_mut();
        let at = description.0.as_mut_ptr().cast();
        // SAFETY: the context came from the plugin's `init`, and the event is a valid description
        // of the plugin's version.
        unsafe { (plugin.table.start)(self.context as *mut c_void, &raw mut event, at) };
        event as usize
    }

    /// Reports a call of a function, by itself or in a group.
    pub fn called(&'static self, mut asked: Asked, grouped: bool) {
        let Some(plugin) = plugin() else { return };
        if plugin.version >= 5 {
            self.report_call(plugin, &mut asked);
        }
        if grouped {
            WAITING.with_borrow_mut(|waiting| waiting.push((self, asked)));
        } else {
            enqueue(plugin, vec![(self, asked)]);
        }
    }

    fn report_call(&self, plugin: &Plugin, asked: &mut Asked) {
        if GROUP_API_EVENT.get() == 0 && self.mask & (GROUP_API | COLL | P2P | COLL_API) != 0 {
            let mut description = Description::new(plugin.version, GROUP_API, 0, self.rank);
            description.put(24, &[0]);
            description.int(28, 1);
            let event = self.start(plugin, description);
            GROUP_API_EVENT.set(event);
            change(plugin, event, 23, 0);
        }
        let (kind, wanted) = match asked.is_point_to_point() {
            true => (P2P_API, P2P_API | P2P | PROXY_OP | PROXY_STEP | KERNEL_CH),
            false => (COLL_API, COLL_API | COLL | PROXY_OP | PROXY_STEP | KERNEL_CH),
        };
        if self.mask & wanted == 0 {
            return;
        }
        let parent = GROUP_API_EVENT.get();
        let mut description = Description::new(plugin.version, kind, parent, self.rank);
        description.text(24, asked.name);
        description.word(32, asked.count);
        description.text(40, TYPES[asked.data_type as usize]);
        let (stream, captured) = if kind == COLL_API { (56, 64) } else { (48, 56) };
        if kind == COLL_API {
            description.int(48, asked.peer.max(0));
        }
        description.word(stream, asked.stream as u64);
        description.put(captured, &[0]);
        asked.api = self.start(plugin, description);
        stop(plugin, asked.api);
    }
}

fn stop(plugin: &Plugin, event: usize) {
    if event != 0 {
        // SAFETY: the plugin's `start` returned this handle.
        unsafe { (plugin.table.stop)(event as *mut c_void) };
    }
}

fn change(plugin: &Plugin, event: usize, state: c_int, word: u64) {
    if event != 0 {
        let mut arguments = [word, 0];
        // SAFETY: the plugin's `start` returned this handle, and the arguments have at least the
        // size that any version reads.
        unsafe { (plugin.table.state)(event as *mut c_void, state, arguments.as_mut_ptr().cast()) };
    }
}

/// Handles the end of the outermost group: enqueues its operations.
pub fn group_ends() {
    let Some(plugin) = plugin() else { return };
    let waiting = WAITING.take();
    if !waiting.is_empty() {
        enqueue(plugin, waiting);
    }
}

/// Enqueues operations on the device: one group, with one event for each operation.
fn enqueue(plugin: &'static Plugin, operations: Vec<(&'static Profiled, Asked)>) {
    let version = plugin.version;
    let first = operations[0].0;
    change(plugin, GROUP_API_EVENT.get(), 24, 0);
    let wanted = GROUP | COLL | P2P | PROXY_OP | PROXY_STEP | KERNEL_CH;
    let group = match first.mask & wanted {
        0 => 0,
        _ => first.start(plugin, Description::new(version, GROUP, 0, 0)),
    };
    let mut events = Vec::new();
    for (communicator, asked) in &operations {
        let event = match asked.is_point_to_point() {
            true => communicator.point_to_point(plugin, asked, group),
            false => communicator.collective(plugin, asked, group),
        };
        events.push(event);
        communicator.work(plugin, asked, event);
    }
    events.into_iter().for_each(|event| stop(plugin, event));
    stop(plugin, group);
    stop(plugin, GROUP_API_EVENT.replace(0));
}

impl Profiled {
    fn parent(&self, version: u32, asked: &Asked, group: usize) -> usize {
        if version >= 5 { asked.api } else { group }
    }

    fn collective(&self, plugin: &Plugin, asked: &Asked, group: usize) -> usize {
        let version = plugin.version;
        let sequence = {
            let mut sequences = self.sequences.lock().unwrap_or_else(|e| e.into_inner());
            let next = sequences.entry(asked.name.to_string_lossy().into_owned()).or_insert(0);
            *next += 1;
            *next - 1
        };
        if self.mask & (COLL | PROXY_OP | PROXY_STEP | KERNEL_CH) == 0 {
            return 0;
        }
        // NCCL counts these in bytes.
        let in_bytes = asked.name == c"AllGather" || asked.name == c"Broadcast";
        let (count, data_type) = match in_bytes {
            true => (asked.count * super::type_bytes(asked.data_type), 0),
            false => (asked.count, asked.data_type),
        };
        let small = count * super::type_bytes(data_type) <= 4096;
        let (protocol, protocol_text) = if small { (0, c"LL") } else { (2, c"SIMPLE") };
        let parent = self.parent(version, asked, group);
        let mut d = Description::new(version, COLL, parent, self.rank);
        let (sequence_at, function, counted, root, kind, channels, algorithm, protocol_at) =
            match version {
                1 => (40, 48, 72, 80, 84, 104, 106, 107),
                2 => (40, 48, 72, 80, 88, 104, 112, 120),
                3 => (40, 48, 72, 80, 88, 96, 104, 112),
                _ => (24, 32, 56, 64, 72, 80, 88, 96),
            };
        if version <= 3 {
            d.word(24, self.name.as_ptr() as u64);
            d.word(32, self.hash);
        }
        d.word(sequence_at, sequence);
        d.word(counted, count);
        d.int(root, asked.peer.max(0));
        d.put(channels, &[CHANNELS]);
        if version == 1 {
            d.put(function, &[number(asked.name)]);
            d.put(kind, &[data_type as u8]);
            d.put(algorithm, &[1]);
            d.put(protocol_at, &[protocol]);
        } else {
            d.text(function, asked.name);
            d.text(kind, TYPES[data_type as usize]);
            d.text(algorithm, c"RING");
            d.text(protocol_at, protocol_text);
        }
        if version >= 5 {
            d.word(104, group as u64);
        }
        self.start(plugin, d)
    }

    fn point_to_point(&self, plugin: &Plugin, asked: &Asked, group: usize) -> usize {
        let version = plugin.version;
        if self.mask & (P2P | PROXY_OP | PROXY_STEP | KERNEL_CH) == 0 {
            return 0;
        }
        let parent = self.parent(version, asked, group);
        let mut d = Description::new(version, P2P, parent, self.rank);
        let (function, kind, count, peer) = match version {
            1..=3 => (40, 56, 64, 72),
            _ => (24, 40, 48, 56),
        };
        if version <= 3 {
            d.word(24, self.name.as_ptr() as u64);
            d.word(32, self.hash);
        }
        match version {
            1 => {
                d.put(function, &[number(asked.name)]);
                d.put(kind, &[asked.data_type as u8]);
            }
            _ => {
                d.text(function, asked.name);
                d.text(kind, TYPES[asked.data_type as usize]);
            }
        }
        d.word(count, asked.count);
        d.int(peer, asked.peer);
        if version >= 4 {
            d.put(60, &[1]);
        }
        if version >= 5 {
            d.word(64, group as u64);
        }
        self.start(plugin, d)
    }

    /// Does the work of the proxy and of the kernel for an operation, on a separate thread.
    fn work(&'static self, plugin: &'static Plugin, asked: &Asked, event: usize) {
        if self.mask & (PROXY_OP | PROXY_STEP | KERNEL_CH) == 0 {
            return;
        }
        let bytes = asked.count * super::type_bytes(asked.data_type);
        let work = move || {
            for channel in 0..CHANNELS {
                if self.mask & KERNEL_CH != 0 && plugin.version >= 3 {
                    self.kernel(plugin, channel, event);
                }
                if self.mask & (PROXY_OP | PROXY_STEP) != 0 {
                    self.proxy(plugin, channel, event, bytes);
                }
            }
        };
        let _ = std::thread::spawn(work).join();
    }

    fn kernel(&self, plugin: &Plugin, channel: u8, event: usize) {
        let mut d = Description::new(plugin.version, KERNEL_CH, event, self.rank);
        d.put(24, &[channel]);
        // The device's clock has another origin than the host's, and kernels take 40 us.
        let device_ns = 1 << 60;
        if plugin.version >= 4 {
            d.word(32, device_ns);
        }
        let event = self.start(plugin, d);
        change(plugin, event, 22, device_ns + 40_000);
        stop(plugin, event);
    }

    fn proxy(&self, plugin: &Plugin, channel: u8, event: usize, bytes: u64) {
        for sends in [1, 0] {
            let mut d = Description::new(plugin.version, PROXY_OP, event, self.rank);
            d.int(24, std::process::id() as i32);
            d.put(28, &[channel]);
            d.int(32, self.rank as i32 ^ 1);
            d.int(36, 2);
            d.int(40, 1 << 19);
            d.int(44, sends);
            let operation = self.start(plugin, d);
            for step in 0..2 {
                let mut d = Description::new(plugin.version, PROXY_STEP, operation, self.rank);
                d.int(24, step);
                let event = self.start(plugin, d);
                let states: &[c_int] = match (sends, plugin.version) {
                    (1, 1..=3) => &[8, 9],
                    (1, _) => &[8, 20, 9],
                    _ => &[10, 11, 12],
                };
                for state in states {
                    change(plugin, event, *state, bytes / 4);
                    // Each operation takes some time, so that its share shows.
                    std::thread::sleep(std::time::Duration::from_micros(200));
                }
                stop(plugin, event);
            }
            if plugin.version < 4 {
                change(plugin, operation, 3, bytes / 2);
            }
            stop(plugin, operation);
        }
    }
}

fn number(function: &CStr) -> u8 {
    FUNCTIONS.iter().position(|name| *name == function).unwrap_or(0) as u8
}
