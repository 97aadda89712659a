//! Classifies calls of the CUDA runtime by their names.

use tprof_trace::calls::{function, is_launch};

/// Number of classes that are cached. The low bits of a name's id select the place.
const RECENT: usize = 256;

/// What a call means for the collector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// The call launches a kernel.
    Launch,
    /// The call begins to capture a stream into a graph.
    CaptureBegins,
    /// The call ends a capture.
    CaptureEnds,
    /// The call allocates memory, frees it, or runs a graph that may do either.
    Memory,
    /// Any other call.
    Other,
}

/// Prefixes of functions in [`Class::Memory`].
const MEMORY: [&str; 5] =
    ["cudaMalloc", "cudaFree", "cudaHostAlloc", "cudaHostRegister", "cudaGraphLaunch"];

fn class_of(name: &str) -> Class {
    match function(name) {
        _ if is_launch(name) => Class::Launch,
        "cudaStreamBeginCapture" | "cudaStreamBeginCaptureToGraph" => Class::CaptureBegins,
        "cudaStreamEndCapture" => Class::CaptureEnds,
        of if MEMORY.iter().any(|start| of.starts_with(start)) => Class::Memory,
        _ => Class::Other,
    }
}

/// Caches the classes of recently used names.
pub struct Classes {
    recent: Box<[(u32, Class); RECENT]>,
}

impl Default for Classes {
    fn default() -> Classes {
        Classes { recent: Box::new([(0, Class::Other); RECENT]) }
    }
}

impl Classes {
    /// Returns the class of the function whose name has this id. `text` is called only if the class
    /// isn't cached.
    pub fn of<'t>(&mut self, name: u32, text: impl FnOnce() -> &'t str) -> Class {
        let recent = &mut self.recent[name as usize % RECENT];
        if recent.0 != name {
            *recent = (name, class_of(text()));
        }
        recent.1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_versions_of_a_function_have_its_class() {
        let of = [
            ("cudaLaunchKernel_v7000", Class::Launch),
            ("cudaLaunchKernelExC_ptsz_v11060", Class::Launch),
            ("cudaLaunchCooperativeKernel_v9000", Class::Launch),
            ("__cudaLaunchKernel_v13000", Class::Launch),
            ("__cudaLaunchKernel_ptsz_v13000", Class::Launch),
            ("cudaGraphLaunch_v10000", Class::Memory),
            ("cudaStreamBeginCapture_ptsz_v10000", Class::CaptureBegins),
            ("cudaStreamEndCapture_v10000", Class::CaptureEnds),
            ("cudaMalloc_v3020", Class::Memory),
            ("cudaMallocFromPoolAsync_ptsz_v11020", Class::Memory),
            ("cudaFreeHost_v3020", Class::Memory),
            ("cudaHostAlloc_v3020", Class::Memory),
            ("cudaHostGetDevicePointer_v3020", Class::Other),
            ("cudaMemcpy_v3020", Class::Other),
        ];
        for (name, class) in of {
            assert_eq!(class_of(name), class, "{name}");
        }
    }

    #[test]
    fn names_at_the_same_place_of_the_cache_are_distinguished() {
        let mut classes = Classes::default();
        let other = 1 + RECENT as u32;
        for _ in 0..2 {
            assert_eq!(classes.of(1, || "cudaLaunchKernel"), Class::Launch);
            assert_eq!(classes.of(1, || unreachable!()), Class::Launch);
            assert_eq!(classes.of(other, || "cudaFree"), Class::Memory);
        }
    }
}
