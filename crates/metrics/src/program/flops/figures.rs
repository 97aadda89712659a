//! Formats the figures of `flops` and `roofline`.

use serde_json::Value;
use tprof_document::{Cell, RankContext};
use tprof_facts::flops::Work;

use super::sums::{RankFlops, Row, SizesKey};

pub(super) use super::roof::{NO_BYTES, NO_PEAKS};

const NO_SHAPES: &str = "no operator with sizes of its inputs was recorded (tprof run --operators shapes; \
     torch.profiler: record_shapes=True)";

const NO_FORMULA: &str = "no operator with sizes of its inputs has a formula that fits: table `uncounted` of `report flops`";

/// Returns the reason why no operator counts.
pub(super) fn why_nothing_counts(parts: &[(RankContext, RankFlops)]) -> &'static str {
    if parts.iter().any(|(_, part)| part.has_sizes) { NO_FORMULA } else { NO_SHAPES }
}

/// Returns the rate per second; `None` if the time is 0.
pub(super) fn per_second(all: u64, time_ns: u64) -> Option<f64> {
    (time_ns > 0).then(|| all as f64 / time_ns as f64 * 1e9)
}

/// Makes a cell with a value in units of 10^12, with three significant digits.
pub(super) fn tera(value: Option<f64>, why: &str) -> Cell {
    Cell::known(value.map(tera_text), why)
}

/// Formats a value in units of 10^12.
pub fn tera_text(value: f64) -> String {
    match value / 1e12 {
        0.0 => "0".to_owned(),
        large if large >= 100.0 => format!("{large:.0}"),
        large if large >= 10.0 => format!("{large:.1}"),
        large if large >= 1.0 => format!("{large:.2}"),
        small if small >= 0.001 => format!("{small:.3}"),
        small => format!("{small:.1e}"),
    }
}

/// Describes an operator with its tensors and the type that it computes with, such as
/// `aten::mm [2,3] [3,5] float16`.
pub(super) fn shape_text(key: &SizesKey, row: &Row) -> String {
    sizes_text(&key.operator, &key.dims, &row.work)
}

/// Formats an operator like [`shape_text`], but from its sizes as JSON and its work.
pub(super) fn sizes_text(operator: &str, dims: &str, work: &Work) -> String {
    let dims: Value = serde_json::from_str(dims).unwrap_or_default();
    let mut text = operator.to_owned();
    for dims in dims.as_array().into_iter().flatten() {
        let inner = dims.as_array().map_or(&[][..], Vec::as_slice);
        match inner.first() {
            // A scalar, or a tensor without dimensions, tells a reader little, so it is left out.
            None => continue,
            Some(Value::Array(_)) => text += &format!(" list of {}", inner.len()),
            Some(_) => text += &format!(" {dims}"),
        }
    }
    if let Some(of) = work.of {
        text += " ";
        text += of.name();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_formatted_with_three_significant_digits() {
        let text = |value: f64| tera(Some(value), "");
        for (value, wanted) in [
            (0.0, "0"),
            (1.0, "1.0e-12"),
            (2.5e9, "0.003"),
            (1.234e12, "1.23"),
            (45.67e12, "45.7"),
            (989.4e12, "989"),
        ] {
            assert_eq!(text(value), wanted.into());
        }
        assert_eq!(tera(None, "why"), Cell::missing("why"));
    }
}
