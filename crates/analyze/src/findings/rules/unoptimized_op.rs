//! UnoptimizedOp: kernels for which a cheaper way is known.

use rustc_hash::FxHashMap;
use tprof_trace::model::{CopyKind, NameId};

use crate::base::intervals::Union;
use crate::findings::finding::Finding;
use crate::findings::rule::Rule;
use crate::findings::scene::{Scene, moment_of_call};
use crate::findings::verdict::Verdict;
use crate::findings::words::{by_name, time, times, top};
use crate::rank::{Class, Work, WorkKind};

/// Kernels of known patterns.
pub(super) struct UnoptimizedOp;

/// Kernels that something cheaper can replace.
struct ReplaceableKernels {
    /// What they are.
    subject: &'static str,
    what: &'static str,
    advice: &'static str,
    is: fn(&str) -> bool,
    /// Copies within the device count too.
    copies: bool,
    /// Only where the device has tensor cores: compute capability 7 on.
    tensor_cores: bool,
}

const PATTERNS: [ReplaceableKernels; 4] = [
    ReplaceableKernels {
        subject: "fp32 matrices",
        what: "matrices are multiplied without tensor cores",
        advice: "Use torch.autocast (bf16, fp16), or from compute capability 8 on \
                 torch.set_float32_matmul_precision(\"high\") for TF32. Check that the results \
                 still suffice.",
        is: is_fp32_matrix,
        copies: false,
        tensor_cores: true,
    },
    ReplaceableKernels {
        subject: "layout",
        what: "convolutions change the layout of their tensors",
        advice: "Keep model and inputs in channels_last: \
                 model.to(memory_format=torch.channels_last), and the input likewise.",
        is: |name| {
            ["nchwToNhwc", "nhwcToNchw", "batched_transpose_"]
                .iter()
                .any(|part| name.contains(part))
        },
        copies: false,
        tensor_cores: false,
    },
    ReplaceableKernels {
        subject: "copies",
        what: "tensors are copied within the device",
        advice: "Find the operators that copy, convert or make contiguous. Keep one dtype and \
                 layout, use views, write into the output (out=), or let torch.compile fuse the \
                 copy.",
        is: |name| name.contains("direct_copy_kernel"),
        copies: true,
        tensor_cores: false,
    },
    ReplaceableKernels {
        subject: "elementwise",
        what: "elementwise operators run one kernel each",
        advice: "Fuse them: torch.compile, a fused optimizer (fused=True), fused normalisations \
                 and activations. Each kernel reads and writes all of its tensors once more.",
        is: |name| name.contains("elementwise_kernel") && !name.contains("direct_copy_kernel"),
        copies: false,
        tensor_cores: false,
    },
];

/// Kernels of cuBLAS and cuDNN, and of CUTLASS, that multiply in fp32 on the
/// ordinary units. (`s884`, `s1688`, `tensorop` and `tf32` name tensor cores.)
fn is_fp32_matrix(name: &str) -> bool {
    let tensor = ["tensorop", "tf32", "s884", "s1688", "s16816", "h884", "h1688"];
    let plain = ["sgemm", "scudnn", "simt_gemm", "gemmSN"];
    plain.iter().any(|part| name.contains(part)) && !tensor.iter().any(|part| name.contains(part))
}

impl Rule for UnoptimizedOp {
    fn name(&self) -> &'static str {
        "UnoptimizedOp"
    }

    fn judge(&self, scene: &Scene<'_>) -> Verdict {
        if let Some(verdict) = scene.no_device() {
            return verdict;
        }
        let known = fitting(scene);
        let found: Vec<Finding> =
            (0..PATTERNS.len()).filter_map(|pattern| finding(scene, pattern, &known)).collect();
        match found.is_empty() {
            true => scene.no_compute().unwrap_or_else(|| {
                Verdict::clear(format!(
                    "no kernel {} is of a kind with a cheaper alternative in this rule",
                    scene.place()
                ))
            }),
            false => Verdict::Found(found),
        }
    }
}

/// For each piece of work, the patterns that it fits, as bits.
fn fitting(scene: &Scene<'_>) -> Vec<u8> {
    let bits = |fits: &dyn Fn(&ReplaceableKernels) -> bool| {
        let one = |(pattern, at): (&ReplaceableKernels, u32)| u8::from(fits(pattern)) << at;
        PATTERNS.iter().zip(0..).map(one).sum::<u8>()
    };
    let of_copy = bits(&|pattern| pattern.copies);
    let of_name = |name| {
        let name = scene.rank.name(name);
        bits(&|pattern| (pattern.is)(name))
    };
    let mut known: FxHashMap<NameId, u8> = FxHashMap::default();
    let of_work = |work: &Work| match work.kind {
        WorkKind::Kernel if work.class == Class::Compute => {
            *known.entry(work.name).or_insert_with(|| of_name(work.name))
        }
        WorkKind::Copy { kind: CopyKind::DeviceToDevice, .. } => of_copy,
        _ => 0,
    };
    scene.rank.work.iter().map(of_work).collect()
}

fn finding(scene: &Scene<'_>, at: usize, fitting: &[u8]) -> Option<Finding> {
    let pattern = &PATTERNS[at];
    if pattern.tensor_cores && !has_tensor_cores(scene) {
        return None;
    }
    let fits = |work: usize| fitting[work] & 1 << at != 0;
    let in_window = |work: &usize| scene.work_in_window_ns[*work] > 0;
    let these: Vec<usize> =
        (0..fitting.len()).filter(|&work| fits(work)).filter(in_window).collect();
    if these.is_empty() {
        return None;
    }
    let (mut taken, mut others) = (Union::default(), Union::default());
    for (at, work) in scene.rank.work.iter().enumerate().filter(|(at, _)| in_window(at)) {
        if fits(at) { &mut taken } else { &mut others }.add(work.interval());
    }
    let taken = taken.finish().intersection(&scene.window);
    // All that runs besides has still to run.
    let alone = taken.without(&others.finish());
    let rows = these.iter().map(|&at| &scene.rank.work[at]);
    let names = by_name(scene, rows.clone().map(|work| (work, work.duration_ns)));
    let moments = these.iter().filter_map(|&at| {
        let call = &scene.rank.calls[scene.rank.launches.call_of(at)?];
        Some(moment_of_call(call, scene.rank.work[at].duration_ns))
    });
    let callers = top(scene, &scene.around(moments), 3);
    let mut seen = format!(
        "{}, {}: {}.",
        times(scene, these.len(), if pattern.copies { "copies" } else { "kernels" }),
        time(scene, taken.length()),
        top(scene, &names, 2),
    );
    if !callers.is_empty() {
        seen += &format!(" Most are launched by {callers}.");
    }
    Some(
        scene
            .finding(pattern.what)
            .about(pattern.subject)
            .seen(seen)
            .advice(pattern.advice)
            .bound(alone.length())
            .at(rows.map(|work| scene.work_place(work))),
    )
}

/// Whether the devices have tensor cores; assumed where it was not recorded.
fn has_tensor_cores(scene: &Scene<'_>) -> bool {
    let mut majors = scene.rank.file.devices().iter().filter_map(|device| device.compute_major);
    majors.all(|major| major >= 7)
}
