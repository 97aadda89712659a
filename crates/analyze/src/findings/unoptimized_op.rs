//! UnoptimizedOp: kernels for which a cheaper way is known.

use rustc_hash::FxHashMap;
use tprof_trace::model::{CopyKind, NameId};

use super::rule::{Finding, Rule, Verdict};
use super::scene::Scene;
use super::words::{by_name, time, times, top};
use crate::intervals::Cover;
use crate::rank::{Class, Work, WorkKind};

/// Kernels of known patterns.
pub(super) struct UnoptimizedOp;

/// Kernels that something cheaper can replace.
struct Pattern {
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

const PATTERNS: [Pattern; 4] = [
    Pattern {
        subject: "fp32 matrices",
        what: "matrices are multiplied without tensor cores",
        advice: "Use torch.autocast (bf16, fp16), or from compute capability 8 on \
                 torch.set_float32_matmul_precision(\"high\") for TF32; see whether the \
                 results still suffice.",
        is: is_fp32_matrix,
        copies: false,
        tensor_cores: true,
    },
    Pattern {
        subject: "layout",
        what: "convolutions change the layout of their tensors",
        advice: "Keep model and inputs in channels_last: \
                 model.to(memory_format=torch.channels_last), and the input likewise.",
        is: |name| ["nchwToNhwc", "nhwcToNchw"].iter().any(|part| name.contains(part)),
        copies: false,
        tensor_cores: false,
    },
    Pattern {
        subject: "copies",
        what: "tensors are copied within the device",
        advice: "Find the operators that copy, convert or make contiguous, and avoid it: \
                 keep one dtype and layout, use views, write into the output (out=), let \
                 torch.compile fuse the copy.",
        is: |name| name.contains("direct_copy_kernel"),
        copies: true,
        tensor_cores: false,
    },
    Pattern {
        subject: "elementwise",
        what: "elementwise operators run one kernel each",
        advice: "Fuse them: torch.compile, a fused optimizer (fused=True), fused \
                 normalisations and activations; each kernel reads and writes all of its \
                 tensors once more.",
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
        if scene.compute.is_empty() {
            return super::no_device();
        }
        let found: Vec<Finding> =
            PATTERNS.iter().filter_map(|pattern| finding(scene, pattern)).collect();
        match found.is_empty() {
            true => Verdict::clear("no kernel for which a cheaper way is known here"),
            false => Verdict::Found(found),
        }
    }
}

fn finding(scene: &Scene<'_>, pattern: &Pattern) -> Option<Finding> {
    if pattern.tensor_cores && !has_tensor_cores(scene) {
        return None;
    }
    let mut known: FxHashMap<NameId, bool> = FxHashMap::default();
    let mut is_named =
        |name| *known.entry(name).or_insert_with(|| (pattern.is)(scene.rank.name(name)));
    let mut fits = |work: &Work| match work.kind {
        WorkKind::Kernel => work.class == Class::Compute && is_named(work.name),
        WorkKind::Copy(CopyKind::DeviceToDevice) => pattern.copies,
        _ => false,
    };
    let in_window = |at: &u32| scene.work_in_window_ns[*at as usize] > 0;
    let all = (0..scene.rank.work.len() as u32).filter(in_window);
    let fitting: Vec<bool> = scene.rank.work.iter().map(&mut fits).collect();
    let of = |fit: bool| {
        let fitting = &fitting;
        all.clone().filter(move |&at| fitting[at as usize] == fit)
    };
    let these: Vec<usize> = of(true).map(|at| at as usize).collect();
    if these.is_empty() {
        return None;
    }
    let cover = |fit: bool| {
        let intervals = of(fit).map(|at| scene.rank.work[at as usize].interval());
        Cover::of(intervals).intersection(&scene.window)
    };
    let taken = cover(true);
    // All that runs besides has still to run.
    let alone = taken.without(&cover(false));
    let rows = these.iter().map(|&at| &scene.rank.work[at]);
    let names = by_name(scene, rows.clone().map(|work| (work, work.duration_ns)));
    let moments = these.iter().filter_map(|&at| {
        let call = &scene.rank.calls[scene.rank.launches.call_of(at)?];
        Some((call.thread, call.start_ns, scene.rank.work[at].duration_ns))
    });
    let callers = top(scene, &scene.around(&moments.collect::<Vec<_>>()), 3);
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
        Finding::new(pattern.what)
            .about(pattern.subject)
            .seen(seen)
            .advice(pattern.advice)
            .bound(alone.length())
            .at(rows.map(|work| scene.work_place(work))),
    )
}

/// Whether the devices have tensor cores; assumed where they did not say.
fn has_tensor_cores(scene: &Scene<'_>) -> bool {
    let mut majors = scene.rank.file.devices().iter().filter_map(|device| device.compute_major);
    majors.all(|major| major >= 7)
}
