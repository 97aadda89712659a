//! Derives the purpose of a block of memory from what the framework was doing when the block was
//! allocated and when it was freed.
//!
//! `torch.profiler` can separate parameters from activations because it follows every tensor. A
//! trace can't, but it shows the phase of a step in which a block was allocated and the phase in
//! which it was freed.
//!
//! - A parameter is held over whole steps, and so are its buffers. But each parameter has a gradient
//!   of its size. So of the blocks of one size that are held over steps, as many count as parameters
//!   as there are gradients of that size at once, in the order in which they were allocated.
//! - The backward pass allocates gradients of parameters and of activations. Those that it frees
//!   itself are temporaries, like activations that it computes again.
//!
//! This works for blocks that an operator allocates for itself. Segments don't have a purpose: a
//! framework's caching allocator takes them from the device once and uses them in any later phase.

use rustc_hash::FxHashMap;
use tprof_trace::model::{Allocator, DeviceAllocation, ProcessIndex};

use super::phases::{EnclosingSpans, EventContext, Phase};

/// The purpose of a block. A block has a purpose only if its times show it; otherwise it is unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Category {
    /// Held over steps, with a gradient of the same size for each such block.
    Parameter,
    /// Allocated in the backward pass, and kept past it.
    Gradient,
    /// Allocated in an optimizer's step, and kept past it.
    OptimizerState,
    /// Allocated in the forward pass, and still held when the backward pass began.
    Activation,
    /// Allocated and freed within one operator, pass or optimizer's step.
    Temporary,
    /// Allocated in the forward pass by an operator that copies from the host.
    Input,
    /// Anything else: allocated before recording, outside of operators, or kept for no known
    /// reason.
    Unknown,
}

impl Category {
    /// Number of categories.
    pub const COUNT: usize = 7;

    /// All categories, in the order of tables.
    pub const ALL: [Category; Category::COUNT] = [
        Category::Parameter,
        Category::Gradient,
        Category::OptimizerState,
        Category::Activation,
        Category::Temporary,
        Category::Input,
        Category::Unknown,
    ];

    /// The name that reports print.
    pub fn name(self) -> &'static str {
        match self {
            Category::Parameter => "parameters",
            Category::Gradient => "gradients",
            Category::OptimizerState => "optimizer state",
            Category::Activation => "activations",
            Category::Temporary => "temporaries",
            Category::Input => "inputs",
            Category::Unknown => "unknown",
        }
    }

    /// Explains the category in a few words.
    pub fn about(self) -> &'static str {
        match self {
            Category::Parameter => "kept, with gradients of its size",
            Category::Gradient => "backward and later",
            Category::OptimizerState => "kept past an optimizer's step",
            Category::Activation => "forward, until backward began",
            Category::Temporary => "within one pass",
            Category::Input => "copied from the host",
            Category::Unknown => "its times show no purpose",
        }
    }
}

/// Whether this allocator serves single blocks to operators, so that a block has a purpose. PyTorch
/// allocates segments for many blocks from the other allocators.
pub(super) fn gives_blocks(allocator: Allocator) -> bool {
    matches!(allocator, Allocator::Framework | Allocator::Pool)
}

/// The purpose of a block, as far as the times at which it was taken and given back show it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shown {
    Is(Category),
    /// It is held over whole steps: it is a parameter if there is a gradient of its size, otherwise
    /// this.
    KeptOr(Category),
}

/// A block from its allocation to its free.
struct BlockLife {
    taken_ns: u64,
    taken: EventContext,
    /// When and where it was freed; `None` if it never was.
    given: Option<(u64, EventContext)>,
}

/// Returns the category of each block. `rows` are the events of one pool, and `freed_by` has for
/// each allocation the index of the event that freed it. Entries for frees have no meaning.
pub(super) fn categories(
    operators: &EnclosingSpans<'_>,
    rows: &[&DeviceAllocation],
    freed_by: &[Option<u32>],
) -> Vec<Category> {
    let places = operators.places(rows);
    let shown = |at: usize| {
        let given = freed_by[at].map(|free| free as usize);
        operators.shown(&BlockLife {
            taken_ns: rows[at].time_ns,
            taken: places[at],
            given: given.map(|free| (rows[free].time_ns, places[free])),
        })
    };
    let shown: Vec<Shown> = (0..rows.len()).map(shown).collect();
    let mut gradients =
        most_at_once(rows, freed_by, |at| shown[at] == Shown::Is(Category::Gradient));
    let category = |(row, shown): (&&DeviceAllocation, Shown)| match shown {
        Shown::Is(category) => category,
        Shown::KeptOr(_) if row.free => Category::Unknown,
        Shown::KeptOr(other) => match gradients.get_mut(&size(row)) {
            Some(left) if *left > 0 => {
                *left -= 1;
                Category::Parameter
            }
            _ => other,
        },
    };
    rows.iter().zip(shown).map(category).collect()
}

/// The process and the bytes of a block.
fn size(row: &DeviceAllocation) -> (ProcessIndex, Option<u64>) {
    (row.process, row.bytes)
}

/// Returns how many of the chosen blocks of each size were live at once.
fn most_at_once(
    rows: &[&DeviceAllocation],
    freed_by: &[Option<u32>],
    chosen: impl Fn(usize) -> bool,
) -> FxHashMap<(ProcessIndex, Option<u64>), u64> {
    let mut live: FxHashMap<(ProcessIndex, Option<u64>), (u64, u64)> = FxHashMap::default();
    let mut frees: FxHashMap<u32, usize> = FxHashMap::default();
    for (at, row) in rows.iter().enumerate() {
        if row.free {
            let taken = u32::try_from(at).ok().and_then(|at| frees.remove(&at));
            if let Some((now, _)) = taken.and_then(|taken| live.get_mut(&size(rows[taken]))) {
                *now -= 1;
            }
        } else if chosen(at) {
            let (now, most) = live.entry(size(row)).or_default();
            *now += 1;
            *most = (*most).max(*now);
            frees.extend(freed_by[at].map(|free| (free, at)));
        }
    }
    live.into_iter().map(|(size, (_, most))| (size, most)).collect()
}

impl EnclosingSpans<'_> {
    /// Finds what the times of a block show.
    fn shown(&self, block: &BlockLife) -> Shown {
        let (taken, given) = (block.taken, block.given.map(|(_, given)| given));
        let given_ns = block.given.map(|(given_ns, _)| given_ns);
        let is_given_in = |phase| given.is_some_and(|given| given.phase == phase);
        let is_brief = given.is_some_and(|given| {
            given.root == taken.root && taken.root.is_some()
                || given.step == taken.step && taken.step.is_some()
        });
        let steps = self.whole_steps(block.taken_ns, given_ns);
        let backward_began = self.backward_begins(block.taken_ns, given_ns);
        Shown::Is(match taken.phase {
            _ if is_brief => Category::Temporary,
            Phase::Optimizer => Category::OptimizerState,
            Phase::Backward if is_given_in(Phase::Backward) && steps == 0 => Category::Temporary,
            Phase::Backward => Category::Gradient,
            _ if steps > 0 && !is_given_in(Phase::Backward) => {
                // A variable may keep an activation until the next step replaces it.
                let is_replaced = steps == 1 && given.is_some() && backward_began;
                return Shown::KeptOr(match taken.phase {
                    Phase::Forward if is_replaced && taken.copies_from_host => Category::Input,
                    Phase::Forward if is_replaced => Category::Activation,
                    _ => Category::Unknown,
                });
            }
            Phase::None => Category::Unknown,
            _ if taken.copies_from_host => Category::Input,
            _ if backward_began => Category::Activation,
            _ if given.is_some() => Category::Temporary,
            // The step isn't over. In the first one, nothing separates activations from parameters.
            _ if self.is_after_a_step(block.taken_ns) => Category::Activation,
            _ => Category::Unknown,
        })
    }
}
