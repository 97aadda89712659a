//! Counts the CPU samples of some steps, and those in which a thread of the job ran code of tprof's
//! library or of CUPTI.

use rustc_hash::FxHashMap;
use tprof_facts::labels::base_name;
use tprof_facts::sampled_time::SampledTime;
use tprof_rank::base::intervals::{Cover, Interval};
use tprof_trace::model::{ProcessIndex, SampleMoment, StackId, ThreadState};
use tprof_trace::{CodeMap, TraceFile};

/// Prefix of the names of tprof's libraries.
const OWN: &str = "libtprof_";
/// Beginning of the name of CUPTI's library.
const CUPTI: &str = "libcupti.so";
/// Beginnings of the names of the C library's files, in which every thread begins. The module next
/// to them on a stack owns the thread.
const BEGIN: [&str; 3] = ["libc.so", "libpthread.so", "ld-linux"];

/// The number of samples in some steps, by the code that ran.
#[derive(Default)]
pub(super) struct StepSamples {
    /// Samples of threads on a core.
    pub samples: u64,
    /// Number of waits that ended a thread's stay on a core.
    pub waits: u64,
    /// Number of such waits in the whole file.
    pub all_waits: u64,
    /// Samples in which a thread of the job ran code of tprof's library.
    pub in_library: SampledTime,
    /// Samples in which a thread of the job was in a function of CUPTI, or in one that CUPTI
    /// called.
    pub in_cupti: SampledTime,
}

/// The owner of the code that runs in a stack.
#[derive(Clone, Copy, PartialEq, Eq)]
enum CodeOwner {
    Job,
    Library,
    Cupti,
}

impl StepSamples {
    /// Counts the samples of a process in these times.
    pub fn of(file: &TraceFile, process: ProcessIndex, times: &Cover) -> StepSamples {
        let mut found = StepSamples::default();
        let Some(span) = times.span() else { return found };
        let code = CodeMap::new(file);
        let mut known: FxHashMap<StackId, CodeOwner> = FxHashMap::default();
        for row in file.blocks::<SampleMoment>().flatten() {
            let is_wait = row.state != ThreadState::Running;
            found.all_waits += u64::from(is_wait);
            let at = row.time_ns;
            if row.process != process
                || !(span.start..span.end).contains(&at)
                || !times.touches(Interval::new(at, at))
            {
                continue;
            }
            if is_wait {
                found.waits += 1;
                continue;
            }
            if row.stack == 0 {
                continue;
            }
            found.samples += 1;
            let whose =
                *known.entry(row.stack).or_insert_with(|| whose(file, &code, process, row.stack));
            found.in_library.sample(row.weight_ns, whose == CodeOwner::Library);
            found.in_cupti.sample(row.weight_ns, whose == CodeOwner::Cupti);
        }
        found
    }
}

fn whose(file: &TraceFile, code: &CodeMap, process: ProcessIndex, stack: StackId) -> CodeOwner {
    let frames = file.stack(process, stack).map_or(&[][..], |stack| &stack.frames);
    let modules: Vec<&str> = frames
        .iter()
        .filter_map(|address| code.module(process, *address))
        .map(|module| base_name(file.name(module.path)))
        .collect();
    let is_begin = |name: &&&str| BEGIN.iter().any(|begin| name.starts_with(begin));
    // The job does not wait for a thread that CUPTI or tprof started, so its samples do not count.
    let began = modules.iter().rev().find(|name| !is_begin(name));
    if began.is_none_or(|name| name.starts_with(CUPTI) || name.starts_with("libtprof_cupti")) {
        return CodeOwner::Job;
    }
    if modules.iter().any(|name| name.starts_with(CUPTI)) {
        return CodeOwner::Cupti;
    }
    match modules.first().is_some_and(|name| name.starts_with(OWN)) {
        true => CodeOwner::Library,
        false => CodeOwner::Job,
    }
}
