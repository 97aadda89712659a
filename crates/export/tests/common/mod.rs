//! Writes ranks of a made-up training job with rows of every kind, and counts the rows.

#![allow(dead_code, reason = "each test file uses its own part")]

pub mod readers;

use std::path::Path;
use tprof_trace::model::*;
use tprof_trace::{HeapBlock, TraceHeader, TraceWriter};

/// The run's beginning on the clock of its host.
pub const START: u64 = 7_000_000_000;
/// The same moment since 1970.
pub const UNIX: u64 = 1_790_000_000_000_000_123;
/// A kernel name with markup, quotes, control characters and separators.
pub const NASTY: &str = "<img src=x onerror=alert(1)> \"q\" \\ \u{1}\n\u{2028} größe;,|";

/// Size of the made-up training job.
#[derive(Clone, Copy, Debug)]
pub struct Job {
    pub steps: u64,
    /// Number of operators in a step. Each operator launches a kernel.
    pub operators: u64,
    pub ranks: u32,
}

pub const SMALL: Job = Job { steps: 3, operators: 20, ranks: 2 };

/// Numbers of rows of a rank.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub spans: u64,
    pub kernels: u64,
    pub copies: u64,
    pub synchronizations: u64,
    pub device_spans: u64,
    pub collectives: u64,
    pub allocations: u64,
    pub samples: u64,
    pub flow_points: u64,
    pub span_ns: u64,
    pub kernel_ns: u64,
}

/// Duration of a step in nanoseconds.
pub const STEP_NS: u64 = 10_000_000;

/// Writes a run of all ranks into a directory. Returns the number of rows of each rank.
pub fn write_run(dir: &Path, job: Job) -> Vec<Counts> {
    (0..job.ranks)
        .map(|rank| write_rank(&dir.join(format!("rank-{rank}.tprof")), rank, job))
        .collect()
}

/// Writes a rank with two threads. `fill` adds its rows.
pub fn write_two_threads(path: &Path, fill: impl FnOnce(&mut TraceWriter)) {
    let header = TraceHeader { rank: Some(0), start_ns: 1_000, ..TraceHeader::default() };
    let mut writer = TraceWriter::create(path, &header).unwrap();
    let command = writer.name("train");
    let memory = MemoryRecording::Off;
    let (exe, rank) = (NameId(0), Some(0));
    let process =
        Process { process: 0, pid: 5, parent: 1, rank, command, exe, start_ns: 1, memory };
    writer.process(&process);
    for (thread, tid) in [(0, 5), (1, 6)] {
        writer.thread(&Thread { thread, process: 0, tid, start_ns: 1 });
    }
    fill(&mut writer);
    writer.finish().unwrap();
}

pub fn write_rank(path: &Path, rank: u32, job: Job) -> Counts {
    let header = TraceHeader {
        host: format!("node{rank}"),
        rank: Some(rank),
        // Each host has its own clock. Their wall-clock times join the clocks.
        start_ns: START + u64::from(rank) * 1_000_000_000,
        start_unix_ns: UNIX,
        tprof: "0.1.0".into(),
        ..TraceHeader::default()
    };
    let start = header.start_ns;
    let mut writer = TraceWriter::create(path, &header).unwrap();
    small_tables(&mut writer, rank, job, start);
    let names: Vec<NameId> = (0..50).map(|i| writer.name(&format!("aten::op{i}"))).collect();
    let kernels: Vec<NameId> = (0..50)
        .map(|i| match i {
            0 => writer.name(NASTY),
            _ => writer.name(&format!("void kernel_{i}<float, {i}>(float*, int)")),
        })
        .collect();
    let mut rows = Rows::new(&mut writer, start);
    for step in 0..job.steps {
        rows.step(step, job, &names, &kernels);
    }
    rows.finish();
    let counts = rows.counts;
    writer.finish().unwrap();
    counts
}

fn small_tables(writer: &mut TraceWriter, rank: u32, job: Job, start: u64) {
    let command = writer.name("/usr/bin/python3 train.py --größe 3");
    writer.process(&Process {
        process: 0,
        pid: 4242,
        parent: 1,
        rank: Some(rank),
        command,
        exe: NameId(0),
        start_ns: start,
        memory: MemoryRecording::Exact,
    });
    for (thread, tid, name) in [(0, 4242, "main"), (1, 4250, "autograd")] {
        writer.thread(&Thread { thread, process: 0, tid, start_ns: start });
        let name = writer.name(name);
        writer.thread_name(thread, start, name);
    }
    let (name, properties) =
        (writer.name("NVIDIA H200"), writer.name("{\"warpSize\":32,\"regsPerBlock\":65536}"));
    writer.device(&Device {
        device: rank,
        name,
        memory_bytes: Some(150_000_000_000),
        processors: Some(132),
        compute_major: Some(9),
        compute_minor: Some(0),
        properties,
        ..Device::default()
    });
    let (name, backend) = (writer.name("default_pg"), writer.name("nccl"));
    writer.communicator(&Communicator {
        communicator: 77,
        name,
        backend,
        size: Some(job.ranks),
        rank: Some(rank),
        ranks: (0..job.ranks.into()).collect(),
        ..Communicator::default()
    });
    for (address, function, file, line) in
        [(0x10, "main", "main.c", 3), (0x20, NASTY, "train.py", 12)]
    {
        let (function, file) = (writer.name(function), writer.name(file));
        writer.symbol(&Symbol {
            process: 0,
            address,
            depth: 0,
            function,
            file,
            line,
            module: NameId(0),
        });
    }
    writer.stack(&Stack { process: 0, stack: 1, end: 0, frames: vec![0x20, 0x10] });
    let rss = writer.name(counter::RSS_BYTES);
    for i in 0..5 {
        writer.counter(Counter {
            time_ns: start + i * 1_000_000,
            process: Some(0),
            device: None,
            name: rss,
            value: 4096.0 * i as f64,
        });
    }
    let mark = writer.name("a mark");
    writer.mark(Mark { time_ns: start + 5, process: None, name: mark, kind: MarkKind::Mark });
    let (what, why) = (writer.name("kernels"), writer.name("the buffer was full"));
    writer.loss(Loss { time_ns: start + 9, process: Some(0), what, count: 7, why });
    let mut heap = HeapBlock::new(0);
    for i in 0..100 {
        heap.alloc(start + 1000 * i, 0, 1 << 20, 1, false);
    }
    writer.heap(&mut heap).unwrap();
    let last = start + job.steps * STEP_NS + 2_000_000;
    writer.process_end(0, last, ProcessEnd::Exited(0));
}

/// Rows of a rank that are collected until they fill a block.
struct Rows<'a> {
    writer: &'a mut TraceWriter,
    start: u64,
    counts: Counts,
    spans: Vec<Span>,
    kernels: Vec<Kernel>,
    copies: Vec<MemoryCopy>,
    synchronizations: Vec<Synchronization>,
    device_spans: Vec<DeviceSpan>,
    collectives: Vec<Collective>,
    allocations: Vec<DeviceAllocation>,
    samples: Vec<Sample>,
    flows: Vec<FlowPoint>,
    correlation: u64,
    fwdbwd: NameId,
    all_reduce: NameId,
    float: NameId,
    launch: NameId,
    synchronize: NameId,
    args: NameId,
}

impl<'a> Rows<'a> {
    fn new(writer: &'a mut TraceWriter, start: u64) -> Rows<'a> {
        let [fwdbwd, all_reduce, float, launch, synchronize, args] = [
            "fwdbwd",
            "all_reduce",
            "Float",
            "cudaLaunchKernel",
            "cudaStreamSynchronize",
            "{\"Input Dims\":[[8,3],[]],\"Concrete Inputs\":\"x\",\"ok\":true,\"ratio\":0.5}",
        ]
        .map(|text| writer.name(text));
        Rows {
            writer,
            start,
            counts: Counts::default(),
            spans: Vec::new(),
            kernels: Vec::new(),
            copies: Vec::new(),
            synchronizations: Vec::new(),
            device_spans: Vec::new(),
            collectives: Vec::new(),
            allocations: Vec::new(),
            samples: Vec::new(),
            flows: Vec::new(),
            correlation: 1000,
            fwdbwd,
            all_reduce,
            float,
            launch,
            synchronize,
            args,
        }
    }

    fn span(&mut self, span: Span) {
        self.counts.spans += 1;
        self.counts.span_ns += span.duration_ns;
        self.spans.push(span);
    }

    /// Adds one step: an annotation around operators. Each operator contains a launch, whose kernel
    /// runs later. A copy, a wait and a collective are at the end of the step.
    fn step(&mut self, step: u64, job: Job, names: &[NameId], kernels: &[NameId]) {
        let begin = self.start + 1_000_000 + step * STEP_NS;
        let name = self.writer.name(&format!("ProfilerStep#{step}"));
        self.span(Span {
            start_ns: begin,
            duration_ns: STEP_NS - 1000,
            kind: SpanKind::Annotation,
            name,
            external: Some(step + 1),
            ..Span::default()
        });
        self.device_spans.push(DeviceSpan {
            start_ns: begin + 20,
            duration_ns: STEP_NS - 500,
            stream: Some(7),
            kind: DeviceSpanKind::Annotation,
            name,
            external: Some(step + 1),
            ..DeviceSpan::default()
        });
        let each = (STEP_NS - 2_000_000) / job.operators;
        for at in 0..job.operators {
            self.operator(begin + 1000 + at * each, each, at, names, kernels);
        }
        self.end_of_step(begin + STEP_NS - 1_500_000, step);
        if self.spans.len() >= 60_000 {
            self.flush();
        }
    }

    fn operator(&mut self, at: u64, each: u64, number: u64, names: &[NameId], kernels: &[NameId]) {
        self.correlation += 1;
        let (correlation, which) = (self.correlation, (self.correlation * 7 % 50) as usize);
        let backward = number % 2 == 1;
        self.span(Span {
            start_ns: at,
            duration_ns: each * 3 / 4,
            thread: u32::from(backward),
            kind: SpanKind::Operator,
            name: names[which],
            external: Some(correlation),
            sequence: Some(correlation - u64::from(backward)),
            forward_thread: backward.then_some(1),
            args: if number.is_multiple_of(5) { self.args } else { NameId(0) },
            ..Span::default()
        });
        self.flows.push(FlowPoint {
            time_ns: at,
            thread: Some(u32::from(backward)),
            end: if backward { FlowEnd::End } else { FlowEnd::Start },
            id: correlation - u64::from(backward),
            category: self.fwdbwd,
            name: self.fwdbwd,
            ..FlowPoint::default()
        });
        self.span(Span {
            start_ns: at + each / 4,
            duration_ns: each / 4,
            thread: u32::from(backward),
            kind: SpanKind::Runtime,
            name: self.launch,
            correlation: Some(correlation),
            external: Some(correlation),
            status: Some(0),
            ..Span::default()
        });
        self.counts.kernel_ns += each * 9 / 10;
        self.kernels.push(Kernel {
            start_ns: at + each,
            duration_ns: each * 9 / 10,
            stream: 7,
            context: 1,
            name: kernels[which],
            correlation: Some(correlation),
            external: Some(correlation),
            grid: [64, 1, 1],
            block: [128, 2, 1],
            registers: Some(32),
            ..Kernel::default()
        });
        self.samples.push(Sample {
            time_ns: at + 3,
            stack: u32::from(!number.is_multiple_of(4)),
            weight_ns: 1_000_000,
            state: if number.is_multiple_of(3) { ThreadState::Gil } else { ThreadState::Running },
            cpu: Some(1),
            ..Sample::default()
        });
        if number.is_multiple_of(4) {
            self.allocations.push(DeviceAllocation {
                time_ns: at + 5,
                allocator: Allocator::Framework,
                device: Some(0),
                address: 0x7f00_0000_0000 + number * 512,
                bytes: Some(512),
                total_allocated_bytes: Some(1 << 20 | number),
                total_reserved_bytes: Some(2 << 20),
                ..DeviceAllocation::default()
            });
        }
    }

    fn end_of_step(&mut self, at: u64, step: u64) {
        self.correlation += 1;
        let correlation = self.correlation;
        self.copies.push(MemoryCopy {
            start_ns: at,
            duration_ns: 5000,
            stream: 20,
            kind: CopyKind::HostToDevice,
            from: MemoryKind::Pinned,
            to: MemoryKind::Device,
            bytes: Some(1 << 16),
            correlation: Some(correlation),
            ..MemoryCopy::default()
        });
        self.correlation += 1;
        self.span(Span {
            start_ns: at + 100,
            duration_ns: 9000,
            kind: SpanKind::Runtime,
            name: self.synchronize,
            correlation: Some(correlation + 1),
            ..Span::default()
        });
        self.synchronizations.push(Synchronization {
            start_ns: at + 200,
            duration_ns: 8000,
            device: Some(0),
            stream: Some(7),
            kind: SyncKind::Stream,
            correlation: Some(correlation + 1),
            ..Synchronization::default()
        });
        self.collectives.push(Collective {
            start_ns: at - 50,
            duration_ns: Some(70),
            thread: Some(0),
            name: self.all_reduce,
            communicator: Some(77),
            sequence: Some(step),
            elements_in: Some(1000),
            elements_out: Some(1000),
            element_type: self.float,
            bytes: Some(4000),
            group_size: Some(2),
            stream: Some(7),
            // The step's last kernel is also the kernel of the collective.
            correlation: Some(correlation - 1),
            ..Collective::default()
        });
    }

    fn flush(&mut self) {
        self.counts.kernels += self.kernels.len() as u64;
        self.counts.copies += self.copies.len() as u64;
        self.counts.synchronizations += self.synchronizations.len() as u64;
        self.counts.device_spans += self.device_spans.len() as u64;
        self.counts.collectives += self.collectives.len() as u64;
        self.counts.allocations += self.allocations.len() as u64;
        self.counts.samples += self.samples.len() as u64;
        self.counts.flow_points += self.flows.len() as u64;
        self.writer.write(&mut self.spans).unwrap();
        self.writer.write(&mut self.kernels).unwrap();
        self.writer.write(&mut self.copies).unwrap();
        self.writer.write(&mut self.synchronizations).unwrap();
        self.writer.write(&mut self.device_spans).unwrap();
        self.writer.write(&mut self.collectives).unwrap();
        self.writer.write(&mut self.allocations).unwrap();
        self.writer.write(&mut self.samples).unwrap();
        self.writer.write(&mut self.flows).unwrap();
    }

    fn finish(&mut self) {
        self.flush();
    }
}
