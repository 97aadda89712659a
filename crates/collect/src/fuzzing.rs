//! The entry point for a fuzz target in `fuzz/`: reads the rings of a process that writes what the
//! fuzzer wants.
//!
//! The functions that it calls stay private to the crate. This module exists only with the feature
//! `fuzzing`.

use crate::config::*;
use crate::output::destination::Output;
use crate::output::files::Files;
use crate::output::flushing;
use crate::shared::Region;
use crate::shared::clock::Clock;
use crate::targets::attached::{Attached, NcclLog};
use crate::targets::placing::PlacedIn;
use crate::targets::target::{Pass, Target, Targets};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tprof_symbols::Allocators;
use tprof_trace::TraceHeader;
use tprof_wire::handshake::{Hello, Role};
use tprof_wire::record::SLOT_BYTES;
use tprof_wire::region::*;

/// A pid that no process has, so that nothing is read from `/proc`.
const PID: u32 = u32::MAX - 1;
/// Time of the first pass over the rings, ns.
const START_NS: u64 = 1_000_000_000;
/// Time between two passes, ns: two of them skip a hole.
const PASS_NS: u64 = 150_000_000;

/// What was read from the rings of both regions.
#[derive(Clone, Copy, Debug)]
pub struct RingsRead {
    /// Number of heap events and of records of what the process did.
    pub recorded: u64,
    /// Number of records that were refused.
    pub refused: u64,
}

/// The bytes of an input that are not read yet. Beyond its end there are zeros.
struct Input<'i>(&'i [u8]);

impl Input<'_> {
    fn number<const N: usize>(&mut self) -> u64 {
        let (taken, rest) = self.0.split_at(N.min(self.0.len()));
        self.0 = rest;
        let mut bytes = [0; 8];
        bytes[..taken.len()].copy_from_slice(taken);
        u64::from_le_bytes(bytes)
    }

    /// A reference to a chunk: mostly one of a few, so that threads share chunks, and links form
    /// circles.
    fn chunk(&mut self) -> ChunkRef {
        match self.number::<1>() as usize {
            at @ 0..128 => ChunkRef::small(at % 4),
            at @ 128..224 => ChunkRef::large(at % 4),
            224..240 => ChunkRef(0),
            _ => ChunkRef(self.number::<4>() as u32),
        }
    }
}

/// Writes into regions what an input says.
struct Writer {
    region: Arc<Region>,
    chunk: ChunkRef,
    /// Where the next slot goes, in bytes from the beginning of the chunk.
    at: usize,
}

impl Writer {
    fn put(&self, offset: usize, value: u64) {
        let place = offset & !(SLOT_BYTES - 1);
        self.region.slots(place, place + SLOT_BYTES)[0][offset / 8 % 2].store(value, Relaxed);
    }

    fn slots(&mut self, input: &mut Input<'_>) {
        for _ in 0..=input.number::<1>() {
            let words = [input.number::<8>(), input.number::<8>()];
            let Some((base, bytes)) = self.chunk.place() else { return };
            if self.at + SLOT_BYTES > bytes {
                return;
            }
            self.put(base + self.at, words[0]);
            self.put(base + self.at + 8, words[1]);
            self.at += SLOT_BYTES;
            if input.0.is_empty() {
                return;
            }
        }
    }

    /// Continues in another chunk. The end of this one may be anything.
    fn link(&mut self, input: &mut Input<'_>) {
        let next = input.chunk();
        let end = match input.number::<1>() {
            0..192 => self.at as u64,
            _ => input.number::<4>(),
        };
        if let Some((base, _)) = self.chunk.place() {
            self.put(base, end << 32 | u64::from(next.0));
        }
        (self.chunk, self.at) = (next, SLOT_BYTES);
    }

    fn thread(&mut self, input: &mut Input<'_>) {
        let slot = match input.number::<1>() as usize {
            slot @ 0..240 => slot % 4,
            _ => input.number::<2>() as usize % MAX_THREADS,
        };
        (self.chunk, self.at) = (input.chunk(), SLOT_BYTES);
        let place = self.region.slot(slot);
        place.state.store(slot_state::LIVE, Relaxed);
        place.tid.store(slot as u32 + 1, Relaxed);
        place.first_chunk.store(self.chunk.0, Relaxed);
        place.start_clock.store(START_NS, Relaxed);
        let taken = self.region.free_slots(slot / 64) & !(1 << (slot % 64));
        self.put(SLOT_BITMAP_OFFSET + slot / 64 * 8, taken);
        self.region.header().threads_changed.fetch_add(1, Relaxed);
    }

    /// Writes anywhere into the header, the bitmaps, the slots of the first threads or the header
    /// of a chunk.
    fn poke(&mut self, input: &mut Input<'_>) {
        let offset = match input.number::<1>() {
            0..96 => input.number::<2>() as usize % size_of::<RegionHeader>(),
            96..128 => BITMAPS_OFFSET + input.number::<2>() as usize % (8 << 10),
            128..224 => SLOTS_OFFSET + input.number::<2>() as usize % (4 * size_of::<ThreadSlot>()),
            _ => self.chunk.place().map_or(0, |(base, _)| base) + input.number::<1>() as usize,
        };
        let value = input.number::<8>();
        self.put(offset, value);
    }
}

/// Makes regions as the input says, reads them while their process lives and after its end, and
/// writes a trace into `directory`, which must be empty. Returns what was read, and the trace.
///
/// The input is a list of operations, a byte each with its operands: write slots, continue in
/// another chunk, begin a thread, write anywhere, read the rings, write to the other region.
pub fn read_rings(input: &[u8], directory: &Path) -> (RingsRead, Option<PathBuf>) {
    let mut input = Input(input);
    let flags = input.number::<1>();
    let region = || Arc::new(Region::new().expect("there is memory").0);
    let regions = [region(), region()];
    let mut writers = regions.clone().map(|region| Writer { region, chunk: ChunkRef(0), at: 0 });
    let header = TraceHeader { start_ns: START_NS, ..TraceHeader::default() };
    let mut out = Output::new(clock().clone(), Files::new(directory, header, Vec::new(), None));
    let config = config(directory, flags);
    let placed_in = PlacedIn {
        targets: &Targets::new(),
        out: &mut out,
        config: &config,
        session: directory,
        recording: true,
        allocators: &mut Allocators::default(),
    };
    let attached = attached(Arc::clone(&regions[0]), flags);
    let mut target = Target::place(attached, placed_in, START_NS).expect("a file was created");
    if flags & 4 != 0 {
        target.joined(Arc::clone(&regions[1]), true);
    }
    let (mut at, mut now) = (0, START_NS);
    while !input.0.is_empty() {
        let writer: &mut Writer = &mut writers[at];
        match input.number::<1>() {
            0..96 => writer.slots(&mut input),
            96..128 => writer.link(&mut input),
            128..160 => writer.thread(&mut input),
            160..192 => writer.poke(&mut input),
            192..224 => {
                now += PASS_NS;
                target.drain(&mut out, now, if at == 0 { Pass::Live } else { Pass::Partial });
                target.flush(&mut out, now, true);
            }
            _ => at = 1 - at,
        }
    }
    now += PASS_NS;
    target.drain_all(&mut out, now);
    let mut read = RingsRead { recorded: 0, refused: 0 };
    for image in [Some(&target.hooks), target.agent.as_ref()].into_iter().flatten() {
        read.recorded += image.recorded;
        read.refused += image.refused;
    }
    target.finish(&mut out, now, flags & 8 == 0);
    let losses = &mut out.processes.losses;
    flushing::settle_files(&mut out.files, losses);
    let path = out.files.open.first().map(|open| open.path.clone());
    flushing::close_files(&mut out.files, losses, now);
    (read, path)
}

/// Returns the one clock of all inputs, because setting up a clock takes milliseconds.
fn clock() -> &'static Clock {
    static CLOCK: OnceLock<Clock> = OnceLock::new();
    CLOCK.get_or_init(Clock::new)
}

fn attached(region: Arc<Region>, flags: u64) -> Attached {
    Attached {
        image: 0,
        pid: PID,
        parent: 0,
        cpu_ns: 0,
        resident_bytes: None,
        hello: Hello::new(Role::Target, if flags & 1 == 0 { PID } else { 1 }),
        region,
        command: vec!["train".to_owned()],
        exe: "/bin/train".to_owned(),
        program: None,
        rank: None,
        nvtx_owner: None,
        itt_owner: None,
        nccl_owner: None,
        nccl_log: NcclLog::default(),
        working_directory: None,
        has_faketime: false,
        why_not_hooked: None,
        watched: false,
        time_ns: START_NS,
        begun_with: Vec::new(),
        modules: None,
    }
}

fn config(directory: &Path, flags: u64) -> Config {
    use Activity::*;
    Config {
        output: directory.to_owned(),
        if_exists: IfExists::default(),
        activities: vec![Cpu, Gpu, Mem, Comm, Nvtx],
        mem: match flags & 2 {
            0 => MemMode::Exact,
            _ => MemMode::Sampled { interval: 1 << 19 },
        },
        stacks: StackMode::Auto,
        sample_rate: 99,
        budget_percent: None,
        counters: Vec::new(),
        nccl: Vec::new(),
        cuda_graphs: GraphDetail::default(),
        cuda_calls: CallSource::default(),
        operators: OperatorDetail::default(),
        modules: false,
        kineto: None,
        compile: false,
        io: true,
        gpu_stalls: None,
        rss_interval: Duration::from_secs(1),
        gpu_interval: Duration::from_secs(1),
        gpu_metrics: None,
        on_full: OnFull::Drop,
        table_cache: None,
        max_size: None,
        duration: None,
        delay: None,
        on_hang: None,
        on_slow_step: None,
        keep: None,
        dump_on: DumpOn::default(),
        paused: false,
        schedule: None,
        capture: None,
        follow: false,
        redact: flags & 16 != 0,
        started_in: None,
        command: Vec::new(),
    }
}
