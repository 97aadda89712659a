//! Groups ranks that do the same, so that the answer about a thousand ranks fits on a screen.

use crate::situation::{Open, RankView};
use crate::state::FrameState;
use std::collections::HashMap;
use std::collections::hash_map::Entry;

/// Ranks that do the same.
pub struct Fold<'v, 's> {
    /// Numbers of the ranks, rising.
    pub ranks: Vec<u32>,
    /// The first of them, which stands for all.
    pub first: &'v RankView<'s>,
}

/// What must be equal for ranks to be folded.
type Sameness<'s> = (
    Option<(u64, &'s str)>,
    Option<(u64, Option<String>)>,
    bool,
    bool,
    char,
    Vec<&'s FrameState>,
    Option<(i32, i32)>,
);

fn sameness<'v>(view: &'v RankView<'_>) -> Sameness<'v> {
    let state = view.state;
    let open = view.open.as_ref();
    let thread = state.driving();
    // A dump shows the last operation too.
    let last = state.dump.as_ref().and_then(|_| Open::last(state));
    (
        open.map(|open| (open.operation.number, open.operation.name.as_str())),
        last.map(|last| (last.operation.number, last.operation.tensors)),
        view.goes_on,
        state.is_stopped(),
        thread.map_or('-', |thread| if thread.wait.is_some() { 'S' } else { 'R' }),
        thread.map(|thread| thread.frames.iter().collect()).unwrap_or_default(),
        state.end.as_ref().map(|end| (end.status.unwrap_or(-1), end.signal.unwrap_or(-1))),
    )
}

/// Folds ranks, the smallest group first: it has the ranks that differ from the others.
pub fn fold<'v, 's>(views: &'v [RankView<'s>]) -> Vec<Fold<'v, 's>> {
    let mut folds: HashMap<Sameness<'v>, Fold<'v, 's>> = HashMap::new();
    for view in views {
        match folds.entry(sameness(view)) {
            Entry::Occupied(mut fold) => fold.get_mut().ranks.push(view.state.rank),
            Entry::Vacant(place) => {
                place.insert(Fold { ranks: vec![view.state.rank], first: view });
            }
        }
    }
    let mut folds: Vec<Fold<'v, 's>> = folds.into_values().collect();
    folds.sort_by_key(|fold| (fold.ranks.len(), fold.ranks.first().copied()));
    folds
}
