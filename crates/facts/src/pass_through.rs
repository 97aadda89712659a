//! Leaves out frames of tprof's own libraries through which calls of a job only pass, since no
//! reader of the job's stacks needs them.
//!
//! There are two kinds of such frames: tprof's first function of a thread, which calls the job's
//! function, and hooks, which call the function of the C library that they interpose. Both are left
//! out if the next inner frame is the function that they call for the job. Frames of code that
//! tprof runs for itself stay, together with everything that this code calls: that time is tprof's
//! and must not look like the job's.

use std::ops::Range;

use rustc_hash::FxHashMap;
use tprof_trace::model::{ProcessIndex, SYNTHETIC_FRAME};
use tprof_trace::{TraceFile, address_of};

use crate::labels::base_name;

/// Libraries that tprof loads into a job's processes, by the beginnings of their names.
const TPROF: [&str; 2] = ["libtprof_preload.so", "libtprof_cupti.so"];
/// The end of the name of tprof's first function of a thread.
const FIRST_OF_THREADS: &str = "::thread_main";

/// Whether tprof loads the module with this base name into a job's processes.
pub fn is_of_tprof(module: &str) -> bool {
    TPROF.iter().any(|start| module.starts_with(start))
}

/// The function of a frame. If the frame has inlined functions, this is the function into which
/// they were inlined.
pub(crate) struct FrameFunction {
    pub function: String,
    pub is_kernel: bool,
}

/// The address ranges of tprof's libraries in the processes of a file.
#[derive(Debug)]
pub(crate) struct PassThroughFrames {
    libraries: FxHashMap<ProcessIndex, Vec<Range<u64>>>,
}

impl PassThroughFrames {
    /// Finds the libraries in a file.
    pub fn of(file: &TraceFile) -> PassThroughFrames {
        let mut libraries: FxHashMap<ProcessIndex, Vec<Range<u64>>> = FxHashMap::default();
        for module in file.modules() {
            if is_of_tprof(base_name(file.name(module.path))) {
                libraries.entry(module.process).or_default().push(module.start..module.end);
            }
        }
        PassThroughFrames { libraries }
    }

    /// Returns the frames of a stack, innermost first, without the frames through which calls only
    /// pass.
    pub fn without(
        &self,
        process: ProcessIndex,
        frames: &[u64],
        name_of: impl Fn(u64) -> Option<FrameFunction>,
    ) -> Vec<u64> {
        // Files of other recorders, and processes in which tprof loaded no library, keep all
        // frames.
        let Some(libraries) = self.libraries.get(&process) else { return frames.to_vec() };
        let mut shown = Vec::with_capacity(frames.len());
        // The innermost neighbour of the current run of frames: the frame that this run called.
        let mut inner: Option<u64> = None;
        for run in frames.chunk_by(|a, b| hold(libraries, *a) == hold(libraries, *b)) {
            if !hold(libraries, run[0]) || !inner.is_some_and(|inner| passes(&name_of, inner, run))
            {
                shown.extend_from_slice(run);
            }
            inner = run.last().copied();
        }
        shown
    }
}

/// Whether the call to which a frame returns lies in one of these ranges.
fn hold(libraries: &[Range<u64>], frame: u64) -> bool {
    let pc = address_of(frame).wrapping_sub(1);
    pc & SYNTHETIC_FRAME == 0 && libraries.iter().any(|range| range.contains(&pc))
}

/// Whether a run of tprof's frames, innermost first, called `inner` for the job.
fn passes(name_of: impl Fn(u64) -> Option<FrameFunction>, inner: u64, run: &[u64]) -> bool {
    let first = run.last().and_then(|first| name_of(*first));
    let (Some(called), Some(first)) = (name_of(inner), first) else { return false };
    if called.is_kernel {
        return false;
    }
    // The first function of a thread calls only the job's function and functions of tprof.
    if run.len() == 1 && first.function.ends_with(FIRST_OF_THREADS) {
        return true;
    }
    let hook = first.function.rsplit("::").next().unwrap_or_default();
    let hook = hook.strip_suffix("_impl").unwrap_or(hook);
    real_name(&called.function) == real_name(hook)
}

/// Returns a function's name without the prefixes and suffixes that the C library adds to its own
/// names.
fn real_name(name: &str) -> &str {
    let name = name.split('@').next().unwrap_or(name).trim_start_matches('_');
    let name = name.strip_prefix("GI_").unwrap_or(name).trim_start_matches('_');
    let name = name.strip_prefix("libc_").unwrap_or(name);
    // Some names end in a version, such as `__pthread_create_2_1`.
    let end = name.find("_2_").filter(|at| name[at + 3..].bytes().all(|b| b.is_ascii_digit()));
    &name[..end.unwrap_or(name.len())]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns what is shown of a stack, innermost first. Its functions belong to tprof (`+name`),
    /// to the kernel (`[name]`) or to others.
    fn shown(stack: &str) -> String {
        let names: Vec<&str> = stack.split(' ').collect();
        let is_own = |name: &str| name.starts_with('+');
        let address = |(at, name): (usize, &&str)| if is_own(name) { 101 } else { 301 } + at as u64;
        let frames: Vec<u64> = names.iter().enumerate().map(address).collect();
        let name_of = |frame: u64| names[(frame % 100) as usize - 1];
        let named = |frame: u64| {
            let name = name_of(frame);
            let function = name.trim_start_matches('+').to_owned();
            Some(FrameFunction { function, is_kernel: name.starts_with('[') })
        };
        let own = std::iter::once(100..200).collect();
        let passages = PassThroughFrames { libraries: [(0, own)].into_iter().collect() };
        let shown = passages.without(0, &frames, named);
        shown.into_iter().map(name_of).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn the_first_function_of_a_thread_is_left_out_between_the_jobs_frames() {
        assert_eq!(shown("work +hooks::thread::thread_main start_thread"), "work start_thread");
        // These frames lie in tprof's own code, or in functions that it calls for itself.
        for own in [
            "+hooks::thread::thread_main start_thread",
            "[irq] +hooks::thread::thread_main start_thread",
            "mmap +hooks::thread::begin +hooks::thread::thread_main start_thread",
        ] {
            assert_eq!(shown(own), own);
        }
    }

    #[test]
    fn a_hook_is_left_out_where_it_called_the_real_function() {
        assert_eq!(shown("_int_malloc malloc +hooks::heap::malloc_impl f"), "_int_malloc malloc f");
        assert_eq!(shown("__pthread_create_2_1 +pthread_create f"), "__pthread_create_2_1 f");
        assert_eq!(shown("__libc_fork +x::call +fork f"), "__libc_fork f");
        assert_eq!(
            shown("g malloc +heap::malloc_impl f +thread::thread_main start_thread"),
            "g malloc f start_thread"
        );
        // In these stacks tprof works for itself, or has a page fault.
        for own in [
            "memcpy +stacks::take +hooks::heap::malloc_impl f",
            "[fault] +hooks::heap::malloc_impl f",
            "+stacks::take +hooks::heap::malloc_impl f",
            "malloc +hooks::heap::realloc_impl f",
        ] {
            assert_eq!(shown(own), own);
        }
    }
}
