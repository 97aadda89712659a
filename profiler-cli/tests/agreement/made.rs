//! Makes random runs: a strategy for a plan of the contents, and a function that writes the planned
//! run.

use std::path::Path;

use proptest::collection::vec;
use proptest::prelude::*;
use tprof_trace::model::*;
use tprof_trace::run::RunInfo;
use tprof_trace::{TraceHeader, TraceWriter};

/// Names of kernels of all classes: of kernels that compute, of libraries' kernels that
/// communicate, and names that only resemble the latter.
const KERNELS: [&str; 11] = [
    "void at::native::vectorized_elementwise_kernel<4>(int, float)",
    "ampere_sgemm_128x64_tn",
    "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
    "rcclGenericKernel",
    "mscclKernel_Sum_half",
    "nvshmemi_barrier_kernel",
    "void nvshmemi_reduce_kernel<float>(x)",
    "barrier_on_stream_kernel_threadgroup<(threadgroup_t)1>(int, int)",
    "void vllm::cross_device_reduce_1stage<__half, 8>(vllm::RankData*)",
    "my_nccl_lookalike",
    "void at::native::reduce_kernel<512, 1>(x)",
];

const DIRECTIONS: [CopyKind; 7] = [
    CopyKind::Unknown,
    CopyKind::HostToDevice,
    CopyKind::DeviceToHost,
    CopyKind::DeviceToDevice,
    CopyKind::HostToHost,
    CopyKind::PeerToPeer,
    CopyKind::Memset,
];

const MEMORIES: [MemoryKind; 4] =
    [MemoryKind::Unknown, MemoryKind::Pageable, MemoryKind::Pinned, MemoryKind::Device];

/// Names that the source of a trace gives to a copy.
const COPIES: [&str; 3] = ["", "", "Memcpy HtoD (Pinned -> Device)"];

/// Names of step marks.
const MARKS: [&str; 3] = ["step", "resnet50", "epoch 1"];

/// Time at which host clocks begin, in nanoseconds.
const BOOT: u64 = 7_000_000_000;
/// Wall-clock time of the first collector, in nanoseconds since 1970.
const UNIX: u64 = 1_790_000_000_000_000_000;

/// The plan of a run.
#[derive(Clone, Debug)]
pub struct Plan {
    has_wall_time: bool,
    is_described: bool,
    has_process_files: bool,
    ranks: Vec<Rank>,
}

#[derive(Clone, Debug)]
struct Rank {
    late_ns: u64,
    boot_ns: u64,
    kernels: Vec<KernelPlan>,
    copies: Vec<CopyPlan>,
    steps: Steps,
}

#[derive(Clone, Debug)]
struct KernelPlan {
    process: u32,
    at: (u64, u64),
    stream: u64,
    name: usize,
    is_of_collective: bool,
}

#[derive(Clone, Debug)]
struct CopyPlan {
    process: u32,
    at: (u64, u64),
    kind: usize,
    from: usize,
    to: usize,
    name: usize,
}

#[derive(Clone, Debug)]
enum Steps {
    None,
    /// Annotations: process, start, duration and number of each.
    Annotations(Vec<(u32, u64, u64, u64)>),
    /// Marks: process and time of each, and the index of their name.
    Marks(Vec<(Option<u32>, u64)>, Option<usize>),
}

pub fn plan() -> impl Strategy<Value = Plan> {
    (any::<bool>(), any::<bool>(), any::<bool>(), vec(rank(), 1..4)).prop_map(
        |(has_wall_time, is_described, has_process_files, mut ranks)| {
            if !has_wall_time {
                // The files of an import share one clock.
                let boot_ns = ranks[0].boot_ns;
                ranks.iter_mut().for_each(|rank| rank.boot_ns = boot_ns);
            }
            Plan { has_wall_time, is_described, has_process_files, ranks }
        },
    )
}

fn rank() -> impl Strategy<Value = Rank> {
    let rows = (vec(kernel(), 1..30), vec(copy(), 0..12));
    (0..5_000_000_u64, 0..3_000_000_000_u64, rows, steps()).prop_map(
        |(late_ns, boot_ns, (kernels, copies), steps)| Rank {
            late_ns,
            boot_ns,
            kernels,
            copies,
            steps,
        },
    )
}

fn at() -> impl Strategy<Value = (u64, u64)> {
    (0..3_000_000_u64, 1..400_000_u64)
}

fn kernel() -> impl Strategy<Value = KernelPlan> {
    (0..2_u32, at(), 0..4_u64, 0..KERNELS.len(), any::<bool>()).prop_map(
        |(process, at, stream, name, is_of_collective)| KernelPlan {
            process,
            at,
            stream,
            name,
            is_of_collective,
        },
    )
}

fn copy() -> impl Strategy<Value = CopyPlan> {
    let of = 0..MEMORIES.len();
    (0..2_u32, at(), 0..DIRECTIONS.len(), of.clone(), of, 0..COPIES.len()).prop_map(
        |(process, at, kind, from, to, name)| CopyPlan { process, at, kind, from, to, name },
    )
}

fn steps() -> impl Strategy<Value = Steps> {
    let mark = (prop::option::of(0..2_u32), 0..3_000_000_u64);
    prop_oneof![
        Just(Steps::None),
        vec((0..2_u32, 0..3_000_000_u64, 1..500_000_u64, 0..9_u64), 1..8)
            .prop_map(Steps::Annotations),
        (vec(mark, 1..8), prop::option::of(0..MARKS.len()))
            .prop_map(|(marks, name)| Steps::Marks(marks, name)),
    ]
}

impl Plan {
    /// Writes the run into an empty directory.
    pub fn write(&self, dir: &Path) {
        let mut files = Vec::new();
        for (number, rank) in (0..).zip(&self.ranks) {
            let name = match self.has_process_files {
                true => format!("process-node{number}-{}.tprof", 40 + number),
                false => format!("rank-{number}.tprof"),
            };
            rank.write(&dir.join(&name), number, self.unix_ns(rank));
            files.push(name);
        }
        if self.is_described || !self.has_wall_time {
            // A plan with wall times is a recorded run: the info file is of one collector, and
            // names only the first rank's file. Without them, the run is an import, whose info file
            // names all files.
            let first = &self.ranks[0];
            files.truncate(if self.has_wall_time { 1 } else { files.len() });
            let info = RunInfo {
                version: 1,
                start_ns: first.start_ns(),
                start_unix_ns: self.unix_ns(first),
                finished: true,
                files,
                ..RunInfo::default()
            };
            std::fs::write(dir.join("run.json"), serde_json::to_vec(&info).unwrap()).unwrap();
        }
    }

    fn unix_ns(&self, rank: &Rank) -> u64 {
        if self.has_wall_time { UNIX + rank.late_ns } else { 0 }
    }
}

impl Rank {
    /// Returns when the rank's collector began, on its host's clock.
    fn start_ns(&self) -> u64 {
        BOOT + self.boot_ns
    }

    fn write(&self, path: &Path, number: u32, start_unix_ns: u64) {
        let start_ns = self.start_ns();
        let header =
            TraceHeader { rank: Some(number), start_ns, start_unix_ns, ..TraceHeader::default() };
        let mut writer = TraceWriter::create(path, &header).unwrap();
        for process in 0..2 {
            let command = writer.name("python3 train.py");
            writer.process(&Process {
                process,
                pid: 40 + process,
                parent: 1,
                rank: Some(number),
                command,
                exe: NameId(0),
                start_ns,
                memory: MemoryRecording::Off,
            });
            writer.thread(&Thread { thread: process, process, tid: 40 + process, start_ns });
        }
        self.write_kernels(&mut writer);
        self.write_copies(&mut writer);
        self.write_steps(&mut writer);
        writer.finish().unwrap();
    }

    fn write_kernels(&self, writer: &mut TraceWriter) {
        let (mut kernels, mut collectives) = (Vec::new(), Vec::new());
        for (correlation, row) in (1..).zip(&self.kernels) {
            let start_ns = self.start_ns() + row.at.0;
            kernels.push(Kernel {
                start_ns,
                duration_ns: row.at.1,
                process: row.process,
                device: row.process,
                stream: row.stream,
                name: writer.name(KERNELS[row.name]),
                correlation: Some(correlation),
                ..Kernel::default()
            });
            if row.is_of_collective && row.name == 1 {
                collectives.push(Collective {
                    start_ns,
                    process: row.process,
                    name: writer.name("all_reduce"),
                    correlation: Some(correlation),
                    ..Collective::default()
                });
            }
        }
        writer.write(&mut kernels).unwrap();
        writer.write(&mut collectives).unwrap();
    }

    fn write_copies(&self, writer: &mut TraceWriter) {
        let copy = |row: &CopyPlan| MemoryCopy {
            start_ns: self.start_ns() + row.at.0,
            duration_ns: row.at.1,
            process: row.process,
            device: row.process,
            kind: DIRECTIONS[row.kind],
            from: MEMORIES[row.from],
            to: MEMORIES[row.to],
            name: writer.name(COPIES[row.name]),
            ..MemoryCopy::default()
        };
        let mut copies: Vec<MemoryCopy> = self.copies.iter().map(copy).collect();
        writer.write(&mut copies).unwrap();
    }

    fn write_steps(&self, writer: &mut TraceWriter) {
        match &self.steps {
            Steps::None => {}
            Steps::Annotations(ranges) => {
                let span = |&(process, start, duration_ns, number): &(u32, u64, u64, u64)| Span {
                    start_ns: self.start_ns() + start,
                    duration_ns,
                    process,
                    thread: process,
                    kind: SpanKind::Annotation,
                    name: writer.name(&format!("ProfilerStep#{number}")),
                    ..Span::default()
                };
                let mut spans: Vec<Span> = ranges.iter().map(span).collect();
                writer.write(&mut spans).unwrap();
            }
            Steps::Marks(marks, name) => {
                for (at, &(process, time)) in marks.iter().enumerate() {
                    let name = match name {
                        Some(name) => writer.name(MARKS[*name]),
                        None => writer.name(&format!("step {}", 50 + at)),
                    };
                    let (time_ns, kind) = (self.start_ns() + time, MarkKind::Step);
                    writer.mark(Mark { time_ns, process, name, kind });
                }
            }
        }
    }
}
