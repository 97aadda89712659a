//! Makes cells of tables on CPU time: estimates with their errors, and displayed names of
//! functions.

use tprof_document::{Cell, Column, Unit};
use tprof_rank::samples::{Func, Layer};

/// A cell of sampled time, with the error that follows from the number of samples.
pub(super) fn sampled(ns: u64, samples: u64) -> Cell {
    if samples == 0 {
        return Cell::from(ns);
    }
    let error = 1.96 * ns as f64 / (samples as f64).sqrt();
    Cell::Estimate { value: ns.into(), error: (error.round() as u64).into() }
}

/// A cell of time; if `variance` is not 0, a part of the time is an estimate with this variance.
pub(super) fn estimated(ns: u64, variance: f64) -> Cell {
    if variance == 0.0 {
        return Cell::from(ns);
    }
    Cell::Estimate { value: ns.into(), error: ((1.96 * variance.sqrt()).round() as u64).into() }
}

/// The displayed name of a function.
pub fn shown(func: &Func) -> String {
    match func.layer {
        Layer::Python if !func.file.is_empty() => {
            format!("{} ({})", func.name, short_path(&func.file))
        }
        _ => func.name.to_string(),
    }
}

/// The last two parts of a path.
pub(super) fn short_path(path: &str) -> &str {
    let mut parts = path.rmatch_indices('/').map(|(at, _)| at);
    parts.nth(1).map_or(path, |at| &path[at + 1..])
}

pub(super) const WHERE: [Column; 4] = [
    Column::new("layer", "code", Unit::Text),
    Column::new("module", "module", Unit::Text),
    Column::data("source", Unit::Text),
    Column::functions("function", "function"),
];

pub(super) fn place_cells(func: &Func) -> Vec<Cell> {
    let module = match func.layer {
        Layer::Python => short_path(&func.file),
        _ => &func.module,
    };
    let source: Cell = match func.file.is_empty() {
        true => Cell::missing("no debug information names its file"),
        false => func.file.to_string().into(),
    };
    let name: Cell = func.name.to_string().into();
    vec![func.layer.word().into(), module.into(), source, name]
}
