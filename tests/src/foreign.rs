//! Generates traces of old PyTorch versions and of other accelerators, in the form that their
//! profilers write. Tests know the expected figures, because this module chooses all times, in
//! whole microseconds.

use std::fmt::Write;
use std::path::Path;

/// A trace that is being made.
#[derive(Debug, Default)]
pub struct Foreign {
    events: Vec<String>,
}

/// The `pid` and `tid` of an event, as JSON.
pub type Place<'a> = (&'a str, &'a str);

impl Foreign {
    /// Adds an event of these members.
    pub fn event(&mut self, members: &str) {
        self.events.push(format!("{{{members}}}"));
    }

    /// Adds a complete event.
    pub fn span(
        &mut self,
        (category, name): (&str, &str),
        (pid, tid): Place<'_>,
        (start, duration): (u64, u64),
        args: &str,
    ) {
        self.event(&format!(
            r#""ph":"X","cat":"{category}","name":"{name}","pid":{pid},"tid":{tid},"ts":{start},"dur":{duration},"args":{{{args}}}"#
        ));
    }

    /// Writes the trace.
    pub fn write(&self, path: &Path) {
        let mut text = String::from("{\"schemaVersion\": 1, \"traceEvents\": [\n");
        text += &self.events.join(",\n");
        let _ = write!(text, "\n]}}");
        std::fs::write(path, text).unwrap();
    }
}

/// Steps of a training job as PyTorch 1.8 writes them: `tid` as text, operators and
/// annotations of one category, `[memory]` without addresses, arrows named `launch`.
///
/// In each step of 100 ms, the DataLoader takes the first 30 ms. `aten::linear` takes 20 ms; its
/// `aten::addmm` takes 10 ms of them and launches a kernel of 25 ms. `aten::add_`, in the
/// optimizer's 20 ms, takes 4 ms and launches a kernel of 5 ms. 1.5 GiB are live at most.
pub fn first_kineto(steps: u64) -> Foreign {
    let mut made = Foreign::default();
    for (pid, label) in [("25738", "CPU"), ("0", "GPU 0")] {
        made.event(&format!(
            r#""name":"process_name","ph":"M","ts":1,"pid":{pid},"tid":0,"args":{{"name":"python"}}"#
        ));
        made.event(&format!(
            r#""name":"process_labels","ph":"M","ts":1,"pid":{pid},"tid":0,"args":{{"labels":"{label}"}}"#
        ));
    }
    const MAIN: Place<'_> = ("25738", "\"25738\"");
    const MIB: i64 = 1 << 20;
    for step in 0..steps {
        let base = 1_000_000 + step * 100_000;
        let mut external = step * 100;
        let mut host = |name: &str, start: u64, duration: u64| {
            external += 1;
            let args = format!(
                r#""Device":25738,"External id":{external},"Trace name":"PyTorch Profiler","Trace iteration":0"#
            );
            made.span(("Operator", name), MAIN, (base + start, duration), &args);
        };
        host(&format!("ProfilerStep#{step}"), 0, 100_000);
        host("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 0, 30_000);
        host("aten::linear", 30_000, 20_000);
        host("aten::addmm", 32_000, 10_000);
        host("Optimizer.step#SGD.step", 70_000, 20_000);
        host("aten::add_", 72_000, 4_000);
        for (at, (call, kernel, length)) in
            [(34_000, 40_000, 25_000), (73_000, 75_000, 5_000)].into_iter().enumerate()
        {
            let id = step * 2 + at as u64 + 1;
            let (call, kernel) = (base + call, base + kernel);
            let args = format!(
                r#""cbid":211,"correlation":{id},"external id":{external},"external ts":{call}"#
            );
            made.span(("Runtime", "cudaLaunchKernel"), MAIN, (call, 1_000), &args);
            made.event(&format!(
                r#""ph":"s","id":{id},"pid":25738,"tid":25738,"ts":{call},"cat":"async","name":"launch""#
            ));
            let args = format!(
                r#""queued":0,"device":0,"context":1,"stream":7,"correlation":{id},"external id":{external},"registers per thread":16,"shared memory":0,"grid":[8,1,1],"block":[128,1,1]"#
            );
            let (name, place) = (["gemm", "vectorized_add"][at], ("0", "\"stream 7\""));
            made.span(("Kernel", name), place, (kernel, length), &args);
            made.event(&format!(
                r#""ph":"f","id":{id},"pid":0,"tid":"stream 7","ts":{kernel},"cat":"async","name":"launch","bp":"e""#
            ));
        }
        for (at, bytes) in
            [(33_000, 1024 * MIB), (36_000, 512 * MIB), (80_000, -1024 * MIB), (81_000, -512 * MIB)]
        {
            made.event(&format!(
                r#""ph":"i","s":"t","name":"[memory]","pid":25738,"tid":25738,"ts":{},"args":{{"Device Type":1,"Device Id":0,"Bytes":{bytes}}}"#,
                base + at
            ));
        }
    }
    made.event(r#""name":"Record Window End","ph":"i","s":"g","pid":"","tid":"","ts":9000000"#);
    made
}

/// Steps on an accelerator whose rows have these categories of calls, kernels and copies, and these
/// names of kernels and copies.
///
/// In each step of 100 ms, a copy takes 10 ms, and right after it a kernel on another stream takes
/// 40 ms. The device is idle for the rest. Only `pid` and `tid` tell where kernels ran.
pub fn accelerator(
    steps: u64,
    [runtime, kernel, copy]: [&str; 3],
    [kernel_name, copy_name]: [&str; 2],
) -> Foreign {
    let mut made = Foreign::default();
    for step in 0..steps {
        let base = 1_000_000 + step * 100_000;
        let main = ("900", "900");
        let name = format!("ProfilerStep#{step}");
        made.span(("user_annotation", &name), main, (base, 100_000), "");
        made.span(("cpu_op", "aten::mm"), main, (base + 5_000, 20_000), "");
        for (at, (category, name), start, length) in
            [(0, (copy, copy_name), 20_000, 10_000), (1, (kernel, kernel_name), 30_000, 40_000)]
        {
            let id = step * 2 + at + 1;
            let call = (base + 10_000 + at * 1_000, 500);
            made.span((runtime, "launch"), main, call, &format!(r#""correlation":{id}"#));
            let stream = 3 + at;
            let bytes = if at == 0 { ",\"bytes\":1000000" } else { "" };
            let args = format!(r#""stream":{stream},"correlation":{id}{bytes}"#);
            let place = ("2", &*stream.to_string());
            made.span((category, name), place, (base + start, length), &args);
        }
        // Kineto repeats the process and thread of its own spans for each span.
        for _ in 0..1000 {
            made.event(&format!(
                r#""name":"process_sort_index","ph":"M","ts":{base},"pid":"Spans","tid":0,"args":{{"sort_index":536870912}}"#
            ));
        }
    }
    made
}

/// A step of inference with tensor parallelism. Of its 100 ms of kernels, symmetric memory's
/// all-reduce takes 20 ms, vLLM's takes 10 ms, and an unnamed all-reduce that
/// `_C_custom_ar::all_reduce` launches takes 5 ms. The other 65 ms compute: 60 ms in a product, and
/// 5 ms in a copy that a collective asks for.
pub fn own_all_reduces() -> Foreign {
    let mut made = Foreign::default();
    let main = ("900", "900");
    let mut end = 2_000_000;
    for (at, (operator, kernel, length)) in [
        ("aten::mm", "gemm", 60_000),
        (
            "symm_mem::multimem_all_reduce_",
            "void (anonymous namespace)::multimem_all_reduce_kernel<c10::BFloat16, 16>(c10::BFloat16*, unsigned long)",
            20_000,
        ),
        ("vllm::op", "void vllm::cross_device_reduce_1stage<__half, 8>(vllm::RankData*)", 10_000),
        ("_C_custom_ar::all_reduce", "fast_sum_of_peers", 5_000),
        ("c10d::allgather_", "void at::native::elementwise_kernel<128, 4>(int)", 5_000),
    ]
    .into_iter()
    .enumerate()
    {
        let (id, start) = (at as u64 + 1, 1_000_000 + at as u64 * 1_000);
        made.span(("cpu_op", operator), main, (start, 900), "");
        if operator.starts_with("c10d") {
            made.span(("cpu_op", "aten::copy_"), main, (start + 50, 800), "");
        }
        let args = format!(r#""correlation":{id}"#);
        made.span(("cuda_runtime", "cudaLaunchKernel"), main, (start + 100, 10), &args);
        let args = format!(r#""device":0,"stream":7,"correlation":{id}"#);
        made.span(("kernel", kernel), ("0", "7"), (end, length), &args);
        end += length;
    }
    made
}

/// A step of a second, cut out of a longer trace. Its work was launched at once, waits 493 ms for
/// an event from before the cut, and then keeps the device busy.
pub fn cropped() -> Foreign {
    let mut made = Foreign::default();
    let (main, begin) = (("900", "900"), 1_000_000);
    made.span(("user_annotation", "ProfilerStep#7"), main, (begin, 1_000_000), "");
    for (id, start, length) in [(1, 493_000, 207_000), (2, 700_000, 300_000)] {
        let args = format!(r#""correlation":{id}"#);
        made.span(("cuda_runtime", "cudaLaunchKernel"), main, (begin + id * 10, 5), &args);
        let args = format!(r#""device":0,"stream":7,"correlation":{id}"#);
        made.span(("kernel", "gemm"), ("0", "7"), (begin + start, length), &args);
    }
    made
}

/// Steps of one of two ranks that reduce two buckets over gloo, as PyTorch 2 writes them: the
/// reductions run on gloo's own threads, and begin when a thread takes them up.
///
/// The rank first computes for `computes_us` in each step of 100 ms. Then both buckets wait for the
/// other rank, and end 70 and 71 ms after the step's begin.
pub fn gloo(steps: u64, computes_us: u64) -> Foreign {
    let mut made = Foreign::default();
    for step in 0..steps {
        let base = 1_000_000 + step * 100_000;
        let main = ("900", "900");
        let name = format!("ProfilerStep#{step}");
        made.span(("user_annotation", &name), main, (base, 100_000), "");
        made.span(("cpu_op", "aten::mm"), main, (base, computes_us), "");
        for (at, elements) in [(0, 1_048_576), (1, 4_096)] {
            let begins = computes_us + 100 * at;
            let call = (base + begins - 50, 40);
            let args =
                format!(r#""Input type":["TensorList",""],"Input Dims":[[[{elements}]],[]]"#);
            made.span(("cpu_op", "c10d::allreduce_"), main, call, &args);
            let args = format!(r#""Input type":["float"],"Input Dims":[[{elements}]]"#);
            let place = ("900", &*(901 + at).to_string());
            let work = (base + begins, 70_000 + 1_000 * at - begins);
            made.span(("user_annotation", "gloo:all_reduce"), place, work, &args);
        }
    }
    made
}
