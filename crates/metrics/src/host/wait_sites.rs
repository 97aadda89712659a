//! Groups the driving thread's waits for other threads of its process by place.

use rustc_hash::FxHashMap;
use tprof_rank::samples::{CpuTrace, Func, Layer, Part, Stack, takes_from_thread};
use tprof_trace::model::{ProcessIndex, Sample, StackId, ThreadState};

use super::driver::Driver;
use super::line::{OtherCause, Place, is_of_pool};

/// While a wait lasts at least this long, the collector reads its stack. Shorter waits may have no
/// stack.
pub(super) const LOOKED_AT_NS: u64 = 25_000_000;
/// PyTorch's Python files that run backward passes. [`ENGINE`] is the beginning of the names of
/// compiled functions that do.
const BACKWARD_FILES: [&str; 2] = ["torch/autograd/graph.py", "torch/autograd/__init__.py"];
const ENGINE: &str = "torch::autograd::";

/// The waits at one place.
#[derive(Clone, Debug)]
pub(super) struct WaitSite {
    pub at: Place,
    /// The process and the stack of one of the waits.
    pub stack: (ProcessIndex, StackId),
    pub hint: Hint,
    /// The waits, as indices into the driving thread's rows.
    pub seen: Vec<usize>,
    /// The short waits without a stack, if this place has most of the short waits with a stack.
    pub unseen: Vec<usize>,
    /// The estimated share of the short waits without a stack that belongs to this place. It equals
    /// this place's share of the short waits with a stack.
    pub of_unseen: f64,
    /// Time of the waits in `seen`, ns.
    pub ns: u64,
}

/// A hint from the stack of a wait at the awaited thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hint {
    Nothing,
    /// The thread is one of PyTorch's autograd threads.
    Autograd,
    /// The thread is one of a Python pool.
    Pool,
    /// The thread ends when the wait does.
    Ends,
}

/// Returns the waits among a thread's rows, by place.
pub(super) fn wait_sites(rows: &[Sample], cpu: &CpuTrace, driver: &Driver) -> Vec<WaitSite> {
    let mut found: Vec<WaitSite> = Vec::new();
    let mut by_place: FxHashMap<Place, usize> = FxHashMap::default();
    let mut by_stack: FxHashMap<(StackId, ThreadState), Option<usize>> = FxHashMap::default();
    let (mut unseen, mut short_ns) = (Vec::new(), 0);
    for (at, row) in rows.iter().enumerate() {
        // Time in a span with a stated purpose has another thread number; its cause is already
        // known.
        let is_own = row.thread == driver.thread;
        if !is_own || matches!(row.state, ThreadState::Running | ThreadState::Runnable) {
            continue;
        }
        let is_short = row.weight_ns < LOOKED_AT_NS;
        if row.stack == 0 {
            let is_any = matches!(row.state, ThreadState::Blocked | ThreadState::Lock);
            unseen.extend((is_any && is_short).then_some(at));
            continue;
        }
        let stack = cpu.stack(row.process, row.stack);
        short_ns += if is_short { row.weight_ns } else { 0 };
        let group = by_stack.entry((row.stack, row.state)).or_insert_with(|| {
            let state = cpu.state(row.process, row.stack, row.state);
            let part = cpu.part(row.process, row.stack, row.state).unwrap_or(Part::Unknown);
            let place = Place::of(part, state, stack, &cpu.names);
            let hint = hint(&place, stack, cpu)?;
            Some(*by_place.entry(place.clone()).or_insert_with(|| {
                let stack = (row.process, row.stack);
                let (seen, unseen) = (Vec::new(), Vec::new());
                let (of_unseen, ns) = (0.0, 0);
                found.push(WaitSite { at: place, stack, hint, seen, unseen, of_unseen, ns });
                found.len() - 1
            }))
        });
        if let Some(group) = group.map(|group| &mut found[group]) {
            group.seen.push(at);
            group.ns += row.weight_ns;
        }
    }
    // Short waits with a stack are a sample of those without a stack.
    let short = |group: &WaitSite| -> u64 {
        let all = group.seen.iter().map(|at| rows[*at].weight_ns);
        all.filter(|ns| *ns < LOOKED_AT_NS).sum()
    };
    if let Some(most) = found.iter_mut().max_by_key(|group| short(group))
        && short(most) * 2 >= short_ns.max(1)
    {
        most.unseen = unseen;
        most.of_unseen = short(most) as f64 / short_ns.max(1) as f64;
    }
    found
}

/// Returns what the stack of a wait tells about the awaited thread; `None` if the wait is not for
/// another thread's work.
fn hint(place: &Place, stack: &Stack, cpu: &CpuTrace) -> Option<Hint> {
    let functions = || stack.functions.iter().map(|id| cpu.names.get(*id));
    let waits = match (place.part, place.cause) {
        (Part::Other, OtherCause::Thread) => return Some(Hint::Ends),
        (Part::Other, OtherCause::Work) => true,
        (Part::Data, _) => takes_from_thread(functions()),
        _ => false,
    };
    let is_of_backward = |func: &Func| match func.layer {
        Layer::Python => BACKWARD_FILES.iter().any(|file| func.file.ends_with(file)),
        Layer::Native => func.name.starts_with(ENGINE),
        Layer::Kernel => false,
    };
    waits.then(|| match () {
        () if functions().any(is_of_backward) => Hint::Autograd,
        () if functions().any(is_of_pool) => Hint::Pool,
        () => Hint::Nothing,
    })
}
