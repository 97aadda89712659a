//! Makes the tables of which ranks decided how long steps took, and of what steps would take without
//! their lateness.

use tprof_document::{Cell, Column, RankContext, Table, Unit};

use super::{RankStragglers, stages};
use crate::gpu::replay::{Decided, JobGraph, OwnPlace, decided_steps, pipelines, what_if};

/// Most ranks for which a step is predicted.
const MOST_PREDICTED: usize = 8;

const ONE_RANK: &str = "there is one rank";
const NO_STEPS: &str = "no two steps in a row in which ranks met were recorded";
const UNFOLLOWED: &str = "operations that are not followed take more than 5 % of a rank's steps: broadcasts and others \
     in which not all ranks wait, and sends and receives that can't be matched";
const NO_ORDER: &str =
    "the ranks' collectives, sends and receives have no common order, so some are not matched";
const EVEN: &str =
    "no rank's stretch was longer than the other ranks' by as much as 1 % of the steps";

/// Makes the table of stretches that decided steps, the table of predictions if there are any, and
/// the table of stages if there are pipelines.
pub(super) fn tables(parts: &[(RankContext, RankStragglers)]) -> Vec<Table> {
    let ranks: Vec<_> = parts.iter().filter(|(at, _)| at.rank.is_some()).collect();
    let steps: Vec<_> = ranks.iter().map(|(_, part)| &part.steps).collect();
    let graph = JobGraph::of(&steps);
    let decided = match decided_steps(&graph) {
        _ if steps.len() < 2 => Err(ONE_RANK),
        _ if !graph.is_followed() => Err(UNFOLLOWED),
        None => Err(NO_ORDER),
        Some(decided) if decided.steps == 0 => Err(NO_STEPS),
        Some(decided) => Ok(decided),
    };
    let label = |rank: usize| ranks[rank].0.label.as_str();
    let mut tables = vec![stretches(decided.as_ref(), label)];
    tables.extend(decided.ok().and_then(|decided| predictions(&graph, &decided, label)));
    if graph.is_followed() {
        tables.extend(stages::table(&pipelines(&graph), label));
    }
    tables
}

fn stretches<'l>(
    decided: Result<&Decided, &&'static str>,
    label: impl Fn(usize) -> &'l str,
) -> Table {
    let columns = vec![
        Column::new("rank", "rank", Unit::Text),
        Column::new("steps", "steps", Unit::Count),
        Column::new("of_steps", "of steps", Unit::Share),
        Column::new("longer_ns", "longer by", Unit::Duration),
        Column::new("own_ns", "own time", Unit::Duration),
        Column::data("operator", Unit::Text),
        Column::data("function", Unit::Text),
        Column::data("file", Unit::Text),
        Column::data("line", Unit::Id),
        Column::new("place", "operator, or line", Unit::Name),
    ];
    let empty = decided.as_ref().err().map_or(EVEN, |why| **why);
    let mut table = Table::new("decided_by", "What decided how long steps took", columns)
        .about(
            "own time: of the rank on the path through a step, a step; longer by: than the median \
             of the other ranks; steps: in which nothing else was longer by more",
        )
        .empty(empty);
    let Ok(decided) = decided else { return table };
    let per_step = |ns: u64| ns / decided.steps.max(1);
    for of in &decided.stretches {
        let mut cells = vec![
            label(of.rank).into(),
            of.steps.into(),
            (of.steps as f64 / decided.steps.max(1) as f64).into(),
            per_step(of.longer_ns).into(),
            per_step(of.own_ns).into(),
        ];
        cells.extend(place_cells(of.place.as_ref()));
        table.row(cells);
    }
    table
}

fn place_cells(place: Option<&OwnPlace>) -> [Cell; 5] {
    const UNKNOWN: &str =
        "neither work of a device nor a sample of the main thread was recorded there";
    let Some(place) = place else { return [(); 5].map(|()| Cell::missing(UNKNOWN)) };
    let text = |text: &str| Cell::applies((!text.is_empty()).then(|| text.to_owned()));
    [
        text(&place.operator),
        text(&place.function),
        text(&place.file),
        Cell::applies((place.line > 0).then_some(place.line)),
        place.shown().into(),
    ]
}

fn predictions<'l>(
    graph: &JobGraph<'_>,
    decided: &Decided,
    label: impl Fn(usize) -> &'l str,
) -> Option<Table> {
    let columns = vec![
        Column::new("rank", "without the lateness of", Unit::Text),
        Column::new("without_ns", "a step takes", Unit::Duration),
        Column::new("step_ns", "instead of", Unit::Duration),
    ];
    let mut table = Table::new("what_if", "Steps without a rank's lateness", columns).about(
        "the steps replayed with the rank's own time replaced by the median of the other ranks'; the \
         error includes the rank's time without a core, by its CPU samples",
    );
    let mut ranks: Vec<usize> = Vec::new();
    for of in &decided.stretches {
        if !ranks.contains(&of.rank) {
            ranks.push(of.rank);
        }
    }
    for rank in ranks.into_iter().take(MOST_PREDICTED) {
        let Some(found) = what_if(graph, rank) else { continue };
        let without = Cell::Estimate {
            value: (found.without_ns.max(0.0).round() as u64).into(),
            error: (found.error_ns.round() as u64).into(),
        };
        table.row(vec![label(rank).into(), without, (found.step_ns.round() as u64).into()]);
    }
    (!table.rows.is_empty()).then_some(table)
}
