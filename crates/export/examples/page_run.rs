//! Writes a made-up training run, which tests and benchmarks of the pages show: `page_run DIR
//! [--steps N] [--ranks N] [--slow] [--plain] [--long-backward]`. By default, the run has two ranks
//! of a small transformer. They have Python functions, operators, launches, three streams, the
//! nodes of a CUDA graph, collectives, allocations, samples, and a thread that only waits. Unless
//! `--plain` is given, some names contain markup, which a page must show as text.

use std::path::Path;

use tprof_trace::model::*;
use tprof_trace::run::{Completeness, RUN_VERSION, RunInfo};
use tprof_trace::{HeapBlock, TraceHeader, TraceWriter};

const START: u64 = 5_000_000_000;
const START_UNIX: u64 = 1_700_000_000_000_000_000;
const HOSTILE: &str = "<img src=x onerror=document.title='owned'></script><b>kernel";
const LAYERS: u32 = 12;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |name: &str, default: u32| {
        let at = arguments.iter().position(|word| word == name);
        at.and_then(|at| arguments.get(at + 1)?.parse().ok()).unwrap_or(default)
    };
    let directory = Path::new(arguments.first().ok_or("page_run DIR [--steps N] [--ranks N]")?);
    std::fs::create_dir_all(directory)?;
    let has = |name: &str| arguments.iter().any(|word| word == name);
    let slow = if has("--slow") { 13 } else { 10 };
    let backwards = if has("--long-backward") { 3 } else { 1 };
    let odd = if has("--plain") { "gelu_kernel" } else { HOSTILE };
    let ranks = number("--ranks", 2);
    let (mut end_ns, mut recorded) = (0, 0);
    for rank in 0..ranks {
        let (ended_ns, events) =
            Rank::new(directory, rank, slow, odd)?.write(number("--steps", 6), backwards)?;
        (end_ns, recorded) = (end_ns.max(ended_ns), recorded + events);
    }
    let info = RunInfo {
        version: RUN_VERSION,
        tprof: env!("CARGO_PKG_VERSION").to_owned(),
        host: "node-1".to_owned(),
        command: vec!["made-up".to_owned(), "example".to_owned()],
        start_ns: START,
        start_unix_ns: START_UNIX,
        end_ns: Some(end_ns),
        finished: true,
        completeness: Completeness { recorded, ..Completeness::default() },
        files: (0..ranks).map(|rank| format!("rank-{rank}.tprof")).collect(),
        ..RunInfo::default()
    };
    std::fs::write(directory.join("run.json"), tprof_trace::info_text(&info)?)?;
    Ok(())
}

struct Rank {
    writer: TraceWriter,
    rank: u32,
    now_ns: u64,
    /// Time at which each stream becomes free.
    streams: [u64; 3],
    correlation: u64,
    spans: Vec<Span>,
    kernels: Vec<Kernel>,
    copies: Vec<MemoryCopy>,
    collectives: Vec<Collective>,
    samples: Vec<Sample>,
    memory: Vec<DeviceAllocation>,
    waits: Vec<Synchronization>,
    arrows: Vec<FlowPoint>,
    held_bytes: u64,
    random: u64,
    step: u32,
    slow: u64,
    odd: &'static str,
}

const COMPUTE: usize = 0;
const COMM: usize = 1;
const COPY: usize = 2;
const STREAMS: [u64; 3] = [7, 20, 13];

impl Rank {
    fn new(
        directory: &Path,
        rank: u32,
        slow: u64,
        odd: &'static str,
    ) -> Result<Rank, tprof_trace::TraceError> {
        let header = TraceHeader {
            host: "node-1".to_owned(),
            rank: Some(rank),
            start_ns: START,
            start_unix_ns: START_UNIX,
            tprof: env!("CARGO_PKG_VERSION").to_owned(),
            ..TraceHeader::default()
        };
        let mut writer =
            TraceWriter::create(&directory.join(format!("rank-{rank}.tprof")), &header)?;
        let command = writer.name("python3 train.py --layers 12");
        writer.process(&Process {
            process: 0,
            pid: 4100 + rank,
            parent: 4000,
            rank: Some(rank),
            command,
            exe: command,
            start_ns: START,
            memory: MemoryRecording::Exact,
        });
        for (thread, name) in (0..).zip(["python3", "pt_autograd_0", "pt_data_pin"]) {
            writer.thread(&Thread {
                thread,
                process: 0,
                tid: 4100 + 10 * rank + thread,
                start_ns: START,
            });
            let name = writer.name(name);
            writer.thread_name(thread, START, name);
        }
        let name = writer.name("Example GPU");
        writer.device(&Device {
            device: 0,
            name,
            memory_bytes: Some(150_754_820_096),
            ..Device::default()
        });
        for (stream, name) in STREAMS.into_iter().zip(["compute", "nccl", "copies"]) {
            let name = writer.name(name);
            writer.stream(&Stream { device: 0, stream, name, ..Stream::default() });
        }
        let clock = writer.name(counter::GPU_SM_CLOCK);
        writer.counter(Counter {
            time_ns: START + 1_000_000,
            process: None,
            device: Some(0),
            name: clock,
            value: 1.98e9,
        });
        let mut made = Rank {
            writer,
            rank,
            now_ns: START + 4_000_000 + 700_000 * u64::from(rank),
            streams: [0; 3],
            correlation: 100,
            spans: Vec::new(),
            kernels: Vec::new(),
            copies: Vec::new(),
            collectives: Vec::new(),
            samples: Vec::new(),
            memory: Vec::new(),
            waits: Vec::new(),
            arrows: Vec::new(),
            held_bytes: 6 << 30,
            random: u64::from(rank) + 1,
            step: 0,
            slow,
            odd,
        };
        made.stacks();
        made.start_up();
        Ok(made)
    }

    /// Adds samples of a thread that is busy before the first step and then waits for work. Also
    /// adds the device memory segment that the allocator divides into blocks.
    fn start_up(&mut self) {
        for ms in 1..4 {
            self.samples.push(Sample {
                time_ns: START + ms * 1_000_000,
                thread: 2,
                stack: 3,
                weight_ns: 1_000_000,
                ..Sample::default()
            });
        }
        self.memory.push(DeviceAllocation {
            time_ns: START + 2_000_000,
            device: Some(0),
            address: 1 << 40,
            bytes: Some(8 << 30),
            kind: MemoryKind::Device,
            ..DeviceAllocation::default()
        });
    }

    fn stacks(&mut self) {
        let functions = [
            ("_start", "python3.11", ""),
            ("Py_RunMain", "python3.11", ""),
            ("main", "", "train.py"),
            ("train_step", "", "train.py"),
            ("forward", "", "model/attention.py"),
            ("at::native::empty_cuda(c10::IntArrayRef)", "libtorch_cuda.so", ""),
            ("c10::alloc_cpu(unsigned long)", "libc10.so", ""),
            ("collate", "", "data/loader.py"),
            (self.odd, "libodd.so", ""),
        ];
        for (at, (function, module, file)) in (0..).zip(functions) {
            let function = self.writer.name(function);
            let (module, file) = (self.writer.name(module), self.writer.name(file));
            let address = if file == NameId(0) { 0x1000 + 16 * at } else { SYNTHETIC_FRAME | at };
            self.writer.symbol(&Symbol {
                process: 0,
                address,
                depth: 0,
                function,
                file,
                line: 40,
                module,
            });
        }
        let frame = |at: usize| {
            let synthetic = !functions[at].2.is_empty();
            if synthetic { SYNTHETIC_FRAME | at as u64 } else { 0x1000 + 16 * at as u64 }
        };
        let stacks: [&[usize]; 5] = [
            &[0, 1, 2, 3, 4, 5],
            &[0, 1, 2, 3, 6],
            &[0, 1, 2, 7, 6],
            &[0, 1, 2, 3],
            &[0, 1, 2, 3, 4, 8],
        ];
        for (stack, frames) in (1..).zip(stacks) {
            let frames = frames.iter().rev().map(|&at| frame(at)).collect();
            self.writer.stack(&Stack { process: 0, stack, end: 0, frames });
        }
    }

    fn random(&mut self, below: u64) -> u64 {
        self.random = self
            .random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.random >> 33) % below
    }

    fn span(
        &mut self,
        thread: u32,
        kind: SpanKind,
        name: &str,
        start_ns: u64,
        end_ns: u64,
    ) -> &mut Span {
        let name = self.writer.name(name);
        self.spans.push(Span {
            start_ns,
            duration_ns: end_ns - start_ns,
            thread,
            kind,
            name,
            ..Span::default()
        });
        self.spans.last_mut().expect("just pushed")
    }

    /// Adds a launch at `now` on `thread`, and its kernel, which begins when the stream is free.
    fn launch(&mut self, thread: u32, stream: usize, name: &str, kernel_ns: u64) -> u64 {
        let call_ns = 5_000 + self.random(4_000);
        self.correlation += 1;
        let (start_ns, correlation) = (self.now_ns, Some(self.correlation));
        let stack = if thread == 0 { 1 + (self.correlation % 5) as u32 } else { 0 };
        let call =
            self.span(thread, SpanKind::Runtime, "cudaLaunchKernel", start_ns, start_ns + call_ns);
        (call.correlation, call.stack) = (correlation, stack);
        self.now_ns += call_ns + 1_500;
        let begins_ns = self.streams[stream].max(start_ns + 4_500) + 700;
        let duration_ns = kernel_ns * self.slow / 10 + self.random(kernel_ns / 8 + 1);
        let name = self.writer.name(name);
        self.kernels.push(Kernel {
            start_ns: begins_ns,
            duration_ns,
            stream: STREAMS[stream],
            name,
            correlation,
            grid: [1 + kernel_ns as u32 / 900, 1, 1],
            block: [128, 1, 1],
            registers: Some(64),
            ..Kernel::default()
        });
        self.streams[stream] = begins_ns + duration_ns;
        begins_ns + duration_ns
    }

    fn operator(&mut self, thread: u32, names: &[&str], kernel: &str, kernel_ns: u64) {
        let (start_ns, first) = (self.now_ns, self.spans.len());
        self.now_ns += 9_000 * names.len() as u64 + self.random(16_000);
        self.launch(thread, COMPUTE, kernel, kernel_ns);
        let end_ns = self.now_ns + 1_500;
        for (depth, name) in (0..).zip(names) {
            self.span(
                thread,
                SpanKind::Operator,
                name,
                start_ns + 900 * depth,
                end_ns - 200 * depth,
            );
        }
        let _ = first;
        self.now_ns = end_ns + 500;
    }

    fn layer(&mut self, layer: u32) {
        let (start_ns, at) = (self.now_ns, format!("nn.Module: Block_{layer}"));
        self.operator(0, &["aten::layer_norm"], "vectorized_layer_norm_kernel<float>", 14_000);
        self.operator(0, &["aten::linear", "aten::addmm"], "ampere_sgemm_128x64_tn", 95_000);
        self.operator(
            0,
            &["aten::scaled_dot_product_attention"],
            "flash_fwd_kernel<128, 64>",
            120_000,
        );
        self.operator(0, &["aten::linear", "aten::addmm"], "ampere_sgemm_128x128_nn", 180_000);
        let odd = if layer == 3 { self.odd } else { "elementwise_kernel<gelu>" };
        self.arrow(0, layer, FlowEnd::Start);
        self.operator(0, &["aten::gelu"], odd, 22_000);
        let bytes = 24 << 20;
        self.held_bytes += bytes;
        let (time_ns, held) = (start_ns + 5_000, self.held_bytes);
        self.device_memory(time_ns, false, bytes, held);
        let end_ns = self.now_ns;
        self.span(0, SpanKind::Python, &at, start_ns, end_ns);
    }

    fn device_memory(&mut self, time_ns: u64, free: bool, bytes: u64, held: u64) {
        self.memory.push(DeviceAllocation {
            time_ns,
            free,
            allocator: Allocator::Framework,
            device: Some(0),
            address: time_ns,
            bytes: Some(bytes),
            kind: MemoryKind::Device,
            total_allocated_bytes: Some(held),
            total_reserved_bytes: Some(held + (2 << 30)),
            ..DeviceAllocation::default()
        });
    }

    /// Adds one end of the arrow from a forward operator to its backward operator.
    fn arrow(&mut self, thread: u32, layer: u32, end: FlowEnd) {
        let category = self.writer.name("fwdbwd");
        self.arrows.push(FlowPoint {
            time_ns: self.now_ns,
            thread: Some(thread),
            end,
            id: u64::from(self.step * LAYERS + layer),
            category,
            name: category,
            ..FlowPoint::default()
        });
    }

    fn backward(&mut self) {
        let start_ns = self.now_ns;
        for layer in (0..LAYERS).rev() {
            self.operator(1, &["AddmmBackward0", "aten::mm"], "ampere_sgemm_128x64_nt", 190_000);
            self.arrow(1, layer, FlowEnd::End);
            self.operator(1, &["GeluBackward0"], "elementwise_kernel<gelu_backward>", 25_000);
            self.held_bytes -= 24 << 20;
            let (now_ns, held) = (self.now_ns, self.held_bytes);
            self.device_memory(now_ns, true, 24 << 20, held);
            if layer % 3 == 0 {
                self.all_reduce();
            }
        }
        let end_ns = self.now_ns;
        self.span(
            1,
            SpanKind::Annotation,
            "autograd::engine::evaluate_function",
            start_ns - 500,
            end_ns,
        );
    }

    fn all_reduce(&mut self) {
        let start_ns = self.now_ns;
        let ends_ns = self.launch(1, COMM, "ncclDevKernel_AllReduce_Sum_f32_RING_LL", 650_000);
        let name = self.writer.name("all_reduce");
        let element_type = self.writer.name("Float");
        self.collectives.push(Collective {
            start_ns,
            duration_ns: Some(ends_ns - start_ns),
            thread: Some(1),
            name,
            element_type,
            communicator: Some(1),
            sequence: Some(self.collectives.len() as u64),
            bytes: Some(100 << 20),
            group_size: Some(2),
            stream: Some(STREAMS[COMM]),
            correlation: Some(self.correlation),
            ..Collective::default()
        });
        let end_ns = self.now_ns;
        self.span(1, SpanKind::Operator, "c10d::allreduce_", start_ns - 200, end_ns);
    }

    fn step(&mut self, step: u32, backwards: u32) {
        self.step = step;
        let start_ns = self.now_ns;
        let mark = self.writer.name(&format!("ProfilerStep#{step}"));
        self.writer.mark(Mark {
            time_ns: start_ns,
            process: Some(0),
            name: mark,
            kind: MarkKind::Step,
        });
        let waits_ns = 400_000 + self.random(600_000) * u64::from(step % 4 == 3) * 4;
        self.span(
            0,
            SpanKind::Annotation,
            "enumerate(DataLoader)#next",
            start_ns + 500,
            start_ns + waits_ns,
        );
        self.now_ns += waits_ns + 2_000;
        self.copy(64 << 20);
        let forward_ns = self.now_ns;
        (0..LAYERS).for_each(|layer| self.layer(layer));
        let end_ns = self.now_ns;
        self.span(0, SpanKind::Nvtx, "forward", forward_ns - 600, end_ns);
        (0..backwards).for_each(|_| self.backward());
        let optimizer_ns = self.now_ns;
        for _ in 0..4 {
            self.operator(
                0,
                &["Optimizer.step#AdamW.step", "aten::_foreach_add_"],
                "multi_tensor_apply_kernel<adamw>",
                140_000,
            );
        }
        self.graph();
        let (wait_ns, done_ns) = (self.now_ns, *self.streams.iter().max().expect("three"));
        let done_ns = done_ns.max(wait_ns) + 9_000;
        self.correlation += 1;
        let correlation = Some(self.correlation);
        self.span(0, SpanKind::Runtime, "cudaDeviceSynchronize", wait_ns, done_ns).correlation =
            correlation;
        self.waits.push(Synchronization {
            start_ns: wait_ns + 2_000,
            duration_ns: done_ns - wait_ns - 3_000,
            device: Some(0),
            kind: SyncKind::Context,
            correlation,
            ..Synchronization::default()
        });
        self.now_ns = done_ns + 20_000;
        let end_ns = self.now_ns;
        self.span(0, SpanKind::Nvtx, "optimizer", optimizer_ns - 500, end_ns - 4_000);
        self.span(0, SpanKind::Python, "train.py(118): train_step", start_ns + 200, end_ns - 300);
        self.span(0, SpanKind::Annotation, &format!("ProfilerStep#{step}"), start_ns, end_ns);
        for time_ns in (start_ns..end_ns).step_by(1_000_000) {
            let state = if time_ns > wait_ns { ThreadState::Device } else { ThreadState::Running };
            let stack = 1 + (time_ns / 4_000_000 % 5) as u32;
            self.samples.push(Sample {
                time_ns,
                stack,
                weight_ns: 1_000_000,
                state,
                ..Sample::default()
            });
        }
    }

    /// Adds a launch of a CUDA graph with three nodes, each recorded as a kernel.
    fn graph(&mut self) {
        self.correlation += 1;
        let (start_ns, correlation) = (self.now_ns, Some(self.correlation));
        self.span(0, SpanKind::Runtime, "cudaGraphLaunch", start_ns, start_ns + 9_000)
            .correlation = correlation;
        self.now_ns += 10_000;
        let name = self.writer.name("elementwise_kernel<lerp>");
        self.streams[COMPUTE] = self.streams[COMPUTE].max(start_ns + 12_000);
        for node in 0..3 {
            let start_ns = self.streams[COMPUTE] + 1_000;
            self.streams[COMPUTE] = start_ns + 20_000;
            self.kernels.push(Kernel {
                start_ns,
                duration_ns: 20_000,
                stream: STREAMS[COMPUTE],
                name,
                correlation,
                graph: Some(1),
                graph_node: Some(node),
                ..Kernel::default()
            });
        }
    }

    fn copy(&mut self, bytes: u64) {
        self.correlation += 1;
        let (start_ns, correlation) = (self.now_ns, Some(self.correlation));
        self.span(0, SpanKind::Runtime, "cudaMemcpyAsync", start_ns, start_ns + 12_000)
            .correlation = correlation;
        self.now_ns += 14_000;
        let begins_ns = self.streams[COPY].max(start_ns + 9_000);
        let duration_ns = bytes / 24;
        self.copies.push(MemoryCopy {
            start_ns: begins_ns,
            duration_ns,
            stream: STREAMS[COPY],
            kind: CopyKind::HostToDevice,
            from: MemoryKind::Pinned,
            to: MemoryKind::Device,
            bytes: Some(bytes),
            correlation,
            ..MemoryCopy::default()
        });
        self.streams[COPY] = begins_ns + duration_ns;
        self.streams[COMPUTE] = self.streams[COMPUTE].max(self.streams[COPY]);
    }

    /// Writes the file. Returns the time of the last event and the number of events.
    fn write(mut self, steps: u32, backwards: u32) -> Result<(u64, u64), tprof_trace::TraceError> {
        let begins_ns = self.now_ns;
        let rss = self.writer.name(counter::RSS_BYTES);
        for step in 0..steps {
            self.step(step, backwards);
            let value = ((900u64 + 13 * u64::from(step) + u64::from(self.rank)) << 20) as f64;
            let time_ns = self.now_ns;
            self.writer.counter(Counter {
                time_ns,
                process: Some(0),
                device: None,
                name: rss,
                value,
            });
        }
        self.samples.push(Sample {
            time_ns: begins_ns,
            thread: 2,
            stack: 3,
            weight_ns: self.now_ns - begins_ns,
            state: ThreadState::Lock,
            ..Sample::default()
        });
        let mut heap = HeapBlock::new(0);
        for n in 0..4_000u64 {
            let time_ns = START + n * (self.now_ns - START) / 4_000;
            heap.alloc(time_ns, 0, 64 + self.random(60_000), 1 + (n % 5) as u32, false);
            if n % 4 != 0 {
                heap.free(time_ns + 5, 0, 1, false);
            }
        }
        let heap_events = heap.len();
        self.writer.heap(&mut heap)?;
        let events = heap_events
            + self.spans.len()
            + self.kernels.len()
            + self.copies.len()
            + self.collectives.len()
            + self.samples.len()
            + self.memory.len()
            + self.waits.len()
            + self.arrows.len();
        self.spans.sort_by_key(|row| row.start_ns);
        for part in self.spans.chunks(1 << 16).map(<[Span]>::to_vec).collect::<Vec<_>>().iter_mut()
        {
            self.writer.write(part)?;
        }
        self.kernels.sort_by_key(|row| row.start_ns);
        for part in
            self.kernels.chunks(1 << 16).map(<[Kernel]>::to_vec).collect::<Vec<_>>().iter_mut()
        {
            self.writer.write(part)?;
        }
        self.writer.write(&mut self.copies)?;
        self.writer.write(&mut self.collectives)?;
        self.writer.write(&mut self.samples)?;
        self.writer.write(&mut self.waits)?;
        self.writer.write(&mut self.arrows)?;
        self.memory.sort_by_key(|row| row.time_ns);
        self.writer.write(&mut self.memory)?;
        self.writer.process_end(0, self.now_ns, ProcessEnd::Exited(0));
        let end_ns = self.now_ns;
        self.writer.finish()?;
        Ok((end_ns, events as u64))
    }
}
