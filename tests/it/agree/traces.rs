//! Generates traces. For each thing that reports count, a seed decides whether it is absent, in the
//! steps, or outside of them.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use tprof_tests::scatter;
use tprof_trace::model::{Process, Span, SpanKind, Thread};
use tprof_trace::{TraceHeader, TraceWriter};

/// The place of an event.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Absent,
    Inside,
    Outside,
}

/// Things that a trace may have: functions that write one of them, at a time in microseconds.
const THINGS: [fn(&mut Trace, u64); 15] = [
    |trace, at| trace.launched(at, "volta_sgemm_128x32_nt", 7, ""),
    |trace, at| trace.launched(at, "ncclDevKernel_AllReduce_Sum_f32_RING_LL", 20, ALL_REDUCE),
    |trace, at| trace.kernel(at, "ncclDevKernel_SendRecv(int)", 20, ""),
    |trace, at| trace.kernel(at, "void my_kernel(int)", 7, ""),
    |trace, at| trace.copied(at, "cudaMemcpyAsync", "Memcpy HtoD (Pinned -> Device)"),
    |trace, at| trace.copied(at, "cudaMemcpy", "Memcpy DtoH (Device -> Pageable)"),
    |trace, at| trace.copied(at, "cudaMemcpyAsync", "Memcpy DtoD (Device -> Device)"),
    |trace, at| trace.host("cuda_runtime", "cudaDeviceSynchronize", at, 300, ""),
    |trace, at| trace.host("cuda_runtime", "cudaMalloc", at, 200, ""),
    |trace, at| trace.host("cpu_op", "aten::mm", at, 250, ""),
    |trace, at| trace.host("cpu_op", "record_param_comms", at, 150, ALL_REDUCE),
    |trace, at| trace.host("user_annotation", LOADER, at, 400, ""),
    |trace, at| trace.host("user_annotation", "forward", at, 400, ""),
    |trace, at| trace.memory(at, 1),
    |trace, at| trace.memory(at, 0),
];

const LOADER: &str = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__";
const ALL_REDUCE: &str =
    r#","Collective name":"allreduce","In msg nelems":1024,"dtype":"Float","Group size":2"#;

/// A trace that is being made.
struct Trace {
    events: String,
    correlation: u64,
    /// Device of the next kernel or copy. With two devices it alternates; otherwise it is the
    /// first.
    device: u64,
    two_devices: bool,
}

impl Trace {
    fn event(&mut self, members: std::fmt::Arguments<'_>) {
        let comma = if self.events.is_empty() { "" } else { ",\n" };
        write!(self.events, "{comma}{{{members}}}").unwrap();
    }

    fn host(&mut self, category: &str, name: &str, at: u64, us: u64, args: &str) {
        self.correlation += 1;
        let correlation = self.correlation;
        self.event(format_args!(
            r#""ph":"X","cat":"{category}","name":"{name}","pid":40,"tid":40,"ts":{at},"dur":{us},"args":{{"correlation":{correlation}{args}}}"#
        ));
    }

    /// Writes a kernel and the call that launched it.
    fn launched(&mut self, at: u64, name: &str, stream: u64, args: &str) {
        self.host("cuda_runtime", "cudaLaunchKernel", at, 5, "");
        self.device_row("kernel", at + 20, name, stream, args);
    }

    /// Writes a kernel whose launch was not recorded.
    fn kernel(&mut self, at: u64, name: &str, stream: u64, args: &str) {
        self.correlation += 1;
        self.device_row("kernel", at, name, stream, args);
    }

    fn copied(&mut self, at: u64, call: &str, name: &str) {
        self.host("cuda_runtime", call, at, 90, "");
        self.device_row("gpu_memcpy", at + 10, name, 20, r#","bytes":4096"#);
    }

    fn device_row(&mut self, category: &str, at: u64, name: &str, stream: u64, args: &str) {
        let (device, correlation) = (self.device, self.correlation);
        self.device = if self.two_devices { 1 - device } else { device };
        self.event(format_args!(
            r#""ph":"X","cat":"{category}","name":"{name}","pid":{device},"tid":{stream},"ts":{at},"dur":70,"args":{{"device":{device},"context":1,"stream":{stream},"correlation":{correlation}{args}}}"#
        ));
    }

    fn memory(&mut self, at: u64, device_type: u32) {
        let device = i64::from(device_type) - 1;
        for (at, bytes) in [(at, 4096), (at + 100, -4096)] {
            self.event(format_args!(
                r#""ph":"i","cat":"cpu_instant_event","s":"t","name":"[memory]","pid":40,"tid":40,"ts":{at},"args":{{"Device Type":{device_type},"Device Id":{device},"Addr":512,"Bytes":{bytes},"Total Allocated":{},"Total Reserved":8192}}"#,
                bytes.max(0)
            ));
        }
    }
}

/// Returns the text of a rank's trace, with events placed by a seed.
fn text(seed: u64, rank: u32, ranks: u32) -> String {
    let mut random = seed * 64 + u64::from(rank);
    let mut next = |of: u64| scatter(&mut random) % of;
    let mut trace =
        Trace { events: String::new(), correlation: 100, device: 0, two_devices: next(3) == 0 };
    let steps = next(4);
    // Steps last 10 ms each; events outside of the steps come after them.
    for step in 0..steps {
        trace.host("user_annotation", &format!("ProfilerStep#{step}"), step * 10_000, 10_000, "");
    }
    for (thing, at) in THINGS.iter().zip(1..) {
        let place = match next(4) {
            0 => Place::Inside,
            1 => Place::Outside,
            _ => Place::Absent,
        };
        for repeat in 0..1 + next(2) {
            let at = at * 500 + repeat * 150;
            match place {
                Place::Absent => {}
                Place::Inside => thing(&mut trace, at),
                Place::Outside => thing(&mut trace, 50_000 + at),
            }
        }
    }
    // Traces of several ranks always contain facts about the job; others do so at random.
    let backend = if next(2) == 0 { "gloo" } else { "nccl" };
    let info = match ranks > 1 || next(2) == 0 {
        true => format!(
            r#""distributedInfo":{{"backend":"{backend}","rank":{rank},"world_size":{ranks}}},"#
        ),
        false => String::new(),
    };
    format!("{{\"schemaVersion\":1,{info}\"traceEvents\":[{}]}}", trace.events)
}

/// Writes the traces into a folder: one, or one for each of several ranks.
pub fn write_all(folder: &Path, number: u64) -> Vec<PathBuf> {
    let mut made = vec![nvtx(&folder.join("nvtx"))];
    for seed in 0..number {
        let ranks = if seed % 5 == 4 { 3 } else { 1 };
        let job = folder.join(format!("job-{seed}"));
        std::fs::create_dir(&job).unwrap();
        for rank in 0..ranks {
            std::fs::write(job.join(format!("rank-{rank}.json")), text(seed, rank, ranks)).unwrap();
        }
        made.push(job);
    }
    made
}

/// Makes a run of NVTX ranges without a device, like a run that tprof records.
fn nvtx(run: &Path) -> PathBuf {
    std::fs::create_dir(run).unwrap();
    let header = TraceHeader { rank: Some(0), ..TraceHeader::default() };
    let mut writer = TraceWriter::create(&run.join("rank-0.tprof"), &header).unwrap();
    let command = writer.name("train");
    writer.process(&Process {
        process: 0,
        pid: 40,
        parent: 1,
        rank: Some(0),
        command,
        exe: command,
        start_ns: 0,
        memory: tprof_trace::model::MemoryRecording::Off,
    });
    writer.thread(&Thread { thread: 0, process: 0, tid: 40, start_ns: 0 });
    let mut spans: Vec<Span> = [("data_load", 0, 34), ("forward", 34, 66)]
        .into_iter()
        .map(|(name, start_ms, ms)| Span {
            name: writer.name(name),
            kind: SpanKind::Nvtx,
            start_ns: start_ms * 1_000_000,
            duration_ns: ms * 1_000_000,
            ..Span::default()
        })
        .collect();
    writer.write(&mut spans).unwrap();
    writer.finish().unwrap();
    run.to_owned()
}
