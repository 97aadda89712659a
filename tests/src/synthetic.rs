//! Generates traces of training steps, of any length, in the form that Kineto writes.
//!
//! Each step has layers; a layer is an operator with its launch and kernel, some with
//! memory events, a copy or a collective with its arguments. Times follow a fixed
//! pseudo-random sequence, so that a trace is the same every time.

use std::io::{self, Write};

/// Layers of one step.
const LAYERS: u64 = 40;

/// A made-up trace to write.
#[derive(Clone, Copy, Debug)]
pub struct Synthetic {
    /// Number of the rank.
    pub rank: u32,
    /// Ranks of the job.
    pub ranks: u32,
    /// Number of training steps.
    pub steps: u64,
}

/// The contents of a trace; a test compares them with what an import found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Operators, annotations and runtime calls.
    pub spans: u64,
    /// Number of kernels.
    pub kernels: u64,
    /// Number of copies.
    pub copies: u64,
    /// Number of collectives.
    pub collectives: u64,
    /// Number of memory events.
    pub allocations: u64,
}

/// Returns the next number of a pseudorandom sequence (SplitMix64).
pub fn scatter(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mixed = (*state ^ (*state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

impl Synthetic {
    /// Writes the trace and returns the counts of its contents.
    pub fn write(self, out: &mut impl Write) -> io::Result<Counts> {
        let mut page = Page { out, counts: Counts::default(), first: true };
        let pid = 4000 + self.rank;
        writeln!(
            page.out,
            "{{\"schemaVersion\": 1, \"deviceProperties\": [{{\"id\": 0, \"name\": \"Synthetic GPU\", \
             \"totalGlobalMem\": 85899345920, \"computeMajor\": 9, \"computeMinor\": 0, \"numSms\": 132}}], \
             \"distributedInfo\": {{\"backend\": \"nccl\", \"rank\": {}, \"world_size\": {}}}, \
             \"baseTimeNanoseconds\": 1700000000000000000, \"traceEvents\": [",
            self.rank, self.ranks
        )?;
        page.event(format_args!(
            r#""ph":"M","name":"process_name","pid":{pid},"tid":0,"ts":0,"args":{{"name":"python3"}}"#
        ))?;
        let mut random = u64::from(self.rank) + 1;
        let mut now = Moment(1_000_000_000 + random % 1000);
        let mut number = 0;
        for step in 0..self.steps {
            let begin = now;
            for layer in 0..LAYERS {
                number += 1;
                self.layer(&mut page, &mut now, &mut random, layer, number, pid)?;
            }
            page.counts.spans += 1;
            page.event(format_args!(
                r#""ph":"X","cat":"user_annotation","name":"ProfilerStep#{step}","pid":{pid},"tid":{pid},"ts":{begin},"dur":{},"args":{{"External id":{},"Ev Idx":{number}}}"#,
                Moment(now.0 - begin.0), number * 2 + 1
            ))?;
        }
        writeln!(page.out, "\n], \"traceName\": \"synthetic-{}.json\"}}", self.rank)?;
        Ok(page.counts)
    }

    fn layer(
        self,
        page: &mut Page<'_, impl Write>,
        now: &mut Moment,
        random: &mut u64,
        layer: u64,
        number: u64,
        pid: u32,
    ) -> io::Result<()> {
        let names =
            ["aten::mm", "aten::addmm", "aten::relu", "aten::native_layer_norm", "aten::_softmax"];
        let kernels = [
            "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_cublas",
            "void at::native::vectorized_elementwise_kernel<4, at::native::(anonymous namespace)::launch_clamp_scalar, at::detail::Array<char*, 2> >(int, at::native::(anonymous namespace)::launch_clamp_scalar, at::detail::Array<char*, 2>)",
        ];
        let (external, correlation) = (number * 2, number + 100);
        let host_ns = 20_000 + scatter(random) % 10_000;
        let device_ns = 15_000 + scatter(random) % 20_000;
        let start = *now;
        let is_collective = layer % 20 == 19;
        let collective = if is_collective {
            r#""Collective name":"allreduce","In msg nelems":1048576,"Out msg nelems":1048576,"Group size":2,"dtype":"BFloat16","Process Group Name":"0","Process Group Description":"default_pg","#
        } else {
            ""
        };
        let name = if is_collective { "record_param_comms" } else { names[(layer % 5) as usize] };
        page.counts.spans += 2;
        page.event(format_args!(
            r#""ph":"X","cat":"cpu_op","name":"{name}","pid":{pid},"tid":{pid},"ts":{start},"dur":{},"args":{{"External id":{external},"Record function id":{number},{collective}"Sequence number":{layer},"Fwd thread id":0,"Ev Idx":{number},"Input Dims":[[{}, 1024], [1024, 4096], []],"Input type":["c10::BFloat16", "c10::BFloat16", "Scalar"]}}"#,
            Moment(host_ns), 128 << (layer % 4)
        ))?;
        let launch = Moment(start.0 + 5_000);
        page.event(format_args!(
            r#""ph":"X","cat":"cuda_runtime","name":"cudaLaunchKernel","pid":{pid},"tid":{pid},"ts":{launch},"dur":4.125,"args":{{"External id":{external},"cbid":211,"correlation":{correlation}}}"#
        ))?;
        page.event(format_args!(
            r#""ph":"s","id":{correlation},"pid":{pid},"tid":{pid},"ts":{launch},"cat":"ac2g","name":"ac2g""#
        ))?;
        let begin = Moment(launch.0 + 9_000);
        let (kernel, stream) = match is_collective {
            true => {
                ("ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)", 20)
            }
            false => (kernels[(layer % 2) as usize], 7),
        };
        page.counts.kernels += 1;
        page.counts.collectives += u64::from(is_collective);
        page.event(format_args!(
            r#""ph":"X","cat":"kernel","name":"{kernel}","pid":0,"tid":{stream},"ts":{begin},"dur":{},"args":{{"External id":{external},"queued":0,"device":0,"context":1,"stream":{stream},"correlation":{correlation},"registers per thread":168,"shared memory":98304,{collective}"blocks per SM":1.5,"warps per SM":12,"grid":[{}, 1, 1],"block":[128, 1, 1],"est. achieved occupancy %":19}}"#,
            Moment(device_ns), 64 << (layer % 3)
        ))?;
        page.event(format_args!(
            r#""ph":"f","id":{correlation},"pid":0,"tid":{stream},"ts":{begin},"cat":"ac2g","name":"ac2g","bp":"e""#
        ))?;
        if layer.is_multiple_of(4) {
            page.counts.allocations += 1;
            let bytes: i64 = if layer.is_multiple_of(8) { 1 << 20 } else { -(1 << 20) };
            page.event(format_args!(
                r#""ph":"i","cat":"cpu_instant_event","s":"t","name":"[memory]","pid":{pid},"tid":{pid},"ts":{launch},"args":{{"Ev Idx":{number},"Device Type":1,"Device Id":0,"Addr":{},"Bytes":{bytes},"Total Allocated":{},"Total Reserved":2147483648}}"#,
                139_000_000_000_000_u64 + layer * 512, 1_u64 << 30
            ))?;
        }
        if layer == 0 {
            page.counts.copies += 1;
            page.event(format_args!(
                r#""ph":"X","cat":"gpu_memcpy","name":"Memcpy HtoD (Pinned -> Device)","pid":0,"tid":21,"ts":{begin},"dur":80.5,"args":{{"External id":{external},"device":0,"context":1,"stream":21,"correlation":{correlation},"bytes":1048576,"memory bandwidth (GB/s)":13.025788819875776}}"#
            ))?;
        }
        *now = Moment(start.0 + host_ns.max(device_ns) + scatter(random) % 5_000);
        Ok(())
    }
}

/// A time in nanoseconds, which is displayed in microseconds.
#[derive(Clone, Copy)]
struct Moment(u64);

impl std::fmt::Display for Moment {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{:03}", self.0 / 1000, self.0 % 1000)
    }
}

struct Page<'a, W> {
    out: &'a mut W,
    counts: Counts,
    first: bool,
}

impl<W: Write> Page<'_, W> {
    fn event(&mut self, members: std::fmt::Arguments<'_>) -> io::Result<()> {
        let comma = if std::mem::take(&mut self.first) { "" } else { ",\n" };
        write!(self.out, "{comma}  {{{members}}}")
    }
}
