//! UnoptimizedOp: kernels for which a cheaper alternative is known.

use rustc_hash::{FxHashMap, FxHashSet};
use tprof_rank::base::intervals::Union;
use tprof_rank::{Class, Work, WorkKind};
use tprof_trace::model::{CopyKind, NameId};

use super::kernel_kinds::{KernelKind, is_fp32_matrix, kind};
use crate::finding::Finding;
use crate::rule::{Rule, RuleAbout};
use crate::scene::{Scene, moment_of_call};
use crate::verdict::Verdict;
use crate::words::{by_name, time, times, top};

/// The rule that judges kernels that match known patterns.
pub(super) struct UnoptimizedOp;

/// A pattern of kernels that a cheaper alternative can replace.
struct ReplaceableKernels {
    /// The subject of the finding.
    subject: &'static str,
    what: &'static str,
    advice: &'static str,
    is: fn(&str) -> bool,
    /// Whether copies within the device match too.
    copies: bool,
    /// Whether the pattern only applies to devices with tensor cores: compute capability 7 or
    /// higher.
    tensor_cores: bool,
    /// Whether neighboring kernels can be fused into one. The fused kernel still takes at least as
    /// long as the longest of them.
    fuses: bool,
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
        fuses: false,
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
        fuses: false,
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
        fuses: false,
    },
    ReplaceableKernels {
        subject: "elementwise",
        what: "elementwise operators run one kernel each",
        advice: "Fuse them: torch.compile, a fused optimizer (fused=True), fused normalisations \
                 and activations. Each kernel reads and writes all of its tensors once more.",
        is: |name| name.contains("elementwise_kernel") && !name.contains("direct_copy_kernel"),
        copies: false,
        tensor_cores: false,
        fuses: true,
    },
];

impl Rule for UnoptimizedOp {
    fn about(&self) -> RuleAbout {
        RuleAbout {
            name: "UnoptimizedOp",
            found_if: "kernels of four kinds, by name, see below",
            gain: "time in which only these run: all else remains; of elementwise kernels without \
                   the longest of each run",
            needs: "device work",
            remedy: "lower precision, `channels_last`, fusion with `torch.compile`, fewer copies",
        }
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
                Verdict::no_problem(format!(
                    "no kernel {} is of a kind with a cheaper alternative in this rule",
                    scene.place()
                ))
            }),
            false => Verdict::Found(found),
        }
    }
}

/// Returns for each piece of work a bit mask of the patterns that it matches.
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
    let matching: Vec<usize> =
        (0..fitting.len()).filter(|&work| fits(work)).filter(in_window).collect();
    if matching.is_empty() {
        return None;
    }
    let left = if pattern.fuses { longest_neighbours(scene) } else { FxHashSet::default() };
    let (mut taken, mut saved, mut others) = (Union::default(), Union::default(), Union::default());
    for (at, work) in scene.rank.work.iter().enumerate().filter(|(at, _)| in_window(at)) {
        match (fits(at), left.contains(&at)) {
            (true, false) => {
                taken.add(work.interval());
                saved.add(work.interval());
            }
            (true, true) => {
                taken.add(work.interval());
                others.add(work.interval());
            }
            (false, _) => others.add(work.interval()),
        }
    }
    let taken = taken.finish().intersection(&scene.window);
    // All other work still has to run, so a fix can gain only the time in which no other work runs.
    let gained = saved.finish().intersection(&scene.window).without(&others.finish());
    let rows = matching.iter().map(|&at| &scene.rank.work[at]);
    let names = by_name(scene, rows.clone().map(|work| (work, work.duration_ns)));
    let moments = matching.iter().filter_map(|&at| {
        let call = &scene.rank.calls[scene.rank.launches.call_of(at)?];
        Some(moment_of_call(call, scene.rank.work[at].duration_ns))
    });
    let callers = top(scene, &scene.around(moments), 3);
    let mut seen = format!(
        "{}, {}: {}.",
        times(scene, matching.len(), if pattern.copies { "copies" } else { "kernels" }),
        time(scene, taken.length()),
        top(scene, &names, 2),
    );
    if !callers.is_empty() {
        seen += &format!(" The largest parts are launched by {callers}.");
    }
    if pattern.fuses {
        seen += &format!(
            " A fused kernel takes at least as long as the longest of the neighbours that it replaces; \
             the others take {}.",
            time(scene, gained.length())
        );
    }
    Some(
        scene
            .finding(pattern.what)
            .about(pattern.subject)
            .seen(seen)
            .advice(pattern.advice)
            .bound(gained.length())
            .at(rows.map(|work| scene.work_place(work))),
    )
}

/// Finds sequences of kernels on a stream that one fused kernel could replace. All kernels of a
/// sequence are elementwise or reductions, and no other work lies between them on the stream.
/// Returns the index of the longest kernel of each sequence.
fn longest_neighbours(scene: &Scene<'_>) -> FxHashSet<usize> {
    let mut fusible: FxHashMap<NameId, bool> = FxHashMap::default();
    let mut can_fuse = |work: &Work| {
        let by_name = || {
            matches!(
                kind(scene.rank.name(work.name)),
                KernelKind::Elementwise | KernelKind::Reduction
            )
        };
        work.is_kernel()
            && work.class == Class::Compute
            && *fusible.entry(work.name).or_insert_with(by_name)
    };
    let mut longest: FxHashSet<usize> = FxHashSet::default();
    let mut open: FxHashMap<u32, usize> = FxHashMap::default();
    let rows = &scene.rank.work;
    for (at, work) in rows.iter().enumerate() {
        match (can_fuse(work), open.get(&work.stream)) {
            (true, Some(&known)) if rows[known].duration_ns >= work.duration_ns => {}
            (true, _) => {
                open.insert(work.stream, at);
            }
            (false, _) => longest.extend(open.remove(&work.stream)),
        }
    }
    longest.extend(open.into_values());
    longest
}

/// Whether the devices have tensor cores; true if their compute capability was not recorded.
fn has_tensor_cores(scene: &Scene<'_>) -> bool {
    let mut majors = scene.rank.file.devices().iter().filter_map(|device| device.compute_major);
    majors.all(|major| major >= 7)
}
