//! Finds kernels that move data between ranks, and their operations.
//!
//! A kernel communicates in three cases: a collective of the trace has the kernel's correlation,
//! the kernel's name is in `KERNELS`, or the innermost operator around its launch is in
//! `OPERATORS`. The last case is for libraries whose kernel names tell nothing but whose operator
//! names show the purpose. Operators that both compute and communicate (`symm_mem::fused_…_matmul`)
//! are left out.

pub mod arguments;
pub mod on_host;

use rustc_hash::{FxHashMap, FxHashSet};
use tprof_trace::TraceFile;
use tprof_trace::model::{Collective, NameId, ProcessIndex, SpanKind, SpanOutline, ThreadIndex};

/// The part of a kernel's name that is compared.
enum Pattern {
    /// The function's own name, without namespaces, begins with this.
    Function(&'static str),
    /// The name with namespaces begins with this.
    Path(&'static str),
}
use Pattern::{Function, Path};

/// Kernels that communicate, with the operation's name in `torch.distributed`. The operation is
/// empty if it is unknown, or if the rest of the kernel's name shows it.
const KERNELS: [(Pattern, &str); 30] = [
    // NCCL (src/device), RCCL, MSCCL, and MSCCL++ (namespace mscclpp).
    (Path("nccl"), ""),
    (Path("rccl"), ""),
    (Path("msccl"), ""),
    // NVSHMEM: kernels that its host functions launch (nvshmemi_h_to_d_coll_defs.cuh).
    (Path("nvshmem"), ""),
    (Function("barrier_on_stream_kernel"), "barrier"),
    // PyTorch, torch/csrc/distributed/c10d/symm_mem/CUDASymmetricMemoryOps.cu.
    (Function("multimem_all_reduce_kernel"), "all_reduce"),
    (Function("multimem_one_shot_all_reduce_kernel"), "all_reduce"),
    (Function("multimem_one_shot_reduce_kernel"), "reduce"),
    (Function("multimem_all_gather_kernel"), "all_gather"),
    (Function("one_shot_all_reduce_kernel"), "all_reduce"),
    (Function("two_shot_all_reduce_kernel"), "all_reduce"),
    // PyTorch, torch/csrc/distributed/c10d/intra_node_comm.cu; TensorRT-LLM has the first two as
    // well (cpp/tensorrt_llm/kernels/customAllReduceKernels.cu).
    (Function("oneShotAllReduceKernel"), "all_reduce"),
    (Function("twoShotAllReduceKernel"), "all_reduce"),
    (Function("hybridCubeMeshAllReduceKernel"), "all_reduce"),
    // vLLM (csrc/custom_all_reduce.cuh); SGLang and AITER copied them.
    (Function("cross_device_reduce_"), "all_reduce"),
    // QuickReduce: vLLM, csrc/quickreduce; AITER, csrc/include/quick_all_reduce.cuh.
    (Function("allreduce_prototype_"), "all_reduce"),
    // TensorRT-LLM, cpp/tensorrt_llm/kernels: customAllReduceKernels.cu,
    // customLowPrecisionAllReduceKernels.cu, communicationKernels; and FlashInfer,
    // include/flashinfer/comm/trtllm_*.cuh.
    (Function("lamport_style_one_shot_all_reduce"), "all_reduce"),
    (Function("lowPrecisionTwoShotAllReduceKernel"), "all_reduce"),
    (Function("allreduce_fusion_kernel_"), "all_reduce"),
    (Function("moereduce_allreduce_fusion_kernel_"), "all_reduce"),
    (Function("moeA2ADispatchKernel"), "all_to_all"),
    (Function("moeA2ACombineKernel"), "all_to_all"),
    // FlashInfer, include/flashinfer/comm/trtllm_mnnvl_allreduce.cuh.
    (Function("oneshotAllreduceFusionKernel"), "all_reduce"),
    (Function("twoshotAllreduceKernel"), "all_reduce"),
    // Transformer Engine, comm_gemm_overlap/userbuffers/userbuffers.cu.
    (Function("userbuffers_"), ""),
    (Function("kuserbuffers_"), ""),
    // DeepEP, csrc/kernels: all except for the layout kernels, which compute.
    (Path("deep_ep::intranode::"), "all_to_all"),
    (Path("deep_ep::internode::"), "all_to_all"),
    (Path("deep_ep::internode_ll::"), "all_to_all"),
    // Huawei's HCCL: `hcom_allReduce__503_0_1`.
    (Function("hcom_"), ""),
];

/// Beginnings of the names of operators and annotations whose launches communicate.
const OPERATORS: [&str; 26] = [
    // PyTorch: Ops.cpp and Functional.cpp of torch/csrc/distributed/c10d, and the operator on which
    // every process group records its arguments.
    "c10d::",
    "_c10d_functional::",
    "c10d_functional::",
    "record_param_comms",
    // Prefix of the annotations that process groups put around a call (`nccl:all_reduce`).
    "nccl:",
    "xccl:",
    "ucc:",
    // PyTorch, torch/csrc/distributed/c10d/symm_mem/SymmetricMemory.cpp.
    "symm_mem::multimem_",
    "symm_mem::one_shot_all_reduce",
    "symm_mem::two_shot_all_reduce",
    "symm_mem::reduce_scatter_out",
    "symm_mem::all_to_all_vdev",
    "symm_mem::nvshmem_",
    "symm_mem::nccl_",
    // vLLM, csrc/torch_bindings.cpp and vllm/distributed/parallel_state.py.
    "_C_custom_ar::all_reduce",
    "_C_custom_ar::qr_all_reduce",
    "vllm::all_reduce",
    "vllm::all_gather",
    "vllm::reduce_scatter",
    "vllm::flashinfer_trtllm_fused_allreduce_norm",
    // SGLang, sgl-kernel/csrc/common_extension.cc and sglang/srt/distributed.
    "sgl_kernel::all_reduce",
    "sglang::inplace_all_reduce",
    "sglang::outplace_all_reduce",
    "sglang::reg_all_gather_into_tensor",
    "sglang::reg_reduce_scatter_tensor",
    "sglang::flashinfer_allreduce_residual_rmsnorm",
];

/// Parts of kernel names that show an operation. The order matters: `Reduce` is also a part of
/// longer names, so those come first.
const OPERATIONS: [(&str, &str); 8] = [
    ("allreduce", "all_reduce"),
    ("reducescatter", "reduce_scatter"),
    ("allgather", "all_gather"),
    ("alltoall", "all_to_all"),
    ("broadcast", "broadcast"),
    ("sendrecv", "send_recv"),
    ("barrier", "barrier"),
    ("reduce", "reduce"),
];

/// Returns the operation of a kernel that communicates, by its name; empty if the name doesn't show
/// the operation. `None` if a kernel with this name doesn't communicate.
pub fn kernel_operation(name: &str) -> Option<&'static str> {
    let path = path(name);
    let function = path.rsplit("::").next().unwrap_or(path);
    let is = |pattern: &Pattern| match pattern {
        Function(start) => function.starts_with(start),
        Path(start) => path.starts_with(start),
    };
    let (_, operation) = KERNELS.iter().find(|(pattern, _)| is(pattern))?;
    if !operation.is_empty() {
        return Some(operation);
    }
    let plain: String =
        function.chars().filter(|c| *c != '_').map(|c| c.to_ascii_lowercase()).collect();
    let found = OPERATIONS.iter().find(|(part, _)| plain.contains(part));
    Some(found.map_or("", |(_, operation)| operation))
}

/// Whether kernels that an operator or annotation with this name launches itself communicate.
pub fn is_operator(name: &str) -> bool {
    OPERATORS.iter().any(|start| name.starts_with(start))
}

/// Returns the operation in the name of a process group's annotation on a device: `all_reduce` for
/// `nccl:all_reduce`.
pub fn annotation_operation(name: &str) -> Option<&str> {
    ["nccl:", "xccl:", "ucc:"].iter().find_map(|group| name.strip_prefix(group))
}

/// Returns a function's name with its namespaces but without return type, parameters and template
/// arguments: `vllm::cross_device_reduce_1stage`.
fn path(name: &str) -> &str {
    const UNNAMED: [&str; 2] = ["(anonymous namespace)::", "<unnamed>::"];
    let mut rest = name;
    let mut from = 0;
    loop {
        let end = rest.find(['<', '(']).unwrap_or(rest.len());
        let unnamed = UNNAMED.iter().find(|unnamed| rest[end..].starts_with(**unnamed));
        let Some(unnamed) = unnamed else {
            let whole = &name[from..name.len() - rest.len() + end];
            return whole.rsplit(' ').next().unwrap_or(whole);
        };
        rest = &rest[end + unnamed.len()..];
        from = name.len() - rest.len();
    }
}

/// Decides which kernels of a file communicate.
#[derive(Debug)]
pub struct Communication<'a> {
    file: &'a TraceFile,
    /// Correlations of launches that belong to collectives, or that communicating operators made.
    launches: FxHashSet<(ProcessIndex, u64)>,
    names: FxHashMap<NameId, bool>,
}

impl<'a> Communication<'a> {
    /// Prepares to classify the kernels of a file, given its collectives. Reads the file's host
    /// spans if one of its names is that of a communicating operator.
    pub fn of(file: &'a TraceFile, collectives: &[Collective]) -> Communication<'a> {
        let mut launches: FxHashSet<(ProcessIndex, u64)> =
            collectives.iter().filter_map(|row| Some((row.process, row.correlation?))).collect();
        launches.extend(launches_of_operators(file));
        Communication { file, launches, names: FxHashMap::default() }
    }

    /// Like [`Self::of`], but reads the collectives from the file.
    pub fn read(file: &'a TraceFile) -> Communication<'a> {
        let collectives: Vec<Collective> = file.blocks::<Collective>().flatten().collect();
        Communication::of(file, &collectives)
    }

    /// Whether a kernel communicates.
    #[inline]
    pub fn holds(&mut self, process: ProcessIndex, correlation: Option<u64>, name: NameId) -> bool {
        if correlation.is_some_and(|number| self.launches.contains(&(process, number))) {
            return true;
        }
        let file = self.file;
        let by_name = || kernel_operation(file.name(name)).is_some();
        *self.names.entry(name).or_insert_with(by_name)
    }
}

/// A span of a thread, for finding the innermost operator around a call.
struct Nested {
    thread: ThreadIndex,
    start_ns: u64,
    end_ns: u64,
    what: SpanRole,
}

enum SpanRole {
    /// An operator or annotation, and whether it communicates.
    Operator(bool),
    /// A call with a correlation.
    Call(ProcessIndex, u64),
}

/// Returns the launches whose innermost operator communicates.
fn launches_of_operators(file: &TraceFile) -> Vec<(ProcessIndex, u64)> {
    let communicates: FxHashSet<NameId> =
        file.names().filter(|(_, name)| is_operator(name)).map(|(id, _)| id).collect();
    if communicates.is_empty() {
        return Vec::new();
    }
    let is_named =
        |row: &SpanOutline| matches!(row.kind, SpanKind::Operator | SpanKind::Annotation);
    // The times in which each thread was in a communicating operator. Spans outside of these times
    // need not be examined.
    let mut within: FxHashMap<ThreadIndex, Vec<(u64, u64)>> = FxHashMap::default();
    for block in file.blocks::<SpanOutline>() {
        for row in block.iter().filter(|row| is_named(row) && communicates.contains(&row.name)) {
            let end_ns = row.start_ns.saturating_add(row.duration_ns);
            within.entry(row.thread).or_default().push((row.start_ns, end_ns));
        }
    }
    within.values_mut().for_each(|spans| {
        spans.sort_unstable();
        spans.dedup_by(|next, last| {
            let joined = next.0 <= last.1;
            last.1 = if joined { last.1.max(next.1) } else { last.1 };
            joined
        });
    });
    let lies_within = |row: &SpanOutline| {
        within.get(&row.thread).is_some_and(|spans| {
            let after = spans.partition_point(|span| span.0 <= row.start_ns);
            after > 0 && row.start_ns <= spans[after - 1].1
        })
    };
    let mut nested = Vec::new();
    for block in file.blocks::<SpanOutline>() {
        for row in block.iter().filter(|row| lies_within(row)) {
            let what = match (row.kind, row.correlation) {
                (SpanKind::Runtime | SpanKind::Driver, Some(number)) => {
                    SpanRole::Call(row.process, number)
                }
                (SpanKind::Operator, _) => SpanRole::Operator(communicates.contains(&row.name)),
                // Only the annotations of process groups tell the purpose of the work that is
                // launched in them. Annotations of the user don't count.
                (SpanKind::Annotation, _) if communicates.contains(&row.name) => {
                    SpanRole::Operator(true)
                }
                _ => continue,
            };
            let (start_ns, thread) = (row.start_ns, row.thread);
            let end_ns = start_ns.saturating_add(row.duration_ns);
            nested.push(Nested { thread, start_ns, end_ns, what });
        }
    }
    innermost(nested)
}

fn innermost(mut nested: Vec<Nested>) -> Vec<(ProcessIndex, u64)> {
    nested.sort_by_key(|row| {
        let is_call = matches!(row.what, SpanRole::Call(..));
        (row.thread, row.start_ns, std::cmp::Reverse(row.end_ns), is_call)
    });
    let mut open: Vec<(ThreadIndex, u64, bool)> = Vec::new();
    let mut launches = Vec::new();
    for row in nested {
        while open
            .last()
            .is_some_and(|(thread, end_ns, _)| *thread != row.thread || *end_ns < row.end_ns)
        {
            open.pop();
        }
        match row.what {
            SpanRole::Operator(communicates) => open.push((row.thread, row.end_ns, communicates)),
            SpanRole::Call(process, number) if open.last().is_some_and(|open| open.2) => {
                launches.push((process, number));
            }
            SpanRole::Call(..) => (),
        }
    }
    launches
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_that_communicate_are_recognised_by_name() {
        for (name, operation) in [
            (
                "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
                "all_reduce",
            ),
            ("ncclKernel_ReduceScatter_RING_LL_Sum_float(ncclWorkElem)", "reduce_scatter"),
            ("ncclDevKernel_Generic(x)", ""),
            ("ncclSymkRun", ""),
            ("rcclX", ""),
            ("mscclKernel_Sum_half", ""),
            ("void mscclpp::executionKernel<mscclpp::LL16Packet>(int, void*)", ""),
            (
                "void (anonymous namespace)::multimem_all_reduce_kernel<c10::BFloat16, 16>(c10::BFloat16*, unsigned long, unsigned int**)",
                "all_reduce",
            ),
            (
                "void <unnamed>::multimem_all_reduce_kernel<c10::BFloat16, (int)16>(T1 *)",
                "all_reduce",
            ),
            (
                "void (anonymous namespace)::two_shot_all_reduce_kernel_inplace<c10::BFloat16, 16, 8>()",
                "all_reduce",
            ),
            (
                "void vllm::cross_device_reduce_1stage<__half, 8>(vllm::RankData*, vllm::RankSignals)",
                "all_reduce",
            ),
            (
                "void quickreduce::allreduce_prototype_twoshot<AllReduceTwoshot<__half, CodecQ4<__half,8>, true>, __half>(x)",
                "all_reduce",
            ),
            (
                "void flashinfer::trtllm_allreduce_fusion::allreduce_fusion_kernel_oneshot_lamport<(flashinfer::trtllm_allreduce_fusion::AllReduceFusionPattern)1, __nv_bfloat16, 8>(x)",
                "all_reduce",
            ),
            (
                "void tensorrt_llm::kernels::oneShotAllReduceKernel<float, 8, true, false>(AllReduceParams)",
                "all_reduce",
            ),
            ("void deep_ep::intranode::dispatch<8, 768, 8192>(int4*, float*)", "all_to_all"),
            ("userbuffers_fp16_sum_inplace_gpu_rw_ag", ""),
            ("barrier_on_stream_kernel_threadgroup<(threadgroup_t)1>(int, int)", "barrier"),
            ("hcom_allReduce__503_0_1", "all_reduce"),
        ] {
            assert_eq!(kernel_operation(name), Some(operation), "{name}");
        }
    }

    #[test]
    fn kernels_that_only_resemble_collectives_do_not_communicate() {
        for name in [
            "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float>>(x)",
            "void at::native::batch_norm_SyncStats",
            "void at::native::index_elementwise_kernel<128, 4, cross_device_reduce_1stage>(x)",
            "gemm_one_shot_all_reduce_kernel",
            "my_all_reduce_reference(float*)",
            "deep_ep::layout::get_dispatch_layout",
            "triton_red_fused_sum_0",
            "broadcast_kernel",
            "",
            "(",
            "<",
        ] {
            assert_eq!(kernel_operation(name), None, "{name}");
        }
    }

    #[test]
    fn operators_that_also_compute_do_not_count_as_communication() {
        for name in ["c10d::allreduce_", "symm_mem::multimem_all_reduce_", "nccl:all_gather"] {
            assert!(is_operator(name), "{name}");
        }
        for name in [
            "symm_mem::fused_all_gather_matmul",
            "symm_mem::_async_input_mm",
            "aten::all",
            "my::all_reduce",
            "aten::mm",
        ] {
            assert!(!is_operator(name), "{name}");
        }
    }
}
