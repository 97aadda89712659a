//! Maps an event's category to its meaning.
//!
//! The names come from Kineto's list of activities (pytorch/kineto,
//! `libkineto/include/ActivityType.h`, up to `XPU_SYNC`) and from Kineto's first version, which
//! PyTorch 1.8 to 1.10 contained (`libkineto/src/output_json.cpp`). PyTorch's
//! `deviceTypeFromActivity` (`torch/csrc/profiler/kineto_shim.cpp`) defines which names belong to a
//! device. Accelerators of all vendors share the categories, so nothing here depends on a vendor.

use tprof_trace::model::{DeviceSpanKind, SpanKind};
use tprof_trace::pytorch::{LOADER_FETCH, OPTIMIZER_STEP, PROFILER_STEP};

/// Kinds of events, by category.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Category {
    /// A span of a host thread, and whether the kind implies the category.
    Span(SpanKind, bool),
    /// An operator or an annotation. The first Kineto had one category for both.
    OperatorOrAnnotation,
    Kernel,
    Copy,
    /// A kernel or a copy. Their names tell them apart.
    KernelOrCopy,
    Synchronization,
    /// An interval on a device that is not work.
    DeviceSpan(DeviceSpanKind),
    /// An annotation's span on a device if it lies on a stream, otherwise a host span.
    User,
}

use Category::{Kernel, KernelOrCopy, OperatorOrAnnotation, Synchronization, User};
use DeviceSpanKind as OnDevice;
use SpanKind::{Annotation, Driver, Nvtx, Operator, Other, Overhead, Python, Runtime};

/// All known categories. An event of any other category becomes a host span that stores the
/// category's text.
const CATEGORIES: [(&str, Category); 37] = [
    ("cpu_op", Category::Span(Operator, true)),
    ("user_annotation", Category::Span(Annotation, true)),
    ("python_function", Category::Span(Python, true)),
    ("overhead", Category::Span(Overhead, true)),
    ("nvtx", Category::Span(Nvtx, true)),
    // Library calls of a device. According to Kineto's own comment, `hpu_op` is such a call.
    ("cuda_runtime", Category::Span(Runtime, true)),
    ("cuda_driver", Category::Span(Driver, true)),
    ("hip_runtime", Category::Span(Runtime, false)),
    ("xpu_runtime", Category::Span(Runtime, false)),
    ("xpu_driver", Category::Span(Driver, false)),
    ("mtia_runtime", Category::Span(Runtime, false)),
    ("glow_runtime", Category::Span(Runtime, false)),
    ("hpu_op", Category::Span(Runtime, false)),
    ("privateuse1_runtime", Category::Span(Runtime, false)),
    ("privateuse1_driver", Category::Span(Driver, false)),
    // Work of devices.
    ("kernel", Kernel),
    ("concurrent_kernel", Kernel),
    ("gpu_memcpy", Category::Copy),
    ("gpu_memset", Category::Copy),
    // Work of MTIA's control processors: kernels, and transfers named `dma…`.
    ("mtia_ccp_events", KernelOrCopy),
    ("cuda_sync", Synchronization),
    ("xpu_sync", Synchronization),
    ("privateuse1_sync", Synchronization),
    // Intervals on devices that are not work.
    ("gpu_user_annotation", Category::DeviceSpan(OnDevice::Annotation)),
    ("cuda_profiler_range", Category::DeviceSpan(OnDevice::Counters)),
    ("xpu_scope_profiler", Category::DeviceSpan(OnDevice::Counters)),
    ("cuda_event", Category::DeviceSpan(OnDevice::Other)),
    ("mtia_insight", Category::DeviceSpan(OnDevice::Other)),
    ("mtia_workloadd", Category::DeviceSpan(OnDevice::Other)),
    // Categories of the first Kineto.
    ("Operator", OperatorOrAnnotation),
    ("Runtime", Category::Span(Runtime, false)),
    ("Kernel", Kernel),
    ("Memcpy", Category::Copy),
    ("Memset", Category::Copy),
    ("User", User),
    // Events on the host that are stored unchanged.
    ("Trace", Category::Span(Other, false)),
    ("collective_comm", Category::Span(Other, false)),
];

/// Returns the meaning of a category.
pub(crate) fn category(text: &[u8]) -> Category {
    let known = CATEGORIES.iter().find(|(name, _)| name.as_bytes() == text);
    known.map_or(Category::Span(Other, false), |(_, category)| *category)
}

/// Prefixes of the annotations that PyTorch itself makes. In versions with one category for
/// annotations and operators, only these prefixes tell them apart.
const ANNOTATIONS: [&[u8]; 8] = [
    PROFILER_STEP.as_bytes(),
    LOADER_FETCH.as_bytes(),
    b"enumerate(DataPipe)#",
    OPTIMIZER_STEP.as_bytes(),
    b"Optimizer.zero_grad#",
    b"DistributedDataParallel.forward",
    b"DataParallel.forward",
    b"nccl:",
];

/// Whether a span of the first Kineto's category `Operator` is an annotation.
pub(crate) fn is_annotation(name: &[u8]) -> bool {
    ANNOTATIONS.iter().any(|start| name.starts_with(start))
}

/// Whether device work is a copy, judged by its name.
pub(crate) fn is_copy(name: &[u8]) -> bool {
    [&b"dma"[..], b"Memcpy", b"Memset"].iter().any(|start| name.starts_with(start))
}

/// Whether an arrow leads from a launch to its work, by category and name. The cases are, in order:
/// the first Kineto, PyTorch 1.9 and 1.10, PyTorch 1.11 and 1.12, and later versions.
pub(crate) fn is_launch_arrow(category: &[u8], name: &[u8]) -> bool {
    match category {
        b"async" => name == b"launch",
        b"async_gpu" | b"async_cpu_to_gpu" | b"ac2g" => true,
        _ => false,
    }
}

/// Returns the stream of a `tid` like `stream 7` or `stream 7 user`, as the first Kineto wrote it.
pub(crate) fn stream_of(tid: &[u8]) -> Option<u64> {
    let rest = tid.strip_prefix(b"stream ")?;
    let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
    crate::number::unsigned(&rest[..digits])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_category_has_one_meaning() {
        let mut names = CATEGORIES.map(|(name, _)| name);
        names.sort_unstable();
        assert!(names.windows(2).all(|pair| pair[0] != pair[1]));
        assert_eq!(category(b"odd"), Category::Span(Other, false));
    }

    #[test]
    fn stream_numbers_are_parsed_from_names_of_the_first_kineto() {
        assert_eq!(stream_of(b"stream 7"), Some(7));
        assert_eq!(stream_of(b"stream 20 user"), Some(20));
        for none in [&b"stream"[..], b"stream x", b"7", b"streams 7"] {
            assert_eq!(stream_of(none), None);
        }
    }
}
